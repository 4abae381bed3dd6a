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
    """Break a node set into lines of at most ``room`` columns, the first of ``first``.

    Each line is a node set by itself. A piece that is longer than a line is taken apart at a comma in its
    brackets, and a pair of numbers at its hyphen: ``gpu[01,03].lab`` becomes ``gpu01.lab,gpu03.lab``. What has
    neither, as one name, stays whole.
    """
    least = room if first is None else first
    lines: list[str] = []
    line = ""
    for piece in _pieces(folded, room, least):
        if line and cells(line) + cells(piece) > (room if lines else least):
            lines.append(line)
            line = ""
        line += piece
    return [*lines, line] if line or not lines else lines


_PIECE = re.compile(r"(?:\[[0-9,-]+\]|[^,])+,?|,")
_BRACKET = re.compile(r"\[([0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*)\]")
_PAIR = re.compile(r"([0-9]+)-([0-9]+)")


def _pieces(folded: str, room: int, first: int) -> Iterator[str]:
    """Yield the node sets that lie between commas, each with its comma; those that are too long taken apart."""
    for piece in _PIECE.findall(folded):
        yield from _parts(piece, room, first) if cells(piece) > first else (piece,)
        first = room


def _parts(piece: str, room: int, first: int) -> Iterator[str]:
    """Yield one node set as several of at most ``room`` columns, the first of ``first``."""
    brackets = [found for found in _BRACKET.finditer(piece) if len(_numbers(found[1])) > 1]
    if not brackets:
        yield piece
        return
    found = max(brackets, key=lambda one: len(one[1]))
    before, after = piece[: found.start()], piece[found.end() :].removesuffix(",")
    around = cells(before + after)
    taken: list[str] = []
    parts: list[list[str]] = [taken]
    for number in _numbers(found[1]):
        # Around the numbers there are two brackets, and a comma after them.
        limit = room if len(parts) > 1 else first
        if taken and around + 3 + len(",".join((*taken, number))) > limit:
            taken = []
            parts.append(taken)
        taken.append(number)
    last = "," if piece.endswith(",") else ""
    for place, taken in enumerate(parts):
        end = "," if place < len(parts) - 1 else last
        inside = ",".join(taken)
        part = f"{before}{inside if inside.isdigit() else f'[{inside}]'}{after}{end}"
        # A second number in brackets may still be too long.
        yield from _parts(part, room, room) if len(parts) > 1 and cells(part) > room else (part,)


def _numbers(inside: str) -> list[str]:
    """Return what stands between the commas of a bracket, of two numbers in a row each by itself."""
    numbers: list[str] = []
    for item in inside.split(","):
        pair = _PAIR.fullmatch(item)
        numbers += pair.groups() if pair and int(pair[2]) - int(pair[1]) == 1 else (item,)
    return numbers
