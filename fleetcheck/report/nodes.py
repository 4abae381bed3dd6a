"""Host names, folded for a reader, and broken into lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fleetcheck.folding import fold as folded
from fleetcheck.report.text import cells, clean


def fold(names: Iterable[str]) -> str:
    """Return the names as one node set, each exactly once, inert: they may come from a file of anyone's."""
    return folded(map(clean, names))


def wrap(folded: str, room: int, first: int | None = None) -> list[str]:
    """Break a node set after its commas into lines of at most ``room`` columns, the first of ``first``.

    What follows a bracket has a line of its own where it must; a longer piece, as one name is, stays whole.
    """
    lines: list[str] = []
    line = ""
    for piece in _pieces(folded, room):
        if line and cells(line) + cells(piece) > (room if lines or first is None else first):
            lines.append(line)
            line = ""
        line += piece
    return [*lines, line] if line or not lines else lines


def _pieces(folded: str, room: int) -> Iterator[str]:
    for piece in re.findall(r"[^,]+,?|,", folded):
        yield from re.split(r"(?<=\])(?=[^,])", piece) if cells(piece) > room else (piece,)
