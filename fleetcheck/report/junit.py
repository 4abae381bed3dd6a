"""JUnit XML for a CI server: a suite a host, a case for the look at it and one for each finding.

A host that was not checked is an error, never a pass (ansible#63962); one left alone on purpose is skipped, and so
is a finding that a waiver accepts. A suite fails where the host's verdict is ``findings``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from fleetcheck.report.findings import FLEET
from fleetcheck.report.jsonl import by_host
from fleetcheck.report.text import clean, value
from fleetcheck.rules.finding import Finding, rank
from fleetcheck.run import HostResult, Run

_LOOK = "look"
_LONG = 2000


def render(run: Run) -> str:
    """Return the document: suites ``fleetcheck.HOST`` of cases ``look`` and RULE PLACE."""
    found = by_host(run)
    document: Any = JUnitXml("fleetcheck")
    # append, not add_testsuite: that one compares each suite with all before it.
    for host in run.hosts:
        document.append(_suite(host, found.pop(host.name, ()), run.run.started))
    others = [finding for findings in found.values() for finding in findings]
    if others:
        suite: Any = TestSuite(f"fleetcheck.{FLEET}")
        for case in _cases(others, FLEET, fails=5):
            suite.append(case)
        document.append(suite)
    document.update_statistics()
    return f"<?xml version='1.0' encoding='UTF-8'?>\n{_text(document)}\n"


def _text(document: Any) -> str:
    written: bytes = document.tostring()
    text = written.decode("utf-8")
    # junitparser writes a declaration of its own, or none, by what builds its trees.
    text = text.partition("?>")[2].lstrip() if text.startswith("<?xml") else text
    # Of the whole, the schema of Jenkins' xunit plugin (junit-10.xsd) knows no count of what was skipped.
    return re.sub(r'\A(<testsuites [^>]*?) skipped="\d+"', r"\1", text)


def _suite(host: HostResult, findings: tuple[Finding, ...], started: str) -> Any:
    suite: Any = TestSuite(f"fleetcheck.{clean(host.name, _LONG)}")
    with contextlib.suppress(ValueError):  # a time that is none is left out
        suite.timestamp = datetime.fromisoformat(started).strftime("%Y-%m-%dT%H:%M:%S")
    suite.add_property("outcome", host.outcome)
    suite.add_property("verdict", host.verdict)
    suite.append(_look(host))
    live = [rank(finding.severity) for finding in findings if not finding.waived]
    fails = min(rank("error"), max(live, default=0)) if host.verdict == "findings" else 5
    for case in _cases(findings, host.name, fails):
        suite.append(case)
    return suite


def _look(host: HostResult) -> TestCase:
    case = TestCase(_LOOK, clean(host.name, _LONG), round(host.seconds, 3))
    if host.verdict in ("ok", "findings"):
        return case
    where = ", ".join(clean(part, 60) for part in (host.detail, host.stage and f"stage {host.stage}") if part)
    said = clean(host.message or "", _LONG)
    lead = f"{host.outcome} ({where})" if where else host.outcome
    why = f"{lead}: {said}" if said else lead
    case.result = [Skipped(why) if host.outcome == "skipped" else Error(why, host.outcome)]
    return case


def _cases(findings: Iterable[Finding], host: str, fails: int) -> Iterable[TestCase]:
    """Yield a case for each finding: from the rank ``fails`` on a failure, below it a pass that tells."""
    used: dict[str, int] = {}
    for finding in findings:
        place = " ".join(clean(part, 300) for part in (finding.venv, finding.gpu) if part)
        name = f"{clean(finding.rule)} {place}".rstrip()
        used[name] = used.get(name, 0) + 1
        case = TestCase(name if used[name] == 1 else f"{name} #{used[name]}", clean(host, _LONG), 0)
        message = f"{finding.severity}: {clean(finding.message, _LONG)}"
        if finding.waived:
            until = f"until {clean(finding.waived.until, 60)}"
            case.result = [Skipped(f"waived {until}: {clean(finding.waived.reason, _LONG)}; {message}")]
        elif rank(finding.severity) >= fails:
            failure = Failure(message, finding.severity)
            failure.text = _told(finding)
            case.result = [failure]
        else:
            case.system_out = "\n".join([message, _told(finding)])
        yield case


def _told(finding: Finding) -> str:
    told = [
        f"expected: {value(finding.expected)}" if finding.expected is not None else "",
        f"seen: {value(finding.seen)}" if finding.seen is not None else "",
        f"basis: {finding.basis}" if finding.basis else "",
        f"caused by: {clean(finding.cause)}" if finding.cause else "",
        *(f"remedy: {clean(step, 4000)}" for step in finding.remedy),
        f"see {clean(finding.reference)}" if finding.reference else "",
    ]
    return "\n".join(line for line in told if line)
