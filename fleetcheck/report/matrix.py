"""The fleet as the page's matrix: a row a host, worst first, and a column for each rule that found something."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import quote

from fleetcheck.report.jsonl import by_host
from fleetcheck.report.rows import ABOUT, Line, entries
from fleetcheck.report.text import ELLIPSIS, clean
from fleetcheck.rules.finding import SEVERITIES, Finding, Severity, rank, weight
from fleetcheck.run import HostResult, Run

COLUMNS = 80
"""How many rules have a column, the gravest; what the others found stands with the findings and with each host."""
SHOWN = 2
"""How many different words of one host's environments stand in one cell."""
KINDS = (
    ("clean", "ok", "ok"),
    ("warned", "warning", "ok, with warnings"),
    ("findings", "findings", "failing"),
    ("unseen", "unseen", "not checked"),
    ("skipped", "resting", "in maintenance"),
)
"""The kinds of hosts: the choice of the filter, the badge, and words."""
_UNSEEN = {"skipped": "resting", "host-key-changed": "alarm"}
_UNSAFE = ("on-unvalidated", "would-crash", "unsafe-patch")
_ERROR = SEVERITIES.index("error")
_GRAVE = ("critical", "error", "warning", "info", "title", "dim", "ok")


class Column(NamedTuple):
    """A rule: how grave it is at worst (None where all is waived), on how many hosts, and its one line."""

    rule: str
    severity: Severity | None
    hosts: int
    summary: str


class Tally(NamedTuple):
    """So many hosts of one kind: the choice of the filter that shows them, their badge, and words."""

    choice: str
    mark: str
    said: str
    hosts: int


class Row(NamedTuple):
    """A host in clean texts. ``mark`` is its badge, ``cells`` a :func:`word` a column, ``groups`` are indices.

    ``why`` names all its findings; ``faults`` are the names of the columns whose word is a fault.
    """

    name: str
    fragment: str
    address: str
    groups: str
    outcome: str
    verdict: str
    severity: Severity | None
    mark: str
    said: str
    why: str
    faults: frozenset[str]
    gpus: str
    link: str
    driver: str
    flashinfer: str
    csrc: str
    fusion: str
    cells: tuple[str, ...]


class Matrix(NamedTuple):
    """Rows, their hosts in the same order, columns, names of groups, and how many rules had no column.

    ``tallies`` count the hosts in the order of the bar; ``needing`` are those to mend or to look at again.
    """

    rows: list[Row]
    hosts: Sequence[tuple[HostResult, Sequence[Finding]]]
    columns: list[Column]
    groups: list[str]
    left_out: int
    tallies: list[Tally]
    needing: int


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
    names = [_name(group) for group in groups]
    kinds = Counter(kind(row) for row in rows)
    tallies = [Tally(*said, kinds[said[0]]) for said in KINDS if kinds[said[0]]]
    needing = kinds["findings"] + kinds["unseen"]
    return Matrix(rows, hosts, shown, names, len(columns) - len(shown), tallies, needing)


def kind(row: Row) -> str:
    """Return which of :data:`KINDS` a host is."""
    if row.verdict == "ok":
        return "warned" if row.severity not in (None, "info") else "clean"
    return row.verdict if row.verdict in ("findings", "skipped") else "unseen"


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
    columns = [Column(rule, worst[rule], len(names), summary_of(rule)) for rule, names in hosts.items()]
    return sorted(columns, key=_place)


def _place(column: Column) -> tuple[int, int, int, str]:
    """Return where a column stands: by severity, by what its rule costs, by how many hosts it found."""
    graded = -rank(column.severity) if column.severity else 1
    return graded, weight(column.rule), -column.hosts, column.rule


def summary_of(rule: str) -> str:
    """Return the one line of a rule, "" for one that this version does not know."""
    return summaries().get(rule, "")


@cache
def summaries() -> dict[str, str]:
    """Return the one line of each rule from a file of the page: a report knows runs, and no rule that judges."""
    text = (files("fleetcheck.report") / "page" / "rules.json").read_text("utf-8")
    known: dict[str, str] = json.loads(text)
    return known


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
        mark=worst or host.verdict if seen else _UNSEEN.get(host.verdict, "unseen"),
        said=gravest.verdict_middle if host.verdict == "findings" else gravest.verdict,
        why=_why(findings),
        faults=_faults(host, lines, findings),
        gpus=gravest.gpus,
        link=gravest.link_short,
        driver=gravest.driver,
        flashinfer=_joined(line.flashinfer for line in lines),
        csrc=_joined(line.csrc for line in lines),
        fusion=_joined((line.fusion_short for line in lines), "; "),
        cells=tuple(cells),
    )


def _why(findings: Iterable[Finding]) -> str:
    """Return the rules of a host, gravest first; what another explains, and what is no fault, apart."""
    own: dict[str, Severity] = {}
    explained: dict[str, Severity] = {}
    said: dict[str, Severity] = {}
    for finding in sorted(findings, key=lambda one: (-rank(one.severity), weight(one.rule))):
        if finding.waived:
            continue
        kept = explained if finding.cause else said if finding.severity == "info" else own
        kept.setdefault(_name(finding.rule), finding.severity)
    parts = [", ".join(f"{rule} ({severity})" for rule, severity in own.items())]
    parts += [f"{lead}: {', '.join(rules)}" for lead, rules in (("explained", explained), ("info", said)) if rules]
    return "; ".join(filter(None, parts))


def _faults(host: HostResult, lines: Sequence[Line], findings: Iterable[Finding]) -> frozenset[str]:
    """Return the columns whose word is a fault: by what it says, or by a live error of a rule about it."""
    found = set() if all(line.csrc in ("complete", "-") for line in lines) else {"csrc"}
    for venv in host.venvs:
        if venv.state not in ("ok", "no-flashinfer"):
            found.add("flashinfer")
        if venv.fusion and (venv.fusion.effective in _UNSAFE or venv.fusion.verdict in _UNSAFE):
            found.add("fusion")
    if host.gpus.state not in ("ok", "unknown"):
        found.add("gpus")
    for finding in findings:
        if not finding.waived and rank(finding.severity) >= _ERROR:
            found.update(column.lower() for start, column in ABOUT if finding.rule.startswith(start))
    return frozenset(found)


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


def _joined(words: Iterable[str], between: str = ", ") -> str:
    different = list(dict.fromkeys(words))
    return between.join([*different[:SHOWN], *([ELLIPSIS] if len(different) > SHOWN else [])])
