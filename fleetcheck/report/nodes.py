"""Host names, folded for a reader, and broken into lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fleetcheck.folding import fold as folded
from fleetcheck.report.text import cells, clean


def fold(names: Iterable[str]) -> str:
    """Return the names as one node set, each exactly once, inert: they may come from a file of anyone's."""
    return folded(map(clean, names))


def wrap(folded: str, room: int) -> list[str]:
    """Break a node set after its commas into lines of at most ``room`` columns; a longer piece stays whole."""
    lines: list[str] = []
    line = ""
    for piece in re.findall(r"[^,]*,?", folded):
        if line and cells(line) + cells(piece) > room:
            lines.append(line)
            line = ""
        line += piece
    return [*lines, line] if line or not lines else lines
