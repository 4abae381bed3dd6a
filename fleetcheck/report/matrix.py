"""The fleet as the page's matrix: a row a host, worst first, and a column for each rule that found something."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from fleetcheck.report.jsonl import by_host
from fleetcheck.report.rows import Line, entries
from fleetcheck.report.text import ELLIPSIS, clean
from fleetcheck.rules.finding import Finding, Severity, rank
from fleetcheck.run import HostResult, Run

COLUMNS = 80
"""How many rules have a column, the gravest; what the others found stands with the findings and with each host."""
SHOWN = 2
"""How many different words of one host's environments stand in one cell."""
_GRAVE = ("critical", "error", "warning", "info", "title", "dim", "ok")


class Column(NamedTuple):
    """A rule: how grave it is at worst (None where all is waived), and on how many hosts it found anything."""

    rule: str
    severity: Severity | None
    hosts: int


class Row(NamedTuple):
    """A host in clean texts. ``mark`` is its badge, ``cells`` a :func:`word` a column, ``groups`` are indices."""

    name: str
    fragment: str
    address: str
    groups: str
    outcome: str
    verdict: str
    severity: Severity | None
    mark: str
    said: str
    gpus: str
    link: str
    driver: str
    flashinfer: str
    csrc: str
    well: bool
    fusion: str
    cells: tuple[str, ...]


class Matrix(NamedTuple):
    """Rows, their hosts in the same order, columns, names of groups, and how many rules had no column."""

    rows: list[Row]
    hosts: Sequence[tuple[HostResult, Sequence[Finding]]]
    columns: list[Column]
    groups: list[str]
    left_out: int


def matrix(run: Run) -> Matrix:
    """Return the matrix of a run. Every host is in it."""
    found = by_host(run)
    columns = _columns(run.findings)
    shown = columns[:COLUMNS]
    places = {column.rule: place for place, column in enumerate(shown)}
    groups = sorted({group for host in run.hosts for group in host.groups})
    numbers = {group: number for number, group in enumerate(groups)}
    by_name = {host.name: host for host in run.hosts}
    rows, hosts = [], []
    for entry in entries(run, wide=True):
        host = by_name[entry.hosts[0]]
        findings = found.get(host.name, ())
        rows.append(_row(host, findings, entry.lines, places, numbers))
        hosts.append((host, findings))
    return Matrix(rows, hosts, shown, [_name(group) for group in groups], len(columns) - len(shown))


def _columns(findings: Iterable[Finding]) -> list[Column]:
    hosts: dict[str, set[str]] = {}
    worst: dict[str, Severity | None] = {}
    for finding in findings:
        if finding.host is not None:
            rule = _name(finding.rule)
            hosts.setdefault(rule, set()).add(finding.host)
            known = worst.setdefault(rule, None)
            if not finding.waived and (known is None or rank(finding.severity) > rank(known)):
                worst[rule] = finding.severity
    columns = [Column(rule, worst[rule], len(names)) for rule, names in hosts.items()]
    return sorted(columns, key=lambda one: (-rank(one.severity) if one.severity else 1, -one.hosts, one.rule))


def _row(
    host: HostResult,
    findings: Sequence[Finding],
    lines: Sequence[Line],
    places: dict[str, int],
    numbers: dict[str, int],
) -> Row:
    name = clean(host.name, 300)
    cells = [""] * len(places)
    for finding in findings:
        place = places.get(_name(finding.rule))
        if place is not None:
            cells[place] = max(cells[place], word(finding), key=_weight)
    gravest = min(lines, key=lambda line: _GRAVE.index(line.role))
    live = [finding.severity for finding in findings if not finding.waived]
    worst = max(live, key=rank, default=None)
    seen = host.verdict in ("ok", "findings")
    return Row(
        name=name,
        fragment=quote(name, safe=""),
        address=clean(host.address or "", 100),
        groups=" ".join(str(numbers[group]) for group in host.groups),
        outcome=host.outcome,
        verdict=host.verdict,
        severity=worst,
        mark=worst or host.verdict if seen else "resting" if host.verdict == "skipped" else "unseen",
        said=gravest.verdict_middle if host.verdict == "findings" else host.verdict if seen else gravest.verdict,
        gpus=gravest.gpus,
        link=gravest.link_short,
        driver=gravest.driver,
        flashinfer=_joined(line.flashinfer for line in lines),
        csrc=_joined(line.csrc for line in lines),
        well=all(line.csrc in ("complete", "-") for line in lines),
        fusion=_joined(line.fusion_short for line in lines),
        cells=tuple(cells),
    )


def _name(text: str) -> str:
    """Return a name by which can be filtered; an empty one would be the choice of any."""
    return clean(text, 100) or "-"


def word(finding: Finding) -> str:
    """Return what a cell says: a severity, with ``explained`` where another rule is the cause; or ``waived``."""
    if finding.waived:
        return "waived"
    return f"{finding.severity} explained" if finding.cause else finding.severity


def _weight(said: str) -> tuple[int, bool]:
    severity, _, explained = said.partition(" ")
    grave = _GRAVE.index(severity) if severity in _GRAVE else len(_GRAVE) + (severity == "")
    return -grave, not explained


def _joined(words: Iterable[str]) -> str:
    different = list(dict.fromkeys(words))
    text = ", ".join(different[:SHOWN])
    return f"{text}, {ELLIPSIS}" if len(different) > SHOWN else text
