"""The text of the files that decide, out of evidence: what two hosts have in them, as a diff.

In: the evidence of two hosts. Out: unified diffs of the files that somebody changed, or that no wheel vouches for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff

from fleetcheck.agent.evidence import Evidence
from fleetcheck.facts import shape

MOST = 400
"""How many lines of one diff are given."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """One file as a host has it. ``text`` is what the agent sent of it, None where it sent none."""

    sha256: str | None
    record: str
    text: str | None


def key_files(look: Evidence) -> dict[tuple[str, str], KeyFile]:
    """Return the files of every environment by its path and ``package/name``."""
    found: dict[tuple[str, str], KeyFile] = {}
    for part, value in look.parts.items():
        if not part.startswith("venv/"):
            continue
        own = shape.mapping(value)
        venv = shape.name(own.get("path"), 1000)
        for package, told in shape.mapping(own.get("packages")).items():
            for item in shape.items(shape.mapping(told).get("files"), 500):
                file = shape.mapping(item)
                name = shape.name(file.get("name"), 1000)
                if venv and name:
                    text = file.get("text")
                    found[venv, f"{package}/{name}"] = KeyFile(
                        shape.name(file.get("sha256"), 64),
                        shape.name(file.get("record"), 20) or "no-record",
                        text if isinstance(text, str) else None,
                    )
    return found


def diffs(before: Evidence, after: Evidence) -> Iterator[tuple[str, list[str]]]:
    """Yield a title and the lines of a diff for each file that differs and is not the release's own on both hosts.

    The files of two releases differ in nearly every line, which their versions say in one.
    """
    first, second = key_files(before), key_files(after)
    for place in sorted(first.keys() & second.keys()):
        one, other = first[place], second[place]
        if one.sha256 == other.sha256 or one.record == other.record == "match":
            continue
        title = f"{place[1]} in {place[0]}"
        if one.text is None or other.text is None:
            yield title, ["its text is not part of the evidence of both hosts"]
            continue
        lines = list(
            unified_diff(one.text.splitlines(), other.text.splitlines(), before.host, after.host, lineterm="")
        )
        more = [f"and {len(lines) - MOST} more lines"] if len(lines) > MOST else []
        yield title, lines[:MOST] + more or ["what the agent sent of it is equal; the rest differs"]
