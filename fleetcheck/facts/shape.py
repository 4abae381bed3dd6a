"""Typed access to what a host sent. Nothing here raises: a value of the wrong shape is an absent value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from fleetcheck.facts.redact import redacted

TEXT_LIMIT = 4096
SOURCE_LIMIT = 64 << 10
LIST_LIMIT = 1024
FEW = 200
"""Characters of a text whose line is remembered."""
_EMPTY: Mapping[str, Any] = {}


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one."""
    return value if isinstance(value, dict) else _EMPTY


def items(value: object, limit: int = LIST_LIMIT) -> tuple[Any, ...]:
    """Return the first ``limit`` elements of a JSON array, or none."""
    return tuple(value[:limit]) if isinstance(value, list | tuple) else ()


def text(value: object, limit: int = TEXT_LIMIT) -> str | None:
    """Return a text of at most ``limit`` characters that can be encoded, or None. An empty text is a text."""
    if not isinstance(value, str):
        return None
    cut = value[:limit]
    # A lone surrogate is valid in JSON and in Python, and cannot be written in UTF-8.
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode("utf-8")


def name(value: object, limit: int = TEXT_LIMIT) -> str | None:
    """Return a text without blanks around it, or None where nothing is left."""
    found = value if type(value) is str and len(value) <= limit and value.isascii() else text(value, limit)
    return (found.strip() or None) if found is not None else None


def source(value: object) -> str | None:
    """Return a text whole, or None where it is too large to be parsed."""
    return text(value, SOURCE_LIMIT) if isinstance(value, str) and len(value) <= SOURCE_LIMIT else None


def texts(value: object, limit: int = LIST_LIMIT) -> tuple[str, ...]:
    """Return the texts of a JSON array; elements of other types are left out."""
    return tuple(found for item in items(value, limit) if (found := text(item)) is not None)


def integer(value: object, low: int = 0, high: int = 1 << 53) -> int | None:
    """Return a whole number between ``low`` and ``high``, or None. True is not a number."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if low <= value <= high else None


def number(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def flag(value: object) -> bool | None:
    """Return a truth value, or None."""
    return value if isinstance(value, bool) else None


def line(value: object, limit: int = 300) -> str | None:
    """Return a text folded to one line of at most ``limit`` characters, or None where nothing is left.

    It is for people, so secrets are taken out, before the fold: a quoted value may hold blanks.
    """
    found = text(value, limit * 8)
    if found is None:
        return None
    return _line(found, limit) if len(found) <= FEW else _line.__wrapped__(found, limit)


@lru_cache(maxsize=4096)
def _line(found: str, limit: int) -> str | None:
    """Return the line of a text. Of the short texts of a fleet most are equal."""
    folded = " ".join(redacted(found).split())
    return (folded if len(folded) <= limit else folded[: limit - 1] + "…") or None


def unique(values: Iterable[str | None]) -> tuple[str, ...]:
    """Return the texts without repetitions, in the order of their first appearance."""
    return tuple(dict.fromkeys(value for value in values if value))
