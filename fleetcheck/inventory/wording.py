"""Words for error lines: what was given, safe to print and short, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

MAX_SHOWN = 60


def shown(text: str) -> str:
    """Return ``text`` on one line, without control characters, at most ``MAX_SHOWN`` characters of it."""
    cut = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)


def nearest(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the words of ``known`` that ``word`` was probably meant to be, the most likely first."""
    by_lower: dict[str, str] = {}
    for one in known:
        by_lower.setdefault(one.lower(), one)
    return [by_lower[one] for one in difflib.get_close_matches(word.lower()[:100], by_lower, n=most, cutoff=0.6)]


def meant(word: str, known: Collection[str]) -> str:
    """Return ``; did you mean a, b?`` for the nearest words, or nothing where none is near."""
    near = nearest(word, known)
    return f"; did you mean {', '.join(near)}?" if near else ""
