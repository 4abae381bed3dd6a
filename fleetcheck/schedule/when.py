"""Times of cron, as crontab(5) has them: whether cron would take one, and whether it would ever come.

In: what stands before the command of a crontab's line. Out: a sentence on what is wrong with it, or nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

EVERY = ("hourly", "daily", "midnight", "weekly", "monthly", "yearly", "annually", "reboot")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = re.compile(r"(?:\*|([0-9]{1,9}|[a-z]+)(?:-([0-9]{1,9}|[a-z]+))?)(/[0-9]{1,9})?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five; ``names`` stand for the numbers from ``first`` on."""

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """What may stand in it."""
        names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.first} to {self.last}{names}, ranges, lists, and steps such as */2"

    def number(self, text: str) -> int | None:
        """Return the number that a text means; None where it is out of the field."""
        if not text.isdecimal():
            return self.first + self.names.index(text.lower()) if text.lower() in self.names else None
        return int(text) if self.first <= int(text) <= self.last else None

    def numbers(self, text: str) -> set[int] | None:
        """Return the numbers that a field means; None where cron would not take it, or run it never."""
        found: set[int] = set()
        for part in text.split(","):
            match = _PART.fullmatch(part)
            if match is None:
                return None
            low, high = self.first, self.last
            if match[1] is not None:
                given = self.number(match[1]), self.number(match[2] or match[1])
                if given[0] is None or given[1] is None or given[0] > given[1]:
                    return None
                low, high = given[0], given[1]
            step = int((match[3] or "/1")[1:])
            if step == 0 or (match[3] and match[1] is not None and match[2] is None):
                return None  # cron takes a step of a range or of * alone
            found |= set(range(low, high + 1, step))
        return found


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of the month", 1, 31),
    Field("month", 1, 12, _MONTHS),
    Field("day of the week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)


def wrong(when: str) -> str:
    """Return why cron would not run at a time, nothing where it would."""
    if when.startswith("@"):
        return "" if when[1:] in EVERY else f"of these there are @{', @'.join(EVERY)}"
    texts = re.split(r"[ \t]+", when)
    if len(texts) != len(FIELDS) or not all(texts):
        return "it has five fields such as '17 3 * * *', or is @daily"
    meant = []
    for field, text in zip(FIELDS, texts, strict=True):
        numbers = field.numbers(text)
        if numbers is None:
            return f"{text!r} is no {field.name}; allowed: {field.allowed}"
        meant.append(numbers)
    # Where both days are restricted, either is enough.
    if texts[4].startswith("*") and min(meant[2]) > max(_DAYS[month - 1] for month in meant[3]):
        return "that day never comes"
    return ""
