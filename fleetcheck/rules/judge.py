"""Judge one host: run every rule, and say which findings another one explains."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from fleetcheck.facts.records import HostFacts
from fleetcheck.inventory.model import Target
from fleetcheck.rules.catalog import RULES
from fleetcheck.rules.finding import Finding, Severity, rank
from fleetcheck.rules.rule import Hit, Look, Rule


@dataclass(frozen=True, slots=True)
class Fired:
    """A hit, the rule that made it, and how grave it is here."""

    rule: Rule
    hit: Hit
    severity: Severity


def judge_host(target: Target, facts: HostFacts) -> tuple[Finding, ...]:
    """Return what is wrong with a host, gravest first, then by rule, environment and GPU.

    A finding that another one on the same host explains names the rule of that one in ``cause``; a root has
    none. Findings in environments that are neither listed nor serving are ``info``. Of a host of which nothing
    is known nothing is said: its outcome says it.
    """
    if facts == HostFacts():
        return ()
    fired = run(Look(target, facts))
    causes = explain(fired)
    findings = [finding(target, one, causes.get(index)) for index, one in enumerate(fired)]
    return tuple(sorted(findings, key=order))


def run(look: Look) -> list[Fired]:
    """Run every rule over one host."""
    idle = {venv.path for venv in look.facts.venvs if venv.origin == "usual"} - {
        venv.path for venv in look.facts.venvs if venv.origin != "usual"
    }
    return [
        Fired(rule, hit, "info" if hit.venv in idle else hit.severity or rule.severity)
        for rule in RULES.values()
        for hit in rule.check(look)
    ]


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


def finding(target: Target, fired: Fired, cause: str | None) -> Finding:
    """Make the record."""
    rule, hit = fired.rule, fired.hit
    return Finding(
        rule=rule.slug,
        severity=fired.severity,
        host=target.name,
        venv=hit.venv,
        gpu=hit.gpu,
        message=hit.message,
        expected=hit.expected,
        seen=hit.seen,
        basis=hit.basis,
        remedy=hit.remedy,
        reference=rule.references[0],
        cause=cause,
    )


def order(finding: Finding) -> tuple[int, str, str, str, str]:
    """Return the key by which findings are sorted."""
    return -rank(finding.severity), finding.rule, finding.venv or "", finding.gpu or "", finding.message
