"""Words for error lines: what was given, safe to print and short, and what was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

MAX_SHOWN = 60
_PASSWORD = re.compile(r"(?<=[^\s:@/,]):\S+@")
"""What stands before the last ``@`` of ``user:password@host``: no message repeats it."""
NO_SECRETS = "an inventory holds no secrets; use a key file or the ssh agent, and sudo without a password"

_SECRET = re.compile(r"\bsshpass\b[^|;&]*\s-p|[^\s,:@/]+:[^\s,@/]+@|SSHPASS=")


def holds_password(text: str) -> bool:
    """Return whether ``text`` holds a password, as ``sshpass -p`` or ``user:password@host``."""
    return bool(_SECRET.search(text))


def shown(text: str, most: int = MAX_SHOWN) -> str:
    """Return ``text`` on one line, at most ``most`` characters of it, without control characters and passwords."""
    text = _PASSWORD.sub(":***@", text)
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)


def nearest(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the words of ``known`` that ``word`` was probably meant to be, the most likely first.

    A host is often called by the first label of its name: those that share it come before all others.
    """
    by_lower: dict[str, str] = {}
    for one in known:
        by_lower.setdefault(one.lower(), one)
    word = word.lower()[:100]
    label = word.partition(".")[0]
    same = [one for one in by_lower if label and one.partition(".")[0] == label]
    near = [*same[:most], *difflib.get_close_matches(word, by_lower, n=most, cutoff=0.6)]
    return [by_lower[one] for one in dict.fromkeys(near)][:most]


def meant(word: str, known: Collection[str]) -> str:
    """Return ``; did you mean a, b?`` for the nearest words, or nothing where none is near."""
    near = nearest(word, known)
    return f"; did you mean {', '.join(near)}?" if near else ""
