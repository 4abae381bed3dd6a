"""``fleetcheck compare``: what two hosts differ in, facts first, then the text of the files that decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.completion import complete_hosts
from fleetcheck.cli.gather import gather, gather_options
from fleetcheck.cli.options import Session, colour_option, coloured
from fleetcheck.cli.output import emit, is_terminal

if TYPE_CHECKING:
    from fleetcheck.cli.gather import Gathered


@click.command()
@click.argument("first", metavar="HOST", shell_complete=complete_hosts)
@click.argument("second", metavar="HOST", shell_complete=complete_hosts)
@click.option(
    "--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True,
    help="What to print.",
)  # fmt: skip
@click.option("--wide", is_flag=True, help="Show every difference.")
@colour_option("Colour the text.")
@gather_options
@click.pass_obj
def command(session: Session, /, first: str, second: str, form: str, wide: bool, **options: Any) -> int:
    """Show what two hosts differ in.

    Facts come first: "-" is the first host, "+" the second. What changes by itself, or names one machine, is left
    out. The text of files that somebody changed follows where there is evidence of both: after a look now, or with
    --run and a file that "audit --output evidence:PATH" wrote.

    Exit codes: 0 no difference; 1 differences; 2 fleetcheck could not do its work.
    """
    import sys

    from fleetcheck.differences import differences, flat

    gathered = gather(session, (first, second), options)
    if len(gathered.hosts) != 2:
        names = ", ".join(host.name for host in gathered.hosts)
        raise click.UsageError(f"Name two hosts that are not the same one; these patterns mean {names}.")
    one, other = gathered.hosts
    found = differences(flat(one), flat(other))
    changed = texts(gathered)
    if form == "json":
        import json

        facts = [{"fact": item.key, "before": item.before, "after": item.after} for item in found]
        files = [{"file": title, "diff": lines} for title, lines in changed]
        document = {"hosts": [one.name, other.name], "differences": facts, "files": files}
        emit(json.dumps(document, indent=2) + "\n")
    else:
        from fleetcheck.report.fold import side_by_side

        colour = coloured(options["colour"], is_terminal(sys.stdout))
        emit(side_by_side(one.name, other.name, found, changed, wide=wide, colour=colour))
    return 1 if found or changed else 0


def texts(gathered: Gathered) -> list[tuple[str, list[str]]]:
    """Return the diffs of changed files, where there is evidence of both hosts."""
    from fleetcheck.keyfiles import diffs

    looks = [gathered.looks.get(host.name) for host in gathered.hosts]
    if looks[0] is None or looks[1] is None:
        return []
    return list(diffs(looks[0], looks[1]))
