"""``fleetcheck diff``: what changed between two runs of the history. No SSH."""

from __future__ import annotations

from pathlib import Path

import click

from fleetcheck.cli.completion import complete_stored
from fleetcheck.cli.memory import db_option, opened
from fleetcheck.cli.options import Session
from fleetcheck.cli.output import emit


@click.command()
@click.argument("runs", metavar="[RUN [RUN]]", nargs=-1, shell_complete=complete_stored)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="What to print.",
)
@click.option("--wide", is_flag=True, help="Show every changed fact.")
@db_option
@click.pass_obj
def command(session: Session, /, *, runs: tuple[str, ...], form: str, wide: bool, db: Path | None) -> int:
    """Show what changed between runs of the history.

    Without RUN, the latest run against what was before it; with one, the latest against that one; with two, the
    second against the first. Each host is compared with the last run, up to the first RUN, in which it was looked
    at. A host that was not checked keeps its verdict, and one that was not selected is not gone.

    Exit codes: 0 no change; 1 changes; 2 fleetcheck could not do its work.
    """  # fmt: skip
    del session
    from fleetcheck.errors import InputError, Problem
    from fleetcheck.history.diff import compare, of_past
    from fleetcheck.history.past import LATEST, Past
    from fleetcheck.history.text import render
    from fleetcheck.judge import now

    if len(runs) > 2:
        raise click.UsageError("Two runs can be compared, no more.")
    with opened(db) as history:
        past = Past(history)
        after = past.find(runs[1] if len(runs) == 2 else LATEST)
        base = past.find(runs[0]) if runs else past.ended_before(after.seq)
        if base is not None and base.seq >= after.seq:
            message = f"the run did not begin before {after.id}; name the earlier run first"
            raise InputError([Problem(base.id, None, message)])
        changes = compare(past, base, of_past(past.looks(after.seq)), past.info(after), past.fleet(after.seq))
    if form == "json":
        import json

        emit(json.dumps(changes.to_json(), indent=2) + "\n")
    else:
        emit(render(changes, now(), wide=wide))
    return 1 if changes else 0
