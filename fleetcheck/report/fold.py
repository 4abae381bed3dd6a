"""Hosts folded into groups of equal facts, and two hosts side by side, as diffs for a reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fleetcheck.differences import Difference, Fold
from fleetcheck.report.nodes import fold as folded
from fleetcheck.report.text import clean, paint

MARKS = ("state", "csrc_state", "verdict")
"""Facts that every record of their kind has, so that a host without them lacks the record."""
MOST = 40
"""How many differences of one group are shown unless all are asked for."""


def render(folds: Sequence[Fold], *, wide: bool, colour: bool) -> str:
    """Return the groups as text with a line end: the largest first, of the others what sets them apart."""
    if not folds:
        return "No host was checked, so there is nothing to fold.\n"
    first, *others = folds
    names = folded(first.hosts)
    if not others:
        return f"{paint('Fold', 'title', colour)}  {_count(first)} {_have(first)} the same facts: {names}\n"
    if len(first.hosts) == 1 and len(folds) > 2:
        every = folded(name for one in folds for name in one.hosts)
        return f"{paint('Fold', 'title', colour)}  all hosts differ: {every}; use fleetcheck compare A B\n"
    blocks = [
        [
            f"{paint('Fold', 'title', colour)}  {len(folds)} groups of equal hosts; - is the largest:",
            f"  {names} ({len(first.hosts)})",
        ]
    ]
    for one in others:
        title = f"{folded(one.hosts)} ({len(one.hosts)})"
        blocks.append([paint(title, "title", colour), *lines(one.differences, wide=wide, colour=colour)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def lines(differences: Iterable[Difference], *, wide: bool, colour: bool) -> list[str]:
    """Return differences as lines of a diff; unless ``wide``, what belongs together is one."""
    shown: list[str] = []
    every = list(differences) if wide else shorter(differences)
    for one in every if wide else every[:MOST]:
        key = clean(one.key, 600)
        if one.before is not None:
            shown.append(paint(f"  - {key}  {clean(one.before, 600)}", "error", colour))
        if one.after is not None:
            shown.append(paint(f"  + {key}  {clean(one.after, 600)}", "ok", colour))
    rest = len(every) - MOST
    return shown if wide or rest <= 0 else [*shown, f"  and {rest} more facts, shown by --wide"]


def shorter(differences: Iterable[Difference]) -> list[Difference]:
    """Return differences with a record that one host lacks as one, and GPUs that differ alike as one."""
    return _alike(_whole(list(differences)))


def _whole(every: list[Difference]) -> list[Difference]:
    """Join what stands below one bracket, or one part of an environment, where one side has none of it."""
    below: dict[str, list[Difference]] = {}
    for one in every:
        for prefix in _prefixes(one.key):
            below.setdefault(prefix, []).append(one)
    lacking = {
        prefix: facts
        for prefix, facts in below.items()
        if any(
            one.key == f"{prefix}.{mark}" and None in (one.before, one.after) for one in facts for mark in MARKS
        )
    }
    joined: dict[str, Difference] = {}
    for one in every:
        prefix = next((part for part in _prefixes(one.key) if part in lacking), one.key)
        if prefix in joined:
            continue
        facts = lacking.get(prefix)
        told = one if facts is None else _summed(prefix, facts)
        joined[prefix] = told
    return list(joined.values())


def _summed(prefix: str, facts: list[Difference]) -> Difference:
    words = f"{facts[0].before or facts[0].after}, and {len(facts) - 1} more facts"
    return Difference(prefix, words, None) if facts[0].after is None else Difference(prefix, None, words)


def _prefixes(key: str) -> list[str]:
    """Return the records that hold a fact, from the outermost on: ``venvs[/a]`` and ``venvs[/a].flashinfer``."""
    found: list[str] = []
    depth = 0
    for place, char in enumerate(key):
        depth += (char == "[") - (char == "]")
        if char == "." and depth == 0 and "[" in key[:place]:
            found.append(key[:place])
    return found


def _alike(every: list[Difference]) -> list[Difference]:
    """Join the GPUs of which the same fact differs in the same way."""
    joined: dict[tuple[str, str | None, str | None], list[Difference]] = {}
    for one in every:
        name = re.sub(r"^gpus\.devices\[[^\]]*\]", "gpus.devices[*]", one.key)
        joined.setdefault((name, one.before, one.after), []).append(one)
    return [
        facts[0] if len(facts) == 1 else Difference(name.replace("[*]", f"[{len(facts)} of them]"), before, after)
        for (name, before, after), facts in joined.items()
    ]


def _count(group: Fold) -> str:
    return "1 host" if len(group.hosts) == 1 else f"{len(group.hosts)} hosts"


def _have(group: Fold) -> str:
    return "has" if len(group.hosts) == 1 else "have"


def side_by_side(
    first: str,
    second: str,
    found: Sequence[Difference],
    changed: Sequence[tuple[str, Sequence[str]]],
    *,
    wide: bool,
    colour: bool,
) -> str:
    """Return what two hosts differ in: facts, then diffs of files, each with its title."""
    names = f"- {clean(first)}\n+ {clean(second)}"
    if not found and not changed:
        return f"{names}\n\nNo fact that can be compared differs.\n"
    blocks = [names]
    if found:
        blocks.append("\n".join(lines(found, wide=wide, colour=colour)))
    for title, diff in changed:
        body = [f"  {clean(line, 600)}" for line in diff]
        blocks.append("\n".join([paint(clean(title, 600), "title", colour), *body]))
    return "\n\n".join(blocks) + "\n"
