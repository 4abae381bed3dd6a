"""What a run from cron needs of this machine, checked one by one; what needs the hosts' routes is not here."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleetcheck.history.ages import moment_of, span
from fleetcheck.history.errors import HistoryError
from fleetcheck.history.past import Entry, Past
from fleetcheck.history.store import History

MARGIN = 0.8
"""How much of the whole run's limit an audit may have taken before the limit is called too short."""
RUNS = 50
BORN = datetime(2026, 1, 1, tzinfo=UTC)
"""No clock of a machine that runs this program is right when it shows an earlier time."""
AHEAD = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked. ``do`` says what mends it; None: it is well.

    ``warns``: it does not keep the audit from its work now.
    """

    name: str
    said: str
    do: str | None = None
    warns: bool = False

    @property
    def fault(self) -> bool:
        """Return whether it is to be mended before anything else."""
        return self.do is not None and not self.warns


def ssh(path: str) -> Check:
    """Return whether the ssh client is found."""
    found = shutil.which("ssh", path=path)
    if found is None:
        do = "install openssh-client, or run schedule again where ssh is found: its line then sets PATH"
        return Check("ssh", f"there is no ssh in {path}; the ssh config cannot be read as ssh reads it", do)
    return Check("ssh", f"{found}")


def history(db: Path, source: str, limit: float, now: datetime) -> Iterator[Check]:
    """Yield whether the history can be written and is sound, the clock, and the limit against earlier runs."""
    try:
        with History.open(db) as opened:
            opened.check()
            past = Past(opened)
            runs = past.runs(RUNS)
            own = past.runs(RUNS, source=source)
    except HistoryError as error:
        yield Check("history", str(error), "mend that, or give audit another file with --db")
        yield clock((), now)
        return
    yield Check("history", f"{db}: can be written, and is sound")
    yield clock(runs, now)
    yield run_limit(own, limit)


def clock(runs: Sequence[Entry], now: datetime) -> Check:
    """Return whether the clock can be right."""
    do = "set it: timedatectl set-ntp true"
    if now < BORN:
        return Check("clock", f"it shows {now:%Y-%m-%d %H:%M} UTC, before this program was written", do)
    ahead = [run for run in runs if (moment_of(run.started) or now) > now + AHEAD]
    if ahead:
        return Check("clock", f"the run {ahead[0].id} began at {ahead[0].started}, which is still to come", do)
    before = "; no run of the history began later than that" if runs else ""
    return Check("clock", f"{now:%Y-%m-%d %H:%M} UTC{before}")


def run_limit(runs: Iterable[Entry], limit: float) -> Check:
    """Return whether the whole run's limit leaves room, by how long the last runs took."""
    lengths = [
        ended - began
        for run in runs
        if run.state == "done"
        and (began := moment_of(run.started)) is not None
        and (ended := moment_of(run.finished or "")) is not None
    ]
    whole = span(timedelta(seconds=limit))
    if not lengths:
        return Check("limit", f"{whole} for the whole run; no earlier run tells whether that is enough")
    longest = max(lengths)
    last = f"longest of the last {len(lengths)} runs" if len(lengths) > 1 else "last run"
    said = f"the {last} took {span(longest)} of {whole}"
    if longest.total_seconds() < MARGIN * limit:
        return Check("limit", said)
    more = round(2 * longest.total_seconds())
    return Check("limit", said, f"give the scheduled audit more: --limit run={more}; or more --workers")
