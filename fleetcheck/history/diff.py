"""What changed, as data: each host against the last run in which it was looked at.

A host that was not checked never replaces a verdict, one that was not selected is not gone. A fact that is not
known on one side did not change: a dead nvidia-smi takes nothing away, and a newer fleetcheck, which knows more
facts, changes no host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fleetcheck.differences import Difference, differences, flat
from fleetcheck.history import pack
from fleetcheck.history.past import CHECKED, Entry, Look, Past, is_unseen
from fleetcheck.rules.finding import Finding, rank
from fleetcheck.run import HostResult, Run, RunInfo

SCHEMA = "fleetcheck/diff/1"
Kind = Literal["worse", "not-checked", "better", "changed", "checked-again", "first-seen"]
KINDS: tuple[Kind, ...] = ("worse", "not-checked", "better", "changed", "checked-again", "first-seen")
_ITEM = re.compile(r"(gpus\.devices|venvs|toolkits)\[(.*?)\](?=\.|$)")
_NAMED = ".packages."
"""Below it a key is the name of something that is installed: its absence is known."""
_COUNTED = ("ok", "fault", "missing")
"""States in which the list of GPUs is one."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A GPU at the same place of the bus that is another one."""

    bus_id: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class HostChange:
    """What changed of one host.

    ``seen`` is the run in which it was last checked, ``verdict_before`` what it was then; None: never.
    ``renamed_from`` is the name that the same machine had. ``facts`` are keys with old and new value; a whole
    environment, toolkit or GPU that came or went is one key.
    """

    host: str
    kind: Kind
    verdict: str
    message: str | None = None
    seen: str | None = None
    seen_at: str | None = None
    verdict_before: str | None = None
    appeared: tuple[Finding, ...] = ()
    resolved: tuple[Finding, ...] = ()
    facts: tuple[Difference, ...] = ()
    swapped: tuple[Swap, ...] = ()
    reinstalled: bool = False
    renamed_from: str | None = None
    was_unseen: str | None = None
    """The outcome of the last run, where it did not check the host."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed between a run (``before``; None: there is none) and another; ``hosts`` were compared."""

    before: Entry | None
    after: RunInfo
    hosts: int
    changed: tuple[HostChange, ...]
    appeared: tuple[Finding, ...] = ()
    resolved: tuple[Finding, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything changed."""
        return bool(self.changed or self.appeared or self.resolved)

    def to_json(self) -> dict[str, Any]:
        """Return the document ``fleetcheck/diff/1`` as JSON values."""
        return {
            "schema": SCHEMA,
            "before": None if self.before is None else {"id": self.before.id, "started": self.before.started},
            "after": {"id": self.after.id, "started": self.after.started},
            "hosts_compared": self.hosts,
            "hosts": [_json(change) for change in self.changed],
            "appeared": [item.model_dump(mode="json") for item in self.appeared],
            "resolved": [item.model_dump(mode="json") for item in self.resolved],
        }


@dataclass(frozen=True, slots=True)
class Now:
    """How a host is found now, read in full only where it differs."""

    host: str
    verdict: str
    mark: bytes
    load: Callable[[], tuple[HostResult, tuple[Finding, ...]]]


def of_run(run: Run) -> list[Now]:
    """Return the hosts of a run that is in memory."""
    by_host: dict[str | None, list[Finding]] = {}
    for item in run.findings:
        by_host.setdefault(item.host, []).append(item)
    made = []
    for host in run.hosts:
        found = tuple(by_host.get(host.name, ()))
        mark = pack.mark(host.name, host.verdict, pack.parts(host, found))
        made.append(Now(host.name, host.verdict, mark, lambda host=host, found=found: (host, found)))  # type: ignore[misc]
    return made


def of_past(looks: Iterable[Look]) -> list[Now]:
    """Return the hosts of a run that is in the history."""
    return [Now(look.host, look.verdict, look.mark, look.load) for look in looks]


def compare(
    past: Past, base: Entry | None, hosts: Sequence[Now], info: RunInfo, fleet: Sequence[Finding] = (),
) -> Changes:  # fmt: skip
    """Return what changed since ``base``: per host, since it was last looked at in that run or before."""
    names = {now.host for now in hosts}
    until = base.seq if base is not None else -1
    made = (_host(past, until, now, names) for now in hosts)
    changed = sorted((one for one in made if one is not None), key=lambda one: KINDS.index(one.kind))
    appeared: tuple[Finding, ...] = ()
    resolved: tuple[Finding, ...] = ()
    # Findings of the fleet depend on which hosts were selected; of other hosts they cannot be compared.
    if base is not None and {look.host for look in past.looks(base.seq)} == names:
        appeared, resolved = _moved(past.fleet(base.seq), fleet)
    return Changes(base, info, len(hosts), tuple(changed), appeared, resolved)


def _host(past: Past, until: int, now: Now, names: set[str]) -> HostChange | None:
    last = past.last_look(now.host, until)
    if last is not None and last.mark == now.mark:
        return None
    if now.verdict not in CHECKED:
        return _unseen(past, until, now, last)
    seen = last if last is None or last.verdict in CHECKED else past.last_look(now.host, until, checked=True)
    host, found = now.load()
    renamed = None
    if seen is None:
        renamed = _earlier(past, until, host, names)
        seen = None if renamed is None else past.last_look(renamed, until, checked=True)
    missed = None if last is None or last.verdict in CHECKED else last.verdict
    if seen is None:
        appeared, _ = _moved((), found)
        return HostChange(now.host, "first-seen", now.verdict, appeared=appeared, was_unseen=missed)
    return _compared(now, seen, (host, found), missed, renamed)


def _compared(
    now: Now, seen: Look, after: tuple[HostResult, tuple[Finding, ...]], missed: str | None, renamed: str | None
) -> HostChange | None:
    (host, found), (earlier, found_before) = after, seen.load()
    appeared, resolved = _moved(found_before, found)
    swapped = _swapped(earlier, host)
    facts = tuple(
        one for one in _facts(earlier, host) if not any(f"[{swap.bus_id}]" in one.key for swap in swapped)
    )
    machines = [item.system.machine_id if item.system else None for item in (earlier, host)]
    reinstalled = None not in machines and machines[0] != machines[1]
    kind = _kind(seen.verdict, now.verdict, appeared, resolved)
    if kind == "changed" and not (appeared or resolved or facts or swapped or reinstalled or renamed):
        if missed is None:
            return None
        kind = "checked-again"
    return HostChange(
        now.host, kind, now.verdict, None, seen.run, seen.started, seen.verdict, appeared, resolved, facts,
        swapped, reinstalled, renamed, missed,
    )  # fmt: skip


def _unseen(past: Past, until: int, now: Now, last: Look | None) -> HostChange | None:
    host, _ = now.load()
    if is_unseen(host) or (last is not None and last.verdict == now.verdict):
        return None
    seen = past.last_look(now.host, until, checked=True)
    kind: Kind = "first-seen" if last is None else "not-checked"
    if seen is None:
        return HostChange(now.host, kind, now.verdict, host.message)
    return HostChange(now.host, kind, now.verdict, host.message, seen.run, seen.started, seen.verdict)


def _kind(before: str, after: str, appeared: Sequence[Finding], resolved: Sequence[Finding]) -> Kind:
    if before != after:
        return "worse" if after == "findings" else "better"
    if any(counts(item) for item in appeared):
        return "worse"
    return "better" if any(counts(item) for item in resolved) else "changed"


def counts(finding: Finding) -> bool:
    """Return whether a finding makes a host worse: of ``warning`` or more, and nobody accepted it."""
    return finding.waived is None and rank(finding.severity) >= rank("warning")


def _moved(before: Sequence[Finding], after: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that appeared and those that were resolved. Their words may change from look to look."""
    old, new = {_key(item): item for item in before}, {_key(item): item for item in after}
    return (
        tuple(item for key, item in new.items() if key not in old),
        tuple(item for key, item in old.items() if key not in new),
    )


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.venv, finding.gpu, finding.severity, finding.waived is None


def _facts(before: HostResult, after: HostResult) -> list[Difference]:
    counted = before.gpus.state in _COUNTED and after.gpus.state in _COUNTED
    old, new = flat(before), flat(after)
    items = [{found[0] for key in side if (found := _ITEM.match(key))} for side in (old, new)]
    kept: dict[str, Difference] = {}
    for one in differences(old, new):
        item = _ITEM.match(one.key)
        if item is not None and (item[0] in items[0]) != (item[0] in items[1]):
            if counted or item[1] != "gpus.devices":
                there = item[0] in items[0]
                kept[item[0]] = Difference(item[0], "there" if there else None, None if there else "there")
        elif (one.before is not None and one.after is not None) or _NAMED in one.key:
            kept[one.key] = one
    return list(kept.values())


def _swapped(before: HostResult, after: HostResult) -> tuple[Swap, ...]:
    """Return the GPUs that are others now, by what identifies them."""
    old = {device.bus_id: device for device in before.gpus.devices if device.bus_id}
    found = []
    for device in after.gpus.devices:
        was = old.get(device.bus_id or "")
        if was is None:
            continue
        for one, other in ((was.uuid, device.uuid), (was.serial, device.serial)):
            if one is not None and other is not None and one != other:
                found.append(Swap(str(device.bus_id), one, other))
                break
    return tuple(found)


def _earlier(past: Past, until: int, host: HostResult, names: set[str]) -> str | None:
    """Return the one other name that this machine had, where no host of that name was looked at beside it."""
    machine = host.system.machine_id if host.system else None
    if machine is None:
        return None
    known = past.named(machine, host.name, until)
    return known[0] if len(known) == 1 and known[0] not in names else None


def _json(change: HostChange) -> dict[str, Any]:
    made = {name: getattr(change, name) for name in HostChange.__dataclass_fields__}
    for name in ("appeared", "resolved"):
        made[name] = [item.model_dump(mode="json") for item in made[name]]
    made["facts"] = [{"fact": one.key, "before": one.before, "after": one.after} for one in change.facts]
    made["swapped"] = [asdict(one) for one in change.swapped]
    return made
