"""``fleetcheck report``: show runs that are over, of files or of the history, again or several as one. No SSH."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.completion import complete_runs
from fleetcheck.cli.memory import db_option, remembered
from fleetcheck.cli.options import Session, Show, show_options
from fleetcheck.cli.output import Outputs, code, prepare, spare

if TYPE_CHECKING:
    from fleetcheck.run import Run


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_runs)
@show_options()
@db_option
@click.pass_obj
def command(session: Session, /, runs: tuple[str, ...], db: Path | None, **options: Any) -> int:
    """Show runs again, without SSH; several as one.

    RUN is a file that "--format json" or "--format jsonl" wrote, - for standard input, or a run of the history:
    its id, a beginning of it, or "latest"; the history keeps no processes. A host that stands in two of them must
    read the same in both, times and attempts apart. Nothing is judged again: for that, see "fleetcheck replay".
    Exit codes are those of audit.
    """
    show = Show.take(options)
    prepare(session)
    spare(show, *runs, db)
    run = merged(runs, db)
    with Outputs(show) as outputs:
        outputs.replay(run)
        outputs.finish(run)
        return code(run, show)


def merged(paths: Sequence[str], db: Path | None = None) -> Run:
    """Read run documents, or runs of the history, and return them as one.

    Raises InputError with every problem of every file, HistoryError.
    """
    from fleetcheck.errors import InputError, Problem
    from fleetcheck.report.documents import merge, read

    named: list[tuple[str, Run]] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            named.append((path, remembered(path, db) or read(path)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return merge(named)
