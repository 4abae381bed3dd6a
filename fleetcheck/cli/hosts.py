"""``fleetcheck hosts``: what an inventory resolves to."""

from __future__ import annotations

import click

from fleetcheck.cli.output import emit


@click.command()
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("-i", "--inventory", metavar="INV", help="Inventory: a file, a folder, - or names.")
@click.option(
    "--format", "form", type=click.Choice(("table", "json", "yaml")), default="table", show_default=True,
    help="What to print. yaml is an inventory again.",
)  # fmt: skip
def command(patterns: tuple[str, ...], inventory: str | None, form: str) -> None:
    """Show the hosts of an inventory, with every setting resolved. Nothing is contacted.

    PATTERN is a name, a node set (gpu[01-16].lab), a group, a glob, all, ~REGEX or @FILE, or several joined by
    commas; !X takes hosts away, &Y keeps only those that are in Y too.
    """
    from fleetcheck.inventory import dump
    from fleetcheck.inventory.load import load
    from fleetcheck.inventory.selection import select

    loaded = load(inventory)
    targets = select(loaded, patterns)
    if form == "json":
        import json

        emit(json.dumps(dump.to_json(loaded, targets), indent=2) + "\n")
    elif form == "yaml":
        emit(dump.to_yaml(loaded, targets))
    else:
        from tabulate import tabulate

        table = tabulate(dump.rows(targets), dump.HEADERS, tablefmt="simple", disable_numparse=True)
        emit(f"{table}\n\n{len(targets)} host{'s'[: len(targets) != 1]}\n")
