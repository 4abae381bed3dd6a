"""Text from a host, made fit for a terminal: nothing in it acts, and it takes the room it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from wcwidth import wcswidth

ELLIPSIS = "…"
Role = Literal["critical", "error", "warning", "info", "ok", "title", "dim"]

_SGR: dict[Role, str] = {
    "critical": "1;35",
    "error": "31",
    "warning": "33",
    "info": "36",
    "ok": "32",
    "title": "1",
    "dim": "2",
}
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Marks stack on one character without end and paint over the lines above.
_STACKING = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_MARKS = re.compile(f"({_STACKING}{{2}}){_STACKING}+")


def clean(text: str, limit: int = 400) -> str:
    """Return ``text`` on one line, at most about ``limit`` characters of it, with nothing in it that acts.

    Control characters (C0, C1, DEL), bidirectional overrides, other invisible formatting, line separators and
    lone surrogates become visible escapes such as ``\\x1b`` and ``\\u202e``.
    """
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(char if char.isprintable() else _escaped(char) for char in cut)
    if not cut.isascii():
        cut = _MARKS.sub(r"\1", cut)
    return cut if len(text) <= limit else cut + ELLIPSIS


def _escaped(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cells(text: str) -> int:
    """Return how many columns of a terminal the clean ``text`` takes (East Asian wide characters take two)."""
    return len(text) if text.isascii() else max(0, wcswidth(text))


def tail(text: str, room: int) -> str:
    """Return the end of a clean path in ``room`` columns, from a ``/`` where one is near: ``…/ml-env``."""
    if cells(text) <= room:
        return text
    kept = text[-max(0, room - 1) :] if room > 1 else ""
    while cells(kept) > room - 1 and kept:
        kept = kept[1:]
    slash = kept.find("/")
    if 0 <= slash < len(kept) - 1:
        kept = kept[slash:]
    return ELLIPSIS + kept


def value(thing: Any, limit: int = 300) -> str:
    """Return an expected or seen value for a person: text as it stands, all else as compact JSON."""
    if thing is None:
        return "nothing"
    if isinstance(thing, str):
        return clean(thing, limit)
    if isinstance(thing, list | tuple) and all(isinstance(item, str | int) for item in thing):
        return clean(", ".join(map(str, thing[:limit])), limit) or "none"
    try:
        return clean(json.dumps(thing, ensure_ascii=False, default=str), limit)
    except (ValueError, RecursionError):
        return clean(repr(type(thing)), limit)


def words(thing: Any, limit: int = 300) -> str:
    """Return a value as :func:`value` does, but a flat mapping without marks: ``gate: 9, 10; guards: 0``."""
    if isinstance(thing, Mapping) and thing and not any(isinstance(item, Mapping) for item in thing.values()):
        return clean("; ".join(f"{key}: {value(item, limit)}" for key, item in list(thing.items())[:limit]), limit)
    return value(thing, limit)


def paint(text: str, role: Role, colour: bool) -> str:
    """Return ``text`` in the colour of its role, or as it is."""
    return f"\x1b[{_SGR[role]}m{text}\x1b[0m" if colour and text else text
