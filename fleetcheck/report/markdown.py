"""Markdown for an issue's comment: CommonMark with a table of GitHub's flavour.

All that is not ours stands in code, where no markup, mention, reference or address acts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fleetcheck.report.findings import groups, lines, waived
from fleetcheck.report.nodes import fold
from fleetcheck.report.rows import Entry, Line, entries
from fleetcheck.report.table import limits, summary, unseen
from fleetcheck.report.text import clean
from fleetcheck.rules.finding import SEVERITIES
from fleetcheck.run import HostResult, Run

WIDTH = 100
"""Columns at which sentences in a block break: what a comment shows without scrolling."""
SHOWN = 50
"""How many rows are told in full, the worst; every host is in the first table. GitHub takes 65,536 characters."""
_CELL = 200


def render(run: Run) -> str:
    """Return the report. Every host stands in the first table, folded with those that ended alike."""
    blocks = [[f"### fleetcheck: {summary(run)}"]]
    limited = limits(run)
    if limited is not None:
        blocks.append([f"**Limited:** {code(limited, 1000)}"])
    if not run.run.complete:
        blocks.append(["**Interrupted:** this run ended before every host was looked at."])
    if run.hosts:
        blocks.append(_table(("outcome", "verdict", "hosts", "names"), _ends(run.hosts)))
    rows = [(entry, line) for entry in entries(run, wide=False) if not _well(entry) for line in entry.lines]
    if rows:
        head = ("host", "GPUs", "driver", "venv", "FlashInfer", "csrc", "fusion", "verdict")
        blocks.append(_table(head, (_row(entry, line) for entry, line in rows[:SHOWN])))
    if len(rows) > SHOWN:
        blocks.append([f"{len(rows) - SHOWN} more rows are not shown here."])
    for group in groups(run.findings):
        _, *told = lines(group, WIDTH, wide=False, colour=False)
        blocks += [[f"#### {SEVERITIES[group.worst].upper()} {code(group.rule)}"], _block(told)]
    title, *missing = [*unseen(run, wide=False, width=WIDTH, colour=False)] or [""]
    accepted = list(waived(run.findings, WIDTH))
    blocks += [[f"#### {title}"], _block(missing)] if missing else []
    blocks += [["#### Waived"], _block(accepted)] if accepted else []
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def code(text: str, limit: int = _CELL) -> str:
    """Return a text as a code span, its delimiter longer than any run of backticks in it."""
    shown = clean(text, limit)
    if not shown.strip(" "):
        return "` `" if shown else ""
    ticks = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    pad = " " if shown[0] in " `" or shown[-1] in " `" else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def _cell(text: str, limit: int = _CELL) -> str:
    # In a table a pipe ends the cell even within code, and a backslash of the host's before it undoes its escape.
    return code(text.replace("|", "\\x7c"), limit)


def _block(told: Iterable[str]) -> list[str]:
    shown = [line.removeprefix("  ") for line in told]
    ticks = "`" * max(3, 1 + max((len(run) for line in shown for run in re.findall("`+", line)), default=0))
    return [f"{ticks}text", *shown, ticks]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    names = list(head)
    return [_joined(names), _joined(["---"] * len(names)), *map(_joined, rows)]


def _joined(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _ends(hosts: Iterable[HostResult]) -> Iterator[tuple[str, ...]]:
    ended: dict[tuple[str, str], list[str]] = {}
    for host in hosts:
        ended.setdefault((host.outcome, host.verdict), []).append(host.name)
    for (outcome, verdict), names in ended.items():
        yield outcome, verdict, str(len(names)), _cell(fold(names), 1 << 20)


def _well(entry: Entry) -> bool:
    return all(line.verdict == "ok" for line in entry.lines)


def _row(entry: Entry, line: Line) -> Iterator[str]:
    yield _cell(fold(entry.hosts), 2000)
    for text in (line.gpus, line.driver, line.venv, line.flashinfer):
        yield _cell(text)
    yield f"{line.csrc} {_cell(line.csrc_path)}".rstrip()
    yield line.fusion
    yield _cell(line.verdict)
