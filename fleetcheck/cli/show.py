"""``fleetcheck show``: all that is known of one host, from a run that is over or by a look at it now."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.completion import complete_hosts, complete_runs
from fleetcheck.cli.gather import is_evidence, replayed, run_option
from fleetcheck.cli.inventory import chosen, inventory_options
from fleetcheck.cli.memory import NOT_STORED, aside, db_option, is_document, opened
from fleetcheck.cli.options import Session, Show, colour_option, coloured, fail_on_option
from fleetcheck.cli.output import emit, is_terminal, prepare, table_width
from fleetcheck.cli.reaching import reach_options, settings
from fleetcheck.errors import InputError, Problem

if TYPE_CHECKING:
    from fleetcheck.run import Run


@click.command()
@click.argument("host", shell_complete=complete_hosts)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@inventory_options
@click.option(
    "--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True,
    help="What to print. json is a run of this one host.",
)  # fmt: skip
@colour_option("Colour the text.")
@fail_on_option("error", " For a look now.")
@run_option
@db_option
@reach_options
@click.pass_obj
def command(
    session: Session,
    /,
    *,
    host: str,
    runs: tuple[str, ...],
    inventory: str | None,
    execute: bool,
    form: str,
    stored: str | None,
    db: Path | None,
    **options: Any,
) -> int:
    """Show all that is known of one host, and what was not examined.

    With RUN or --run, a file that "--format json" or "--format jsonl" wrote (- is standard input) or a run of the
    history, nothing is contacted; --run takes a file of evidence too. Where the latest run was of other hosts,
    "latest" means the latest of this host. Without both, it is looked at now. Exit codes are those of audit, for
    this host alone.
    """
    import sys

    from fleetcheck.run import exit_code

    if runs and inventory is not None:
        raise click.UsageError("RUN and --inventory are two sources; give one.")
    if stored is not None and (runs or inventory is not None):
        raise click.UsageError("--run takes the host from a run; give no other source.")
    if db is not None and stored is None and not runs:
        raise click.UsageError("--db belongs to --run, and to RUN.")
    prepare(session)
    if stored is not None:
        run = kept(host, stored, db)
    else:
        run = recorded(host, runs, db) if runs else looked_at(session, host, inventory, execute, options)
    if form == "json":
        from fleetcheck.report import json

        emit(json.pieces(run))
    else:
        from fleetcheck.report import host as page

        emit(page.render(run, width=table_width(), colour=coloured(options["colour"], is_terminal(sys.stdout))))
    return exit_code(run)


def kept(host: str, stored: str, db: Path | None) -> Run:
    """Return the run of this one host from a file, of evidence too, or the history. Raises InputError."""
    if is_evidence(stored):
        return _only(replayed(stored, {})[0], host)
    return recorded(host, (stored,), db) if is_document(stored, db) else remembered(host, stored, db)


def recorded(host: str, paths: Sequence[str], db: Path | None) -> Run:
    """Return the run of this one host from files or the history. Raises InputError where it is in none of them."""
    from fleetcheck.cli.report import merged
    from fleetcheck.history.past import LATEST

    if tuple(paths) == (LATEST,) and not is_document(LATEST, db):
        return remembered(host, LATEST, db)
    return _only(merged(paths, db), host)


def _only(run: Run, host: str) -> Run:
    from fleetcheck.report.documents import narrowed

    try:
        return narrowed(run, host)
    except KeyError:
        raise _absent(host, [item.name for item in run.hosts]) from None


def remembered(host: str, stored: str, db: Path | None) -> Run:
    """Return the run of this one host from the history; the latest that it was part of, where that is asked for.

    Raises InputError where it is not in that run, and says which had it last.
    """
    from fleetcheck.history.past import LATEST, Past

    before = ""
    with opened(db) as history:
        past = Past(history)
        entry = past.find(stored)
        looks = past.looks(entry.seq)
        look = next((one for one in looks if one.host == host), None)
        last = past.last_look(host, past.find(LATEST).seq) if look is None else None
        if last is not None:
            own = past.entry(last.seq)
            if stored != LATEST or own is None:
                raise _absent(host, [], f"; it was looked at last in {last.run}, begun {last.started}")
            before, entry, look = f"{host} was not part of the latest run, {entry.id}; ", own, last
        if look is None:
            raise _absent(host, [one.host for one in looks])
        aside(f"{before}{entry.id}, {entry.started}: {NOT_STORED}")
        return past.one(entry, look)


def _absent(host: str, names: Sequence[str], more: str = "") -> InputError:
    from difflib import get_close_matches

    near = get_close_matches(host, names, n=3, cutoff=0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else more
    return InputError([Problem(host, None, f"the run has no such host{hint}")])


def looked_at(session: Session, host: str, inventory: str | None, execute: bool, options: dict[str, Any]) -> Run:
    """Look at one host of an inventory now. Raises InputError where the name selects none or several."""
    from fleetcheck.cli.audit import watched
    from fleetcheck.judge import Policy

    try:
        taken = chosen(inventory, [host], execute=execute, reached=True)
    except InputError as error:
        if inventory is not None or any("no inventory" not in one.message for one in error.problems):
            raise
        (one,) = error.problems
        hint = f"; as it was stored: fleetcheck show {shlex.quote(host)} --run latest"
        raise InputError([Problem(one.source, one.line, one.message + hint)]) from None
    if len(taken.targets) != 1:
        raise InputError([Problem(host, None, f"selects {len(taken.targets)} hosts; show is for one")])
    policy = Policy.of(taken.inventory, options["fail_on"])
    silent = Show("table", (), wide=False, quiet=True, colour="never")
    source = taken.inventory.source
    return watched(session, silent, taken.targets, source=source, policy=policy, settings=settings(options))
