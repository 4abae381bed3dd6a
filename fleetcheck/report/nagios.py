"""A plugin's answer for Nagios, Icinga and their kin: one status line with performance data, then long output.

At most 4 KB, which is what Nagios reads; a bar stands nowhere but before performance data.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from fleetcheck.report.findings import groups
from fleetcheck.report.nodes import fold
from fleetcheck.report.table import summary
from fleetcheck.report.text import clean
from fleetcheck.rules.finding import SEVERITIES, Severity, rank
from fleetcheck.run import Run

State = Literal["OK", "WARNING", "CRITICAL", "UNKNOWN"]
CODES: dict[State, int] = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}
LIMIT = 4096
"""Bytes that Nagios reads of a plugin, the line end included."""
_LINE = 600
CUT = "..."
MORE = "More than 4 KB can hold; see another format."


def state(run: Run) -> State:
    """Return the worst that holds: CRITICAL, UNKNOWN (a host was not seen), WARNING, OK.

    A host with findings of ``error`` or ``critical`` that fail it is CRITICAL; one that a lesser finding fails, or
    whose findings of ``warning`` or worse do not fail it, is WARNING. No host at all is UNKNOWN.
    """
    worst: dict[str | None, Severity] = {}
    for finding in run.findings:
        if not finding.waived:
            worst[finding.host] = max(finding.severity, worst.get(finding.host, "info"), key=rank)
    failing = [host.name for host in run.hosts if host.verdict == "findings"]
    # A failed host without a finding that tells how badly is taken for the worst.
    if any(rank(worst.get(name, "critical")) >= rank("error") for name in failing):
        return "CRITICAL"
    unseen = any(host.verdict not in ("ok", "findings", "skipped") for host in run.hosts)
    if unseen or not run.hosts or not run.run.complete:
        return "UNKNOWN"
    noted = any(rank(severity) >= rank("warning") for severity in worst.values())
    return "WARNING" if failing or noted else "OK"


def code(run: Run) -> int:
    """Return the exit code of the plugin, 0 to 3."""
    return CODES[state(run)]


def unknown(reason: str) -> str:
    """Return the answer of a plugin that could not do its work."""
    return f"FLEETCHECK UNKNOWN - {_plain(reason)}\n"


def render(run: Run) -> str:
    """Return the answer: the status line, and as much of the long output as 4 KB hold."""
    early = "" if run.run.complete else "interrupted; "
    early += "limited by --select or --ignore; " if run.run.select or run.run.ignore else ""
    status = f"FLEETCHECK {state(run)} - {early}{_plain(summary(run))} | {' '.join(_performance(run))}"
    lines = [status]
    left = LIMIT - len(status.encode()) - 1 - len(MORE) - 1
    ends = _ends(run)
    for number, line in enumerate(ends):
        # Each gets its share of the room, so that a cut loses names and never an outcome.
        lines.append(_cut(line, left // (len(ends) - number) - 1))
        left -= len(lines[-1].encode()) + 1
    for line in _rules(run):
        left -= len(line.encode()) + 1
        if left < 0:
            break
        lines.append(line)
    if left < 0 or any(line.endswith(CUT) for line in lines):
        lines.append(MORE)
    return "\n".join(lines) + "\n"


def _cut(line: str, room: int) -> str:
    if len(line.encode()) <= room:
        return line
    return line.encode()[: max(0, room - len(CUT))].decode(errors="ignore") + CUT


def _performance(run: Run) -> Iterator[str]:
    totals = run.summary
    most = totals.hosts
    yield f"hosts={most};;;0"
    yield f"ok={totals.ok};;;0;{most}"
    yield f"findings={totals.findings};;0;0;{most}"
    yield f"not_checked={totals.unseen};0;;0;{most}"
    yield f"maintenance={totals.maintenance};;;0;{most}"
    live = [finding.severity for finding in run.findings if not finding.waived]
    yield from (f"{severity}={live.count(severity)};;;0" for severity in reversed(SEVERITIES))
    try:
        took = datetime.fromisoformat(run.run.finished or "") - datetime.fromisoformat(run.run.started)
    except (ValueError, TypeError):
        return
    yield f"duration={max(0.0, took.total_seconds()):.3f}s;;;0"


def _ends(run: Run) -> list[str]:
    """Return a line for each way in which looks ended, the hosts named, findings first."""
    ended: dict[tuple[str, str], list[str]] = {}
    for host in run.hosts:
        ended.setdefault((host.outcome, host.verdict), []).append(host.name)
    order = {"findings": 0, "ok": 2, "skipped": 3}
    told = []
    for (outcome, verdict), names in sorted(ended.items(), key=lambda item: order.get(item[0][1], 1)):
        kind = outcome if outcome == verdict else f"{outcome}, {verdict}"
        told.append(f"{kind} ({len(names)}): {_plain(fold(names), LIMIT)}")
    return told


def _rules(run: Run) -> Iterator[str]:
    for group in groups(run.findings):
        hosts = fold(host for names in group.said.values() for host in names)
        yield f"{SEVERITIES[group.worst]} {_plain(group.rule, 80)}: {_plain(hosts)}"


def _plain(text: str, limit: int = _LINE) -> str:
    return clean(text, limit).replace("|", "\\x7c")
