"""The table: a summary, one row a host and environment, the findings, and what was not checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from fleetcheck.report.findings import groups, lines, rooted, sentence, waived, wrapped
from fleetcheck.report.fit import Fitted, Many, fit
from fleetcheck.report.further import DEMO, of_one_host
from fleetcheck.report.nodes import fold
from fleetcheck.report.rows import OPEN, chosen, entries, fired
from fleetcheck.report.text import clean, paint
from fleetcheck.rules.finding import SEVERITIES, Severity
from fleetcheck.run import HostResult, Run

_PLURAL = {"error": "errors", "warning": "warnings"}
EARLY = ("fleet-suspicious",)
"""Rules whose findings stand before the hosts: they may explain a thousand lines."""
MORE = "One host: fleetcheck show HOST -i INVENTORY; one rule: fleetcheck rules RULE"
TRY = "step by step: fleetcheck doctor HOST -i INVENTORY"
LEGEND = f"FUSION with {OPEN}: whether the server uses it is not known."
MESSAGES = 3
"""How many messages of hosts that failed alike are shown unless all are asked for; every host is named."""


def render(run: Run, *, wide: bool, width: int, colour: bool, columns: Sequence[str] = ()) -> str:
    """Return the report as text with a line end.

    ``columns`` are the table's, by :func:`fleetcheck.report.rows.chosen`; none means the usual ones.

    ``width`` is in terminal columns; 0 means that nothing is shortened or broken, and so does ``wide``, which also
    shows every healthy host in a row of its own. ``colour`` adds ANSI colours; without it the text is free of
    control characters whatever the hosts said.
    """
    width = 0 if wide else width
    blocks = [list(_summary(run, width, colour))]
    found = groups(run.findings)
    early = [group for group in found if group.rule in EARLY]
    blocks += [list(lines(group, width, wide=wide, colour=colour)) for group in early]
    many: list[Many] = []
    if run.hosts:
        columns = chosen(columns)
        fitted = fit(entries(run, wide=wide, columns=columns), width, colour, columns, fired(run.findings))
        blocks.append(list(_table(fitted, width, colour)))
        many = fitted.many
    missing = list(unseen(run, wide=wide, width=width, colour=colour))
    blocks += [missing] if missing else []
    found = [group for group in found if group.rule not in EARLY]
    blocks += [list(lines(group, width, wide=wide, colour=colour)) for group in found]
    accepted = list(waived(run.findings, width))
    blocks += [[paint("Waived", "title", colour), *accepted]] if accepted else []
    blocks += [list(_named(many, width, colour))] if many else []
    if run.findings:
        blocks.append([paint(line, "dim", colour) for line in sentence(_more(run), width, "")])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _more(run: Run) -> str:
    if run.run.inventory != DEMO:
        return MORE
    return f"One host: {', then: '.join(of_one_host(DEMO))}; one rule: fleetcheck rules RULE"


def summary(run: Run) -> str:
    """Return the run in one line: hosts by verdict, findings by severity, and apart those that others explain."""
    totals = run.summary
    live: dict[bool, Counter[Severity]] = {True: Counter(), False: Counter()}
    noted = set()
    for finding, root in rooted(run.findings):
        live[finding is root][finding.severity] += 1
        if finding.severity != "info":
            noted.add(finding.host)
    warned = sum(host.verdict == "ok" and host.name in noted for host in run.hosts)
    parts = [
        f"{totals.ok} ok{f' ({warned} with warnings)' if warned else ''}",
        f"{totals.findings} failing",
    ]
    if totals.unseen:
        ends = {end: count for end, count in totals.by_outcome.items() if end not in ("checked", "skipped")}
        parts.append(f"{totals.unseen} not checked ({_counts(ends)})")
    if totals.maintenance:
        parts.append(f"{totals.maintenance} in maintenance")
    accepted = sum(finding.waived is not None for finding in run.findings)
    own = _graded(live[True]) | ({"waived": accepted} if accepted else {})
    told = f"findings: {_counts(own) or 'none'}"
    if live[False]:
        told += f"; explained by these: {_counts(_graded(live[False]))}"
    hosts = "1 host" if totals.hosts == 1 else f"{totals.hosts} hosts"
    return f"{hosts}: {', '.join(parts)}; {told}"


def _graded(live: Counter[Severity]) -> dict[str, int]:
    return {
        _PLURAL.get(severity, severity) if live[severity] > 1 else severity: live[severity]
        for severity in reversed(SEVERITIES)
        if live[severity]
    }


def limits(run: Run) -> str | None:
    """Return a sentence on the rules that were left out, None where every rule was judged."""
    info = run.run
    parts = []
    if info.select:
        parts.append(f"by {clean(', '.join(info.select))} only (--select)")
    if info.ignore:
        parts.append(f"without {clean(', '.join(info.ignore))} (--ignore)")
    if not parts:
        return None
    return f'Judged {", ".join(parts)}; the other rules were not applied, so that "ok" speaks of these alone.'


def _counts(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _summary(run: Run, width: int, colour: bool) -> Iterator[str]:
    if not run.run.complete:
        early = "Interrupted: this run ended before every host was looked at."
        yield from (paint(line, "warning", colour) for line in sentence(early, width, ""))
    yield from (paint(line, "title", colour) for line in sentence(summary(run), width, "", width))
    limited = limits(run)
    if limited is not None:
        yield from (paint(line, "warning", colour) for line in sentence(limited, width, ""))


def _table(fitted: Fitted, width: int, colour: bool) -> Iterator[str]:
    # The header is a row: tabulate makes a column two wider than a header that is its widest cell.
    rows = [fitted.header, *fitted.rows]
    text = tabulate(rows, tablefmt="plain", disable_numparse=True, stralign="left")
    yield from (line.rstrip() for line in text.splitlines())
    told = [LEGEND] if any(cell.endswith(OPEN) for row in fitted.rows for cell in row) else []
    said = [f"{name} {text}" for name, text in fitted.said.items() if text]
    told += [f"Alike wherever known: {', '.join(said)}."] if said else []
    unknown = [name for name, text in fitted.said.items() if not text]
    told += [f"Known of no host: {', '.join(unknown)}."] if unknown else []
    told += [f"Without room here: {', '.join(fitted.left_out)}. See --wide."] if fitted.left_out else []
    if fitted.many:
        marks = " to ".join(dict.fromkeys(one.mark for one in (fitted.many[0], fitted.many[-1])))
        told.append(f"{marks}: all the hosts are named at the end. A row for each: --wide.")
    yield from (paint(line, "dim", colour) for note in told for line in sentence(note, width, ""))


def _named(many: Sequence[Many], width: int, colour: bool) -> Iterator[str]:
    """Yield the hosts that had no room in their row, each with how it stands."""
    yield paint("Hosts that share a row", "title", colour)
    for mark, entry in many:
        verdict = ", ".join(dict.fromkeys(line.verdict for line in entry.lines))
        yield from wrapped(f"{mark} {verdict}, {len(entry.hosts)} hosts:", fold(entry.hosts), width)


def unseen(run: Run, *, wide: bool, width: int, colour: bool) -> Iterator[str]:
    """Yield the hosts that were not checked, grouped by how the look ended."""
    failed: dict[tuple[str, str | None, str | None], list[HostResult]] = {}
    for host in run.hosts:
        if host.verdict not in ("ok", "findings"):
            failed.setdefault((host.outcome, host.stage, host.detail), []).append(host)
    if any(outcome != "skipped" for outcome, _, _ in failed):
        yield paint("Not checked", "title", colour)
    for (outcome, stage, detail), hosts in sorted(failed.items(), key=lambda item: item[0][0] == "skipped"):
        if outcome == "skipped":
            yield paint("In maintenance", "title", colour)
        where = ", ".join(clean(part, 60) for part in (detail, stage and f"stage {stage}") if part)
        lead = f"{outcome} ({where}):" if where else f"{outcome}:"
        first, *others = wrapped(lead, fold(host.name for host in hosts), width)
        yield first.replace(lead, paint(lead, "warning", colour), 1)
        yield from others
        said = list(dict.fromkeys(clean(host.message, 1000) for host in hosts if host.message))
        shown = said if wide else said[:MESSAGES]
        for message in shown:
            yield from sentence(message, width, "    ")
        if len(said) > len(shown):
            yield f"    and {len(said) - len(shown)} more messages, shown by --wide"
    if any(host.verdict not in ("ok", "findings", "skipped") for host in run.hosts):
        last = TRY if run.run.inventory != DEMO else f"more: {', then: '.join(of_one_host(DEMO))}"
        yield f"  {paint(last, 'dim', colour)}"
