"""What a run from cron has to say: nothing, what changed, a reminder, or that all is well and cron alive.

In: what changed since the run that was reported last, and when something was printed last. Out: why to speak.
Pure but for :func:`read` and :func:`write`, which keep that run and that time, for each inventory.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from fleetcheck.history.ages import moment_of
from fleetcheck.history.errors import told
from fleetcheck.history.store import History
from fleetcheck.judge import stamp

Reason = Literal["first", "changed", "cut", "interrupted", "reminder", "weekly"]
WEEK = timedelta(days=7)
SLACK = timedelta(minutes=30)
"""A timer's random delay must not put a reminder off by a whole night."""


@dataclass(frozen=True, slots=True)
class Notice:
    """The run (``base``) that was reported last for an inventory, and when something was printed last."""

    base: int
    printed: str


def read(history: History, source: str) -> Notice | None:
    """Return what was reported last for an inventory; None where nothing was."""
    with told(history.path):
        row = history.connection.execute("SELECT base, printed FROM notice WHERE source = ?", (source,)).fetchone()
    return None if row is None else Notice(*row)


def write(history: History, source: str, notice: Notice) -> None:
    """Note what was reported. Done when it was printed, so that a run that dies before is no news lost."""
    with history.writing():
        history.connection.execute(
            "INSERT INTO notice (source, base, printed) VALUES (?, ?, ?) "
            "ON CONFLICT (source) DO UPDATE SET base = excluded.base, printed = excluded.printed",
            (source, notice.base, notice.printed),
        )


def reason(
    last: Notice | None, now: datetime, *, changed: bool, cut: bool, complete: bool, well: bool,
    remind: timedelta | None,
) -> Reason | None:  # fmt: skip
    """Return why a run from cron should speak, None where it should be silent."""
    if last is None:
        return "first"
    if changed:
        return "changed"
    if not complete:
        return "interrupted"
    if cut:
        return "cut"
    printed = moment_of(last.printed)
    quiet = WEEK if printed is None else now - printed
    if quiet < -SLACK:
        quiet = WEEK  # the clock jumped back: to wait until it has caught up may take for ever
    if remind is not None and not well and quiet >= remind - min(SLACK, remind / 2):
        return "reminder"
    return "weekly" if quiet >= WEEK - SLACK else None


def spoken(base: int, now: datetime) -> Notice:
    """Return the notice of a run that printed something now."""
    return Notice(base, stamp(now))
