"""What changed, as text: one line a change, hosts that changed alike folded into one name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from fleetcheck.folding import fold
from fleetcheck.history.ages import ago
from fleetcheck.history.diff import KINDS, Changes, HostChange, counts
from fleetcheck.report.text import clean
from fleetcheck.rules.finding import Finding

SHOWN = 12
"""How many changed facts of one host are shown; all are in the data."""


def render(changes: Changes, now: datetime, *, wide: bool = False) -> str:
    """Return the changes as lines, the worst first."""
    lines = [headline(changes, now)]
    groups: dict[tuple[str, ...], list[str]] = {}
    for change in changes.changed:
        groups.setdefault(tuple(_host(change, now, wide=wide)), []).append(change.host)
    for body, names in groups.items():
        kind, _, rest = body[0].partition("\t")
        lines.append(f"{kind:<13} {fold(names)}: {rest}")
        lines += (f"    {line}" for line in body[1:])
    if changes.appeared or changes.resolved:
        lines.append(f"{'fleet':<13} findings of no single host")
        lines += (f"    {line}" for line in _findings(changes.appeared, changes.resolved))
    return "\n".join(lines) + "\n"


def headline(changes: Changes, now: datetime) -> str:
    """Return what changed in one line, in numbers."""
    hosts = f"{changes.hosts} host{'' if changes.hosts == 1 else 's'}"
    if changes.before is None:
        return f"{hosts}; the history has no earlier run to compare with"
    since = f"since run {clean(changes.before.id)}, {ago(changes.before.started, now)}"
    if not changes:
        return f"No change {since}: {hosts}"
    kinds = Counter(change.kind for change in changes.changed)
    told = [f"{kinds[kind]} {_words(kind)}" for kind in KINDS if kinds[kind]]
    if changes.appeared or changes.resolved:
        told.append("findings of the fleet")
    return f"Changes {since}: of {hosts}, {', '.join(told)}"


def body(change: HostChange, now: datetime) -> list[str]:
    """Return what changed of one host: what is said of it, then a line each."""
    first, *rest = _host(change, now, wide=False)
    return [first.partition("\t")[2], *rest]


def _host(change: HostChange, now: datetime, *, wide: bool) -> Iterator[str]:
    before = change.verdict_before
    kind = _words(change.kind)
    if change.kind == "not-checked" or (change.kind == "first-seen" and change.verdict not in ("ok", "findings")):
        why = f" ({clean(change.message)})" if change.message else ""
        last = f"last seen {before} {ago(change.seen_at, now)}" if change.seen_at else "never seen before"
        yield f"{kind}\t{change.verdict}; {last}{why}"
        return
    again = f", not checked in between ({change.was_unseen})" if change.was_unseen else ""
    same = before is None or before == change.verdict
    yield f"{kind}\t{_verdicts(change) if same else f'{before} -> {change.verdict}'}{again}"
    if change.renamed_from:
        yield f"the machine was called {clean(change.renamed_from)} (same machine-id)"
    if change.reinstalled:
        more = f"; {len(change.facts)} facts differ" if change.facts else ""
        yield f"reinstalled: its machine-id is another one{more}"
    for swap in change.swapped:
        yield f"GPU {clean(swap.bus_id)} swapped: {clean(swap.before)} -> {clean(swap.after)}"
    yield from _findings(change.appeared, change.resolved)
    if wide or not change.reinstalled:
        shown = change.facts if wide else change.facts[:SHOWN]
        for one in shown:
            yield _fact(one.key, one.before, one.after)
        if len(shown) < len(change.facts):
            yield f"and {len(change.facts) - len(shown)} more facts; --wide shows them"


def _verdicts(change: HostChange) -> str:
    """Return what is said of a host whose verdict is as it was: what else made it worse or better."""
    if change.kind not in ("worse", "better"):
        return change.verdict
    counted = [item for item in (change.appeared if change.kind == "worse" else change.resolved) if counts(item)]
    word = "new" if change.kind == "worse" else "resolved"
    number = f"{len(counted)} {word} finding{'' if len(counted) == 1 else 's'}"
    names = ", ".join(dict.fromkeys(clean(item.rule) for item in counted))
    return f"{number} ({names}); the verdict is still {change.verdict}"


def _fact(key: str, before: str | None, after: str | None) -> str:
    if before is None or after is None:
        came = f"new ({clean(after)})" if after not in (None, "there") else "new"
        return f"{clean(key)}: {'gone' if after is None else came}"
    return f"{clean(key)}: {clean(before, 200)} -> {clean(after, 200)}"


def _findings(appeared: Sequence[Finding], resolved: Sequence[Finding]) -> Iterator[str]:
    for mark, findings in (("+", appeared), ("-", resolved)):
        for item in findings:
            where = f" [{clean(item.venv or item.gpu or '')}]" if item.venv or item.gpu else ""
            accepted = " (waived)" if item.waived else ""
            yield f"{mark} {item.severity} {clean(item.rule)}{where}: {clean(item.message)}{accepted}"


def _words(kind: str) -> str:
    return kind.replace("-", " ")
