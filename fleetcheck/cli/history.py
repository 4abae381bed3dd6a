"""``fleetcheck history``: the runs that were stored, or how one host was found over time. No SSH."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.completion import complete_hosts
from fleetcheck.cli.memory import DurationType, db_option, opened
from fleetcheck.cli.options import Session
from fleetcheck.cli.output import emit

if TYPE_CHECKING:
    from fleetcheck.history.past import Entry, Past, Span
    from fleetcheck.history.store import History


@click.command()
@click.argument("host", required=False, shell_complete=complete_hosts)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(1, 1_000_000),
    default=20,
    show_default=True,
    help="How many runs, or how many changes of the host.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="What to print.",
)
@db_option
@click.option("--check", is_flag=True, help="Check the file for damage.")
@click.option("--keep", type=DurationType(), metavar="DURATION", help="Forget runs older than this, such as 90d.")
@click.pass_obj
def command(
    session: Session, /, *, host: str | None, last: int, form: str, db: Path | None, check: bool,
    keep: timedelta | None,
) -> int:  # fmt: skip
    """Show the runs that were stored, or how one host was found over time.

    Runs are named by their id, a beginning of it, "latest", or "latest~1" for the one before; "fleetcheck diff"
    and "fleetcheck show HOST --run" take the same names. A run that was cut was killed before it could be stored.

    Exit codes: 0, or 2 where there is no history, or it is damaged.
    """
    del session
    if host is not None and (check or keep):
        raise click.UsageError("--check and --keep are of the whole history; leave HOST out.")
    if check or keep:
        return tended(db, check=check, keep=keep)
    with opened(db) as history:
        document, text = of_host(history, host, last) if host is not None else of_runs(history, last)
    if form == "json":
        import json

        text = json.dumps(document, indent=2) + "\n"
    emit(text)
    return 0


def tended(db: Path | None, *, check: bool, keep: timedelta | None) -> int:
    """Check the file, forget old runs, and say what was done."""
    from fleetcheck.history.store import History, default_path

    path = db or default_path()
    with opened(path) as history:
        if check:
            history.check()
            emit(f"{path}: sound\n")
    if keep is not None:
        with History.open(path) as history:
            gone = history.prune(keep)
            emit(f"{path}: {gone} run{'' if gone == 1 else 's'} forgotten\n")
    return 0


def of_runs(history: History, last: int) -> tuple[dict[str, Any], str]:
    """Return the last runs as data and as text."""
    from tabulate import tabulate

    from fleetcheck.history.past import Past
    from fleetcheck.report.text import clean

    past = Past(history)
    runs = past.runs(last)
    resting = past.maintenance(runs)
    named = ("HOSTS", "OK", "FINDINGS", "NOT CHECKED", *(("MAINTENANCE",) if resting else ()))
    head = ("RUN", "STARTED", "STATE", *named, "BY", "INVENTORY")
    rows = [
        (
            clean(run.id), clean(run.started), run.state, *_counts(run, resting.get(run.seq, 0))[: len(named)],
            "cron" if run.cron else "hand", clean(run.inventory),
        )
        for run in runs
    ]  # fmt: skip
    text = tabulate(rows, head, tablefmt="plain", disable_numparse=True) + "\n" if rows else "No runs yet.\n"
    return {"schema": "fleetcheck/history/1", "runs": [_run(run, resting) for run in runs]}, text


def of_host(history: History, host: str, last: int) -> tuple[dict[str, Any], str]:
    """Return how a host was found, the newest first, as data and as text. Raises InputError where it never was."""
    from itertools import islice, pairwise

    from fleetcheck.history.past import Past

    past = Past(history)
    spans = list(islice(past.spans(host), last + 1))
    if not spans:
        raise _absent(host, past.hosts())
    pairs = [*pairwise(spans)][:last] if len(spans) > last else [*pairwise(spans), (spans[-1], None)]
    blocks = [(span, _changes(past, span, earlier)) for span, earlier in pairs]
    document = {
        "schema": "fleetcheck/history/1", "host": host,
        "spans": [{**_span(span), "changes": changes} for span, changes in blocks],
    }  # fmt: skip
    return document, "".join(f"{line}\n" for span, changes in blocks for line in _lines(span, changes))


def _changes(past: Past, span: Span, earlier: Span | None) -> list[str]:
    """Return what set a span apart from the looks before it, as lines."""
    from datetime import UTC, datetime

    from fleetcheck.history.ages import moment_of
    from fleetcheck.history.diff import compare, of_past
    from fleetcheck.history.text import body

    base = past.entry(earlier.last.seq) if earlier is not None else None
    entry = past.entry(span.first.seq)
    if base is None or entry is None:
        return []
    changes = compare(past, base, of_past([span.first]), past.info(entry))
    now = moment_of(span.first.started) or datetime.now(UTC)
    return [line for change in changes.changed for line in body(change, now)]


def _lines(span: Span, changes: list[str]) -> Iterator[str]:
    from fleetcheck.report.text import clean

    looks = f"{span.looks} look{'' if span.looks == 1 else 's'}"
    until = f" to {span.last.started}" if span.looks > 1 else ""
    first = clean(span.first.started) + clean(until)
    yield f"{span.first.verdict:<13} {first}  ({looks}, run {clean(span.first.run)})"
    for line in changes[1:] if span.first.verdict in ("ok", "findings") else changes:
        yield f"    {line}"


def _span(span: Span) -> dict[str, Any]:
    return {
        "verdict": span.first.verdict, "looks": span.looks, "first_run": span.first.run,
        "first": span.first.started, "last_run": span.last.run, "last": span.last.started,
    }  # fmt: skip


def _run(run: Entry, resting: dict[int, int]) -> dict[str, Any]:
    names = ("id", "started", "finished", "state", "version", "inventory", "cron", "hosts", "ok", "findings")
    counts = {"not_checked": run.not_checked, "maintenance": resting.get(run.seq, 0)}
    return {**{name: getattr(run, name) for name in names}, **counts}


def _counts(run: Entry, resting: int) -> tuple[object, ...]:
    if run.state in ("open", "cut"):
        return ("-",) * 5
    return run.hosts, run.ok, run.findings, run.not_checked - resting, resting


def _absent(host: str, names: list[str]) -> Exception:
    from difflib import get_close_matches

    from fleetcheck.errors import InputError, Problem

    near = get_close_matches(host, names, n=3, cutoff=0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return InputError([Problem(host, None, f"the history has no such host{hint}")])
