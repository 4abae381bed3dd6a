"""Judge one host, or a whole run: run every rule, and say which findings another one explains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from fleetcheck.facts.records import HostFacts
from fleetcheck.inventory.model import Target, Waiver
from fleetcheck.rules.catalog import RULES
from fleetcheck.rules.choice import Choice
from fleetcheck.rules.finding import Finding, Severity, rank
from fleetcheck.rules.rule import FleetLook, Hit, Look, Member, Rule

EVERYTHING = Choice()
_NOTHING = HostFacts()


@dataclass(frozen=True, slots=True)
class Fired:
    """A hit, the rule that made it, and how grave it is here."""

    rule: Rule
    hit: Hit
    severity: Severity


def judge_host(target: Target, facts: HostFacts, choice: Choice = EVERYTHING) -> tuple[Finding, ...]:
    """Return what is wrong with a host, gravest first, then by rule, environment and GPU.

    A finding that another one on the same host explains names the rule of that one in ``cause``; a root has
    none. Findings in environments that are neither listed nor serving are ``info``. Of a host of which nothing
    is known nothing is said: its outcome says it. A rule that ``choice`` leaves out explains nothing either.
    """
    if facts == _NOTHING:
        return ()
    fired = run(Look(target, facts), choice)
    causes = explain(fired)
    findings = [finding(target.name, one, causes.get(index)) for index, one in enumerate(fired)]
    return tuple(sorted(findings, key=order))


def judge_fleet(
    members: Sequence[Member],
    findings: Mapping[str, tuple[Finding, ...]],
    *,
    waivers: Sequence[Waiver],
    day: date,
    choice: Choice = EVERYTHING,
    overrides: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[Finding, ...]:
    """Return what the rules over a whole run find: ``host`` is None for what concerns no single host.

    ``findings`` are those of each host, ``overrides`` its levels by rule. Rules on waivers come last, so that they
    see what the others found.
    """
    known = dict(findings)
    found: list[Finding] = []
    rules = [rule for rule in RULES.values() if rule.fleet_check is not None]
    for rule in sorted(rules, key=lambda rule: rule.family == "policy"):
        look = FleetLook(tuple(members), known, tuple(waivers), day, frozenset(RULES), choice.rules)
        for hit in rule.fleet_check(look) if rule.fleet_check is not None and rule.slug in choice.rules else ():
            levels = (overrides or {}).get(hit.host or "", {})
            severity = choice.severity(rule, hit.severity or rule.severity, levels)
            if severity is not None:
                found.append(finding(hit.host, Fired(rule, hit, severity), None))
        for one in found:
            if one.host is not None and one.rule == rule.slug:
                known[one.host] = (*known.get(one.host, ()), one)
    return tuple(sorted(found, key=order))


def run(look: Look, choice: Choice = EVERYTHING) -> list[Fired]:
    """Run every rule over one host."""
    idle = {venv.path for venv in look.facts.venvs if venv.origin == "usual"} - {
        venv.path for venv in look.facts.venvs if venv.origin != "usual"
    }
    fired: list[Fired] = []
    wanted = choice.rules
    for rule in RULES.values():
        for hit in rule.check(look) if rule.check is not None and rule.slug in wanted else ():
            severity = choice.severity(rule, hit.severity or rule.severity, look.target.rules)
            if severity is not None:
                fired.append(Fired(rule, hit, "info" if hit.venv in idle else severity))
    return fired


def explain(fired: list[Fired]) -> dict[int, str]:
    """Return, for each finding that has one, the rule of its root cause; findings go by their place in ``fired``.

    A cause must be as grave as what it explains, so that no error is folded under a note. Of several causes the
    gravest counts. Rules do not explain each other in a circle (the tests hold it), so that roots are reached.
    """
    by_slug: dict[str, list[int]] = defaultdict(list)
    for index, one in enumerate(fired):
        by_slug[one.rule.slug].append(index)
        if one.hit.key is not None:
            by_slug[f"{one.rule.slug}/{one.hit.key}"].append(index)
    parent: dict[int, int] = {}
    for index, one in enumerate(fired):
        for explained in one.rule.causes:
            for other in by_slug.get(explained, ()):
                if covers(one, fired[other]) and (
                    other not in parent or rank(one.severity) > rank(fired[parent[other]].severity)
                ):
                    parent[other] = index
    return {index: fired[root(index, parent)].rule.slug for index in parent}


def covers(cause: Fired, other: Fired) -> bool:
    """Return whether a finding can explain another: as grave, and of the same environment and GPU, or wider."""
    return (
        rank(cause.severity) >= rank(other.severity)
        and (cause.hit.venv is None or other.hit.venv in (None, cause.hit.venv))
        and (cause.hit.gpu is None or other.hit.gpu in (None, cause.hit.gpu))
    )


def root(index: int, parent: dict[int, int]) -> int:
    """Follow causes to the first one."""
    while index in parent:
        index = parent[index]
    return index


def finding(host: str | None, fired: Fired, cause: str | None) -> Finding:
    """Make the record."""
    rule, hit = fired.rule, fired.hit
    return Finding(
        rule=rule.slug,
        severity=fired.severity,
        host=host,
        venv=hit.venv,
        gpu=hit.gpu,
        message=hit.message,
        expected=hit.expected,
        seen=hit.seen,
        basis=hit.basis,
        remedy=hit.remedy,
        reference=rule.reference,
        cause=cause,
    )


def order(finding: Finding) -> tuple[int, str, str, str, str, str]:
    """Return the key by which findings are sorted."""
    place = finding.host or "", finding.venv or "", finding.gpu or ""
    return -rank(finding.severity), finding.rule, *place, finding.message
