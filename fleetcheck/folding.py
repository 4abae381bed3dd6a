"""Names folded into one node set, ``gpu[01-16].lab``, in time linear in their number.

In: names. Out: the text that :func:`fleetcheck.inventory.nodes.expand` takes apart again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ClusterShell.RangeSet import RangeSet

_DIGITS = re.compile(r"(\d+)")
# int() of longer digits costs more than it tells, and no host is numbered so.
_MAX_DIGITS = 15

Parts = tuple[str, ...]


def fold(names: Iterable[str]) -> str:
    """Return the names as one node set, each exactly once, in the order in which they first appear.

    Names fold along the number that differs most, and what then holds the same along one more; ClusterShell's own
    folding along several at once takes half a minute for 3,000 addresses.
    """
    shapes: dict[tuple[int, Parts], list[Parts]] = {}
    for name in dict.fromkeys(names):
        parts = tuple(_DIGITS.split(name))
        shapes.setdefault((len(parts), parts[::2]), []).append(parts)
    return ",".join(piece for members in shapes.values() for piece in _folded(members))


def _folded(members: list[Parts]) -> list[str]:
    axis = _axis(members)
    if axis is None:
        return ["".join(parts) for parts in members]
    lines = _along(members, axis)
    # Racks that hold the same are one piece: rack[01-40]-gpu[1-8].
    others = (_along(lines, place) for place in _places(lines) if place != axis)
    return ["".join(parts) for parts in min((lines, *others), key=len)]


def _along(members: list[Parts], axis: int) -> list[Parts]:
    """Return the members that differ in one place alone as one, with all that stand there in brackets."""
    lines: dict[tuple[Parts, Parts], list[str]] = {}
    for parts in members:
        lines.setdefault((parts[:axis], parts[axis + 1 :]), []).append(parts[axis])
    return [
        (*before, f"[{RangeSet.fromlist(numbers)}]" if len(numbers) > 1 else numbers[0], *after)
        for (before, after), numbers in lines.items()
    ]


def _axis(members: list[Parts]) -> int | None:
    """Return the position of the number in which the names differ most, the last of equals."""
    places = _places(members)
    if len(members) == 1 or not places:
        return None
    return max(places, key=lambda place: (len({parts[place] for parts in members}), place))


def _places(members: list[Parts]) -> list[int]:
    """Return the positions of the numbers along which names can be folded."""
    return [
        place
        for place in range(1, len(members[0]), 2)
        if all(len(parts[place]) <= _MAX_DIGITS and parts[place].isascii() for parts in members)
    ]
