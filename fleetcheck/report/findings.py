"""The findings of a run for a reader: by rule, worst first, hosts folded, consequences under what causes them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetcheck.report.nodes import fold, wrap
from fleetcheck.report.text import clean, paint, value
from fleetcheck.rules.finding import SEVERITIES, Finding, Severity, rank

FLEET = "(fleet)"
READABLE = 100
"""Columns at which sentences break on a wider terminal."""
SHOWN = 8
"""How many different messages of one rule are told in full unless all are asked for; every host is named."""

FOLLOWING = 3
"""How many messages of what follows from a rule are told unless all are asked for."""

_Place = tuple[str | None, ...]


class Said(NamedTuple):
    """One thing a rule says, of every host of which it says it in the same words."""

    severity: Severity
    venv: str | None
    gpu: str | None
    message: str
    expected: str
    seen: str
    basis: str | None
    remedy: tuple[str, ...]


@dataclass(slots=True)
class Follows:
    """What another rule found because of this one: the hosts, and what it says of them."""

    hosts: list[str] = field(default_factory=list)
    messages: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """All that one rule found, and what follows from it."""

    rule: str
    worst: int = 0
    said: dict[Said, list[str]] = field(default_factory=dict)
    follows: dict[tuple[Severity, str], Follows] = field(default_factory=dict)
    references: dict[str, None] = field(default_factory=dict)


def groups(findings: Iterable[Finding]) -> list[Group]:
    """Return the findings that are not waived, by the rule at their root, worst first. Each is in exactly one."""
    live = [finding for finding in findings if not finding.waived]
    known: dict[_Place, Finding] = {}
    for finding in live:
        for place in _places(finding):
            known.setdefault(place, finding)
    found: dict[str, Group] = {}
    for finding in live:
        root = _root(finding, known)
        group = found.setdefault(root.rule, Group(root.rule))
        group.worst = max(group.worst, rank(finding.severity))
        host = finding.host or FLEET
        if root is finding:
            group.said.setdefault(_said(finding), []).append(host)
            if finding.reference:
                group.references[clean(finding.reference)] = None
        else:
            follows = group.follows.setdefault((finding.severity, finding.rule), Follows())
            follows.hosts.append(host)
            follows.messages[clean(finding.message, 1000)] = None
    return sorted(found.values(), key=lambda group: -group.worst)


def _places(finding: Finding) -> tuple[_Place, ...]:
    host = finding.host or FLEET
    return (host, finding.rule, finding.venv), (host, finding.rule)


def _cause(finding: Finding, known: dict[_Place, Finding]) -> Finding | None:
    """Return the finding that explains this one: of its environment or of the whole host."""
    host = finding.host or FLEET
    places: tuple[_Place, ...] = (host, finding.cause, finding.venv), (host, finding.cause, None)
    if finding.venv is None:
        places = ((host, finding.cause),)
    return next((known[place] for place in places if place in known), None)


def _root(finding: Finding, known: dict[_Place, Finding]) -> Finding:
    """Follow causes to the finding that has none. In a circle each is its own root, so that all are shown."""
    current, seen = finding, {id(finding)}
    while current.cause:
        nearer = _cause(current, known)
        if nearer is None:
            return current
        if id(nearer) in seen:
            return finding
        seen.add(id(nearer))
        current = nearer
    return current


def _said(finding: Finding) -> Said:
    return Said(
        finding.severity,
        None if finding.venv is None else clean(finding.venv, 1000),
        None if finding.gpu is None else clean(finding.gpu, 100),
        clean(finding.message, 1000),
        "" if finding.expected is None else value(finding.expected),
        "" if finding.seen is None else value(finding.seen),
        finding.basis,
        tuple(clean(step, 4000) for step in finding.remedy),
    )


def lines(group: Group, width: int, *, wide: bool, colour: bool) -> Iterator[str]:
    """Yield the lines of one group. Commands are never broken, so that they can be copied."""
    severity = SEVERITIES[group.worst]
    hosts = {host for names in group.said.values() for host in names}
    count = f"  {len(hosts)} hosts" if len(hosts) > 1 else ""
    yield f"{paint(severity.upper(), severity, colour)}  {paint(clean(group.rule), 'title', colour)}{count}"
    shown = list(group.said.items())
    rest = [] if wide else shown[SHOWN:]
    by_remedy: dict[tuple[str, ...], list[tuple[Said, list[str]]]] = {}
    for said, names in shown if wide else shown[:SHOWN]:
        by_remedy.setdefault(said.remedy, []).append((said, names))
    for remedy, items in by_remedy.items():
        for said, names in items:
            yield from _item(said, names, width, SEVERITIES[group.worst])
        shared = {name for _, names in items for name in names} if len(items) > 1 else set()
        yield from _remedy(remedy, len(shared), every=len(by_remedy) == 1)
    if rest:
        more = fold(host for _, names in rest for host in names)
        yield from _wrapped(f"and {len(rest)} more, shown by --wide:", more, width)
    for (grade, rule), follows in group.follows.items():
        yield from _wrapped(f"explains {clean(rule)} ({grade}) on", fold(follows.hosts), width)
        told = list(follows.messages)
        for message in told if wide else told[:FOLLOWING]:
            yield from sentence(message, width, "    ")
        if len(told) > FOLLOWING and not wide:
            yield f"    and {len(told) - FOLLOWING} more, shown by --wide"
    for reference in group.references:
        yield f"  see {reference}"


def _item(said: Said, names: list[str], width: int, severity: Severity) -> Iterator[str]:
    grade = "" if said.severity == severity else f"{said.severity}: "
    place = "  ".join(part for part in (said.venv, said.gpu and f"GPU {said.gpu}") if part)
    folded = wrap(fold(names), max(40, width - 4) if width else 1 << 30)
    yield from (f"  {line}" for line in folded[:-1])
    yield f"  {folded[-1]}" + (f"  {place}" if place else "")
    yield from sentence(f"{grade}{said.message}", width, "    ")
    if said.expected:
        yield f"    expected  {said.expected}"
    if said.seen:
        yield f"    seen      {said.seen}"
    if said.basis not in (None, "resolved"):
        yield f"    basis     {said.basis}"


def _remedy(steps: tuple[str, ...], shared: int, *, every: bool) -> Iterator[str]:
    """Yield the steps; those that several things above share are outdented and say for how many hosts they are."""
    whose = ""
    if shared > 1:
        whose = f" for all {shared} hosts" if every else f" for these {shared} hosts"
    indent = "  " if shared else "    "
    if steps:
        yield f"{indent}remedy{whose} ({where(steps)})"
        yield from (f"{indent}  {number}. {step}" for number, step in enumerate(steps, 1))


def where(steps: Iterable[str]) -> str:
    """Return in words where the steps are taken: on the host, or where fleetcheck runs."""
    here = {bool(_HERE.search(step)) for step in steps}
    if here == {True}:
        return "here, in the inventory"
    return "on the host" if here == {False} else "on the host; the inventory is here"


_HERE = re.compile(r"\binventory\b|^fleetcheck |^ssh(-keygen)? |--workers|--accept-new", re.IGNORECASE)


def _wrapped(lead: str, folded: str, width: int) -> Iterator[str]:
    room = max(40, width - len(lead) - 3) if width else 1 << 30
    first, *others = wrap(folded, room) or [""]
    yield f"  {lead} {first}"
    yield from (f"    {line}" for line in others)


def sentence(text: str, width: int, indent: str) -> Iterator[str]:
    """Yield a message broken at spaces to at most ``width`` columns, 0: no limit. A longer word stays whole."""
    if not width:
        yield indent + text
        return
    yield from textwrap.wrap(
        text, max(40, min(width, READABLE)), initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def waived(findings: Iterable[Finding], width: int) -> Iterator[str]:
    """Yield a line for each accepted rule and reason, hosts folded."""
    accepted: dict[tuple[str, str, str], list[str]] = {}
    for finding in findings:
        if finding.waived:
            key = (finding.rule, finding.waived.reason, finding.waived.until)
            accepted.setdefault(key, []).append(finding.host or FLEET)
    for (rule, reason, until), names in accepted.items():
        yield from _wrapped(f"{clean(rule)}, until {clean(until)}, {clean(reason)}:", fold(names), width)
