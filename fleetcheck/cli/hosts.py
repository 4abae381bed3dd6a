"""``fleetcheck hosts``: what an inventory resolves to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fleetcheck.cli.inventory import chosen, hosts_argument, inventory_options
from fleetcheck.cli.output import emit

if TYPE_CHECKING:
    from fleetcheck.cli.inventory import Chosen


@click.command()
@hosts_argument("patterns", "[PATTERN]...")
@inventory_options
@click.option(
    "--format", "form", type=click.Choice(("table", "json", "yaml", "graph")), default="table", show_default=True,
    help="What to print. yaml is an inventory again, graph the groups with their hosts.",
)  # fmt: skip
@click.option(
    "--explain", is_flag=True, help="For one host: every value, and the file and line that it comes from."
)
def command(patterns: tuple[str, ...], inventory: str | None, execute: bool, form: str, explain: bool) -> None:
    """Show the hosts of an inventory, with every setting resolved. Nothing is contacted.

    PATTERN is a name, a node set (gpu[01-16].lab), a group, a glob, all, ~REGEX or @FILE, or several joined by
    commas; !X takes hosts away, &Y keeps only those that are in Y too.
    """
    found = chosen(inventory, patterns, execute=execute)
    if explain:
        explained(found, form)
        return
    from fleetcheck.inventory import dump

    if form == "json":
        import json

        emit(json.dumps(dump.to_json(found.inventory, found.targets), indent=2) + "\n")
    elif form == "yaml":
        emit(dump.to_yaml(found.inventory, found.targets))
    elif form == "graph":
        emit(dump.graph(found.targets, found.loaded.children))
    else:
        from tabulate import tabulate

        count = len(found.targets)
        table = tabulate(dump.rows(found.targets), dump.HEADERS, tablefmt="simple", disable_numparse=True)
        emit(f"{table}\n\n{count} host{'s'[: count != 1]}\n")


def explained(found: Chosen, form: str) -> None:
    """Print where each value of one host comes from."""
    if form not in ("table", "json"):
        raise click.UsageError("--explain prints a table or json.")
    if len(found.targets) != 1:
        raise click.UsageError(f"--explain is for one host; {len(found.targets)} are selected.")
    origins = found.loaded.origins(found.targets[0])
    if form == "json":
        import json

        emit(json.dumps([origin._asdict() for origin in origins], indent=2) + "\n")
        return
    from tabulate import tabulate

    emit(tabulate(origins, ("key", "value", "from"), tablefmt="simple", disable_numparse=True) + "\n")
