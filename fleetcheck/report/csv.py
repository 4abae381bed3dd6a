"""CSV for a spreadsheet: a row for each finding, and one for each host and environment without any.

UTF-8, a header line, commas, one line a row. No cell is a formula, whatever a host said.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from fleetcheck.facts.records import Gpus, Venv
from fleetcheck.report.jsonl import by_host
from fleetcheck.report.rows import in_words
from fleetcheck.report.text import clean, value
from fleetcheck.rules.finding import Finding
from fleetcheck.run import HostResult, Run

COLUMNS = (
    "host", "address", "groups", "outcome", "stage", "detail", "verdict", "reason",
    "gpu_state", "gpu_count", "compute_capability", "driver",
    "venv", "venv_state", "python", "flashinfer", "csrc_dir", "csrc_state", "fusion", "torch",
    "severity", "rule", "gpu", "message", "expected", "seen", "basis", "remedy", "reference", "cause",
    "waived_reason", "waived_until",
)  # fmt: skip
_CELL = 2000
# What Excel, LibreOffice and Google Sheets take for the start of a formula, full-width forms included (CWE-1236).
_ACTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")

_Row = dict[str, str]


def render(run: Run) -> str:
    """Return the rows, worst or not, in the order of the hosts; findings of the whole fleet come last."""
    found = by_host(run)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n", strict=True)
    writer.writeheader()
    for host in run.hosts:
        writer.writerows(_rows(host, found.pop(host.name, ())))
    for findings in found.values():
        writer.writerows(_found(finding) for finding in findings)
    return text.getvalue()


def inert(text: str) -> str:
    """Return a cell on one line that no spreadsheet evaluates: an apostrophe goes before a formula."""
    cell = clean(text, _CELL)
    return f"'{cell}" if text.startswith(_ACTS) or cell.lstrip(" ").startswith(_ACTS) else cell


def _rows(host: HostResult, findings: tuple[Finding, ...]) -> Iterator[_Row]:
    base = _host(host)
    left: dict[str | None, list[Finding]] = {}
    for finding in findings:
        left.setdefault(finding.venv, []).append(finding)
    for finding in left.pop(None, ()):
        yield base | _found(finding)
    for venv in host.venvs:
        facts = base | _venv(venv, host.gpus)
        here = left.pop(venv.path, ())
        yield from (facts | _found(finding) for finding in here)
        if not here:
            yield facts
    for others in left.values():
        yield from (base | _found(finding) for finding in others)
    if not host.venvs and not findings:
        yield base


def _host(host: HostResult) -> _Row:
    return _cells(
        host=host.name,
        address=host.address,
        groups=" ".join(host.groups),
        outcome=host.outcome,
        stage=host.stage,
        detail=host.detail,
        verdict=host.verdict,
        reason=host.message,
        gpu_state=host.gpus.state,
        gpu_count=host.gpus.count,
        compute_capability=" ".join(host.gpus.compute_capability[:64]),
        driver=host.gpus.driver,
    )


def _venv(venv: Venv, gpus: Gpus) -> _Row:
    flash = venv.flashinfer
    return _cells(
        venv=venv.path,
        venv_state=venv.state,
        python=venv.python,
        flashinfer=flash.version if flash else None,
        csrc_dir=flash.csrc_dir if flash else None,
        csrc_state=flash.csrc_state if flash else None,
        fusion=in_words(venv.fusion, gpus) if venv.fusion else None,
        torch=venv.torch.version if venv.torch else None,
    )


def _found(finding: Finding) -> _Row:
    steps = finding.remedy
    return _cells(
        host=finding.host,
        venv=finding.venv,
        severity=finding.severity,
        rule=finding.rule,
        gpu=finding.gpu,
        message=finding.message,
        expected=None if finding.expected is None else value(finding.expected),
        seen=None if finding.seen is None else value(finding.seen),
        basis=finding.basis,
        remedy=steps[0] if len(steps) == 1 else "  ".join(f"{n}. {step}" for n, step in enumerate(steps, 1)),
        reference=finding.reference,
        cause=finding.cause,
        waived_reason=finding.waived.reason if finding.waived else None,
        waived_until=finding.waived.until if finding.waived else None,
    )


def _cells(**values: str | int | None) -> _Row:
    """Return cells; a key that is not known is left out, so that it does not hide what stands there already."""
    return {name: inert(str(cell)) for name, cell in values.items() if cell is not None}
