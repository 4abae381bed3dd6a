"""Times for a reader: ``6 h ago``, and durations as a user writes them: ``90d``."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_STEPS = ((86400 * 2, 86400, "d"), (3600 * 2, 3600, "h"), (120, 60, "min"), (0, 1, "s"))


def parse(text: str) -> timedelta:
    """Return a duration such as ``90d``, ``24h``, ``30m``. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,6})([smhdw])", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration such as 90d, 24h or 30m")
    if int(found[1]) == 0:
        raise ValueError(f"{text!r} is too short: the shortest duration is 1s")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def span(length: timedelta) -> str:
    """Return a length of time in its largest fitting unit."""
    seconds = int(length.total_seconds())
    _, unit, name = next(step for step in _STEPS if seconds >= step[0])
    return f"{seconds // unit} {name}"


def moment_of(text: str) -> datetime | None:
    """Return the time that a text (RFC 3339, as we write it) is; None where it is none, as in a damaged row."""
    try:
        made = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None
    return made if made.tzinfo is not None else None


def ago(moment: str, now: datetime) -> str:
    """Return how long ago ``moment`` (RFC 3339) was; where it is to come, that the clock jumped back."""
    then = moment_of(moment)
    if then is None:
        return f"at {moment[:40]!a}, which is no time: its row in the history is damaged"
    length = now - then
    if length < timedelta(0):
        return f"at {moment}, which is to come: the clock jumped back"
    return f"{span(length)} ago"
