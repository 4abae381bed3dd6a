"""The one exception root. What the user gave wrong and what could not be looked at are different branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class FleetcheckError(Exception):
    """Root of every error that fleetcheck raises on purpose; its text is fit for a user."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the input: where it stands, what it is, what is allowed instead."""

    source: str
    line: int | None
    message: str
    column: int | None = None

    def __str__(self) -> str:
        parts = (self.source, self.line, self.line and self.column)
        place = ":".join(str(part) for part in parts if part is not None)
        return f"{place}: {self.message}"


class InputError(FleetcheckError):
    """Bad usage or a bad inventory: every problem at once, one line each. Exit code 2."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class OutputError(FleetcheckError):
    """A report could not be written: the file is left as it was."""
