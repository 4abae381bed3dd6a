"""The findings of a run for a reader: by rule, worst first, hosts folded, consequences under what causes them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetcheck.report.nodes import fold, wrap
from fleetcheck.report.steps import step
from fleetcheck.report.text import cells, clean, paint, value, words
from fleetcheck.rules.finding import SEVERITIES, Finding, Severity, rank, weight

FLEET = "(fleet)"
_PLACE = re.compile(r"\bGPU (?:\d|[0-9A-Fa-f]+:)")
OUTLIER = "fleet-outlier"
APART = "fleetcheck audit all -i INVENTORY --fold  # what sets these hosts apart"
READABLE = 100
"""Columns at which sentences break on a wider terminal."""
SHOWN = 8
"""How many different messages of one rule are told in full unless all are asked for; every host is named."""
FOLLOWING = 3
"""How many messages of what follows from a rule are told unless all are asked for."""
_LEAD = 20
"""Columns of words that may stand before a command on its line, as ``Or:`` does."""

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
    """Return the findings that are not waived, by the rule at their root, worst first. Each is in exactly one.

    Of the same severity, those come first whose rule costs most.
    """
    found: dict[str, Group] = {}
    pairs = list(rooted(findings))
    joined = _joined([finding for finding, _ in pairs])
    for finding, root in pairs:
        group = found.setdefault(root.rule, Group(root.rule))
        group.worst = max(group.worst, rank(finding.severity))
        host = finding.host or FLEET
        if root is finding:
            group.said.setdefault(joined.get(id(finding)) or _said(finding), []).append(host)
            if finding.reference:
                group.references[clean(finding.reference)] = None
        else:
            follows = group.follows.setdefault((finding.severity, finding.rule), Follows())
            follows.hosts.append(host)
            follows.messages[clean(finding.message, 1000)] = None
    return sorted(found.values(), key=lambda group: (-group.worst, weight(group.rule)))


def rooted(findings: Iterable[Finding]) -> Iterator[tuple[Finding, Finding]]:
    """Yield each finding that is not waived with the one that explains it at last, which may be itself."""
    live = [finding for finding in findings if not finding.waived]
    known: dict[_Place, Finding] = {}
    for finding in live:
        for place in _places(finding):
            known.setdefault(place, finding)
    for finding in live:
        yield finding, _root(finding, known)


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
        "" if finding.expected is None else words(finding.expected),
        "" if finding.seen is None else words(finding.seen),
        finding.basis,
        tuple(clean(step, 4000) for step in finding.remedy),
    )


def _joined(findings: Sequence[Finding]) -> dict[int, Said]:
    """Return what is said of outliers of several groups that differ alike, by the identity of each finding."""
    alike: dict[tuple[Severity, str | None, str, str], list[Finding]] = {}
    for one in findings:
        if one.rule == OUTLIER and isinstance(one.expected, Mapping) and isinstance(one.seen, Mapping):
            key = one.severity, one.venv, words(one.expected, 4000), words(one.seen, 4000)
            alike.setdefault(key, []).append(one)
    joined: dict[int, Said] = {}
    for found in alike.values():
        if len({one.message for one in found}) > 1:
            first = found[0]
            said = _said(first)._replace(message=_unlike(first), expected="", seen="")
            steps = [one for one in said.remedy if all(one in map(clean, other.remedy) for other in found)]
            said = said._replace(remedy=(APART, *steps))
            joined |= dict.fromkeys(map(id, found), said)
    return joined | _placed(findings)


def _placed(findings: Sequence[Finding]) -> dict[int, Said]:
    """Return what is said in the same words of one GPU a host, where they tell its place, as a uuid does not."""
    alike: dict[Said, list[Finding]] = {}
    for one in findings:
        if one.gpu is not None and _PLACE.search(one.message):
            alike.setdefault(_said(one)._replace(gpu=None), []).append(one)
    placed: dict[int, Said] = {}
    for said, found in alike.items():
        if len({one.host for one in found}) == len(found) and len({one.gpu for one in found}) > 1:
            placed |= dict.fromkeys(map(id, found), said)
    return placed


def _unlike(finding: Finding) -> str:
    names = list(finding.seen)
    told = "; ".join(
        f"{name} is {value(finding.seen[name])}, not {value(finding.expected.get(name))}" for name in names[:3]
    )
    more = f"; and {len(names) - 3} more facts" if len(names) > 3 else ""
    return clean(f"Unlike most hosts of their groups: {told}{more}.", 1000)


def lines(group: Group, width: int, *, wide: bool, colour: bool) -> Iterator[str]:
    """Yield the lines of one group. Commands are never broken, so that they can be copied."""
    severity = SEVERITIES[group.worst]
    hosts = {host for names in group.said.values() for host in names}
    count = f"  {len(hosts)} hosts" if len(hosts) > 1 else ""
    yield f"{paint(severity.upper(), severity, colour)}  {paint(clean(group.rule), 'title', colour)}{count}"
    shown = list(group.said.items())
    rest = [] if wide else shown[SHOWN:]
    by_remedy: dict[tuple[str, ...], list[tuple[Said, list[str]]]] = {}
    before: list[str] = []
    for said, names in shown if wide else shown[:SHOWN]:
        by_remedy.setdefault(said.remedy, []).append((said, names))
    for remedy, items in by_remedy.items():
        for said, names in items:
            again = len(names) > 1 and names == before
            yield from _item(said, names, width, SEVERITIES[group.worst], again=again)
            before = names
        shared = {name for _, names in items for name in names} if len(items) > 1 else set()
        yield from _remedy(remedy, len(shared), width, every=len(by_remedy) == 1)
    if rest:
        more = fold(host for _, names in rest for host in names)
        yield from wrapped(f"and {len(rest)} more, shown by --wide:", more, width)
    for (grade, rule), follows in group.follows.items():
        same = len(hosts) > 1 and set(follows.hosts) == hosts
        places = f"the same {len(hosts)} hosts" if same else fold(follows.hosts)
        yield from wrapped(f"explains {clean(rule)} ({grade}) on", places, width)
        told = list(follows.messages)
        for message in told if wide else told[:FOLLOWING]:
            yield from sentence(message, width, "    ")
        if len(told) > FOLLOWING and not wide:
            yield f"    and {len(told) - FOLLOWING} more, shown by --wide"
    for reference in group.references:
        yield f"  see {reference}"


def _item(said: Said, names: list[str], width: int, severity: Severity, *, again: bool) -> Iterator[str]:
    grade = "" if said.severity == severity else f"{said.severity}: "
    place = "  ".join(part for part in (said.venv, said.gpu and f"GPU {said.gpu}") if part)
    told = f"the same {len(names)} hosts" if again else fold(names)
    folded = wrap(told, max(40, width - 4) if width else 1 << 30)
    if place and not (width and cells(folded[-1]) + cells(place) + 4 > width):
        folded[-1] += f"  {place}"
        place = ""
    yield from (f"  {line}" for line in [*folded, place] if line)
    yield from sentence(f"{grade}{said.message}", width, "    ")
    if said.expected:
        yield f"    expected  {said.expected}"
    if said.seen:
        yield f"    seen      {said.seen}"
    if said.basis not in (None, "resolved"):
        yield f"    basis     {said.basis}"


def _remedy(steps: tuple[str, ...], shared: int, width: int, *, every: bool) -> Iterator[str]:
    """Yield the steps; those that several things above share are outdented and say for how many hosts they are."""
    whose = ""
    if shared > 1:
        whose = f" for all {shared} hosts" if every else f" for these {shared} hosts"
    indent = "  " if shared else "    "
    if steps:
        yield f"{indent}remedy{whose} ({where(steps)})"
    for number, text in enumerate(steps, 1):
        yield from _step(text, f"{indent}  {number}. ", width)


def _step(text: str, lead: str, width: int) -> Iterator[str]:
    """Yield a step below its number: a sentence broken at spaces, a command whole, so that it can be copied."""
    hanging = " " * len(lead)
    parts = step(text)
    if not parts.commands:
        first, *others = sentence(text, width, hanging) if text else [hanging]
    elif len(parts.lead) > _LEAD and width and cells(lead) + cells(text) > width:
        # A sentence would move the command off the screen: it has a line of its own.
        first, *others = [*sentence(parts.lead, width, hanging), hanging + text[len(parts.lead) :].lstrip()]
    else:
        first, others = hanging + text, []
    yield lead + first[len(hanging) :]
    yield from others


def where(steps: Iterable[str]) -> str:
    """Return in words where the steps are taken: on the host, or where fleetcheck runs."""
    here = {bool(_HERE.search(step)) for step in steps}
    if here == {True}:
        return "here, in the inventory"
    return "on the host" if here == {False} else "on the host; the inventory is here"


_HERE = re.compile(r"\binventory\b|^fleetcheck |^ssh(-keygen)? |--workers|--accept-new", re.IGNORECASE)


def wrapped(lead: str, folded: str, width: int) -> Iterator[str]:
    """Yield a node set after what leads to it, broken at its commas to ``width`` columns, 0: no limit."""
    room = max(40, width - 4) if width else 1 << 30
    first, *others = wrap(folded, room, room - max(0, cells(lead) - 1))
    yield f"  {lead} {first}"
    yield from (f"    {line}" for line in others)


def sentence(text: str, width: int, indent: str, most: int = READABLE) -> Iterator[str]:
    """Yield a message broken at spaces to at most ``width`` columns, 0: no limit. A longer word stays whole.

    On a terminal that is wider than ``most``, that is where it breaks.
    """
    if not width:
        yield indent + text
        return
    yield from textwrap.wrap(
        text, max(40, min(width, most)), initial_indent=indent, subsequent_indent=indent,
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
        yield from wrapped(f"{clean(rule)}, until {clean(until)}, {clean(reason)}:", fold(names), width)
