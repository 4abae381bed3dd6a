"""From looks to a run: facts, rules, waivers, verdicts. Knows no transport, so that a replay is the same code.

In: targets and, as they end, the evidence of each. Out: :class:`fleetcheck.run.Event` records; the last one
holds the :class:`fleetcheck.run.Run`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from fleetcheck.agent.evidence import Evidence, Outcome
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import HostFacts
from fleetcheck.inventory.model import Target
from fleetcheck.policy import Accepted, Policy, accepted, fails, policy_json, resting, waive
from fleetcheck.rules.finding import Finding, Severity
from fleetcheck.rules.judge import judge_fleet, judge_host
from fleetcheck.rules.rule import Member
from fleetcheck.run import (
    Event,
    Finished,
    HostDone,
    HostResult,
    Run,
    RunInfo,
    Started,
    Verdict,
    summarise,
)
from fleetcheck.version import __version__

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # without it, logging's last resort prints tracebacks on stderr


__all__ = ["End", "Policy", "new_run", "now", "pipeline", "policy_json", "resting", "stamp"]


def now() -> datetime:
    """Return the time by the controller's clock, in UTC, to the millisecond."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def stamp(moment: datetime) -> str:
    """Return a time as RFC 3339 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_run(inventory: str) -> RunInfo:
    """Return the record of a run that starts now. ``inventory`` is its source as the user named it."""
    started = now()
    return RunInfo(
        id=f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        started=stamp(started),
        finished=None,
        version=__version__,
        inventory=inventory,
        complete=False,
    )


@dataclass(slots=True)
class _Book:
    """What a run has gathered so far, host by host."""

    targets: Mapping[str, Target]
    info: RunInfo
    policy: Policy
    day: date
    accepted: Mapping[str, Accepted] = field(default_factory=dict)
    done: dict[str, HostDone] = field(default_factory=dict)

    def enter(self, target: Target, look: Evidence) -> HostDone:
        entry = _judged(target, look, self.policy, self.accepted)
        self.done[target.name] = entry
        return entry

    def close(self, finished: str, *, complete: bool) -> Finished:
        for name, target in self.targets.items():
            if name not in self.done:
                self.enter(
                    target,
                    Evidence(name, "timeout", "queue", "interrupted", "the run ended first", attempts=0),
                )
        whole, by_host = self._of_the_fleet()
        order = [_joined(self.done[name], by_host.get(name, ()), self.policy.fail_on) for name in self.targets]
        hosts = tuple(entry.host for entry in order)
        findings = (*whole, *(finding for entry in order for finding in entry.findings))
        info = self.info.model_copy(update={"finished": finished, "complete": complete})
        return Finished(Run(run=info, summary=summarise(hosts), hosts=hosts, findings=findings))

    def _of_the_fleet(self) -> tuple[tuple[Finding, ...], dict[str, list[Finding]]]:
        """Return what only the whole run shows: findings of no single host, and those of each host."""
        found = judge_fleet(
            [_member(self.done[name].host) for name in self.targets],
            {name: entry.findings for name, entry in self.done.items()},
            waivers=self.policy.waivers,
            day=self.day,
            choice=self.policy.choice,
            overrides={name: target.rules for name, target in self.targets.items() if target.rules},
        )
        by_host: dict[str, list[Finding]] = {}
        for finding in waive(found, self.accepted):
            if finding.host is not None:
                by_host.setdefault(finding.host, []).append(finding)
        return tuple(finding for finding in found if finding.host is None), by_host


@dataclass(slots=True)
class End:
    """How the source of looks ended; a replay fills it from its recording.

    ``cut_off`` gives, after an interrupt, what is to be said of the hosts that were being looked at; a live audit
    knows. A host that it gives though it was judged already stays as it was.
    """

    finished: str | None = None
    complete: bool = True
    cut_off: Callable[[], Iterable[tuple[Target, Evidence]]] = tuple


def pipeline(
    targets: Sequence[Target],
    looks: Iterable[tuple[Target, Evidence]],
    info: RunInfo,
    policy: Policy,
    end: End | None = None,
) -> Iterator[Event]:
    """Judge looks as they end. Yields Started, a HostDone each, Finished with every target exactly once.

    A KeyboardInterrupt, raised inside or thrown in, ends the run early: what was gathered is reported, the rest
    is accounted as cut off or as not looked at, and the run is not ``complete``.
    """
    end = end or End()
    day = datetime.fromisoformat(info.started).date()
    choice = policy.choice
    info = info.model_copy(update={"select": choice.select, "ignore": choice.ignore, "fail_on": policy.fail_on})
    book = _Book({target.name: target for target in targets}, info, policy, day, accepted(policy, day))
    complete = True
    source = iter(looks)
    try:
        yield Started(info, len(book.targets))
        for target, look in source:
            yield book.enter(target, look)
    except KeyboardInterrupt:
        complete = False
        close = getattr(source, "close", None)
        if close is not None:
            close()
        for target, look in end.cut_off():
            if target.name not in book.done:
                book.enter(target, look)
    yield book.close(end.finished or stamp(now()), complete=complete and end.complete)


def _judged(target: Target, look: Evidence, policy: Policy, accepted: Mapping[str, Accepted]) -> HostDone:
    try:
        facts = host_facts(look.parts, target.expect.compute_capability)
        found = judge_host(target, facts, policy.choice) if look.parts else ()
    except Exception as error:
        # One host's evidence must never end the run of a thousand; what it broke is this host's failure, in full.
        log.exception("%s: its evidence could not be judged", target.name)
        why = f"fleetcheck itself failed on this evidence: {type(error).__name__}: {error}"
        look = replace(look, outcome="probe-error", stage="probe", detail="internal", message=why)
        facts, found = HostFacts(), ()
    findings = waive(found, accepted)
    return HostDone(_result(target, look, facts, _verdict(look.outcome, findings, policy.fail_on)), findings)


def _joined(entry: HostDone, more: Sequence[Finding], fail_on: Severity) -> HostDone:
    """Return a host with what the whole run showed of it, which may change its verdict."""
    if not more:
        return entry
    findings = (*entry.findings, *more)
    verdict = _verdict(entry.host.outcome, findings, fail_on)
    return HostDone(entry.host.model_copy(update={"verdict": verdict}), findings)


def _member(host: HostResult) -> Member:
    return Member(
        host.name, host.groups, host.outcome, host.stage, host.detail, host.gpus, host.toolkits, host.venvs
    )


def _verdict(outcome: Outcome, findings: Sequence[Finding], fail_on: Severity) -> Verdict:
    if outcome != "checked":
        return outcome
    return "findings" if fails(findings, fail_on) else "ok"


def _result(target: Target, look: Evidence, facts: HostFacts, verdict: Verdict) -> HostResult:
    return HostResult(
        name=target.name,
        address=look.address or target.address,
        groups=target.groups,
        outcome=look.outcome,
        stage=look.stage,
        detail=look.detail,
        message=look.message,
        verdict=verdict,
        attempts=look.attempts,
        seconds=round(look.seconds, 3),
        notes=look.notes,
        system=facts.system,
        gpus=facts.gpus,
        toolkits=facts.toolkits,
        venvs=facts.venvs,
        caches=facts.caches,
        processes=facts.processes,
        processes_unread=facts.processes_unread,
        named_csrc=facts.named_csrc,
    )
