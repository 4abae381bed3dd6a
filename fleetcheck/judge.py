"""From looks to a run: facts, rules, waivers, verdicts. Knows no transport, so that a replay is the same code.

In: targets and, as they end, the evidence of each. Out: :class:`fleetcheck.run.Event` records; the last one
holds the :class:`fleetcheck.run.Run`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from pydantic import TypeAdapter

from fleetcheck.agent.evidence import Evidence
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import HostFacts
from fleetcheck.inventory.model import Inventory, Maintenance, Target, Waiver
from fleetcheck.inventory.nodes import expand
from fleetcheck.rules.finding import Finding, Severity, Waived, rank
from fleetcheck.rules.judge import judge_host
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


@dataclass(frozen=True, slots=True)
class Policy:
    """What makes a host fail, what is accepted, and which hosts are left alone."""

    fail_on: Severity = "error"
    waivers: tuple[Waiver, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()

    @classmethod
    def of(cls, inventory: Inventory, fail_on: Severity = "error") -> Policy:
        """Return the policy that an inventory states."""
        return cls(fail_on, inventory.waivers, inventory.maintenance)


policy_json: TypeAdapter[Policy] = TypeAdapter(Policy)


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


def resting(targets: Sequence[Target], policy: Policy, day: date) -> dict[str, Evidence]:
    """Return the evidence, ``skipped``, of the targets that are under maintenance on ``day``."""
    rest: dict[str, Evidence] = {}
    for entry in policy.maintenance:
        if entry.until >= day:
            why = f"maintenance until {entry.until}: {entry.reason}"
            for name in expand(entry.hosts):
                rest[name] = Evidence(name, "skipped", "queue", "maintenance", why, attempts=0)
    names = {target.name: target for target in targets}
    return {name: replace(look, address=names[name].address) for name, look in rest.items() if name in names}


@dataclass(slots=True)
class _Book:
    """What a run has gathered so far, host by host."""

    targets: Mapping[str, Target]
    info: RunInfo
    policy: Policy
    accepted: Mapping[str, Mapping[str, Waived]] = field(default_factory=dict)
    done: dict[str, HostDone] = field(default_factory=dict)

    def enter(self, target: Target, look: Evidence) -> HostDone:
        entry = _judged(target, look, self.policy, self.accepted.get(target.name, {}))
        self.done[target.name] = entry
        return entry

    def close(self, finished: str, *, complete: bool) -> Finished:
        for name, target in self.targets.items():
            if name not in self.done:
                self.enter(
                    target,
                    Evidence(name, "timeout", "queue", "interrupted", "the run ended first", attempts=0),
                )
        order = [self.done[name] for name in self.targets]
        hosts = tuple(entry.host for entry in order)
        findings = tuple(finding for entry in order for finding in entry.findings)
        info = self.info.model_copy(update={"finished": finished, "complete": complete})
        return Finished(Run(run=info, summary=summarise(hosts), hosts=hosts, findings=findings))


@dataclass(slots=True)
class End:
    """How the source of looks ended; a replay fills it from its recording, a live audit leaves it alone."""

    finished: str | None = None
    complete: bool = True


def pipeline(
    targets: Sequence[Target],
    looks: Iterable[tuple[Target, Evidence]],
    info: RunInfo,
    policy: Policy,
    end: End | None = None,
) -> Iterator[Event]:
    """Judge looks as they end. Yields Started, a HostDone each, Finished with every target exactly once.

    A KeyboardInterrupt, raised inside or thrown in, ends the run early: what was gathered is reported, the rest
    is accounted as not looked at, and the run is not ``complete``.
    """
    end = end or End()
    day = datetime.fromisoformat(info.started).date()
    book = _Book({target.name: target for target in targets}, info, policy, _accepted(policy, day))
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
    yield book.close(end.finished or stamp(now()), complete=complete and end.complete)


def _accepted(policy: Policy, day: date) -> dict[str, dict[str, Waived]]:
    accepted: dict[str, dict[str, Waived]] = {}
    for waiver in policy.waivers:
        if waiver.until >= day:
            waived = Waived(reason=waiver.reason, until=waiver.until.isoformat())
            for name in expand(waiver.hosts):
                accepted.setdefault(name, {})[waiver.rule] = waived
    return accepted


def _judged(target: Target, look: Evidence, policy: Policy, accepted: Mapping[str, Waived]) -> HostDone:
    try:
        facts = host_facts(look.parts, target.expect.compute_capability)
        found = judge_host(target, facts) if look.parts else ()
    except Exception as error:
        # One host's evidence must never end the run of a thousand; what it broke is this host's failure, in full.
        log.exception("%s: its evidence could not be judged", target.name)
        why = f"fleetcheck itself failed on this evidence: {type(error).__name__}: {error}"
        look = replace(look, outcome="probe-error", stage="probe", detail="internal", message=why)
        facts, found = HostFacts(), ()
    findings = tuple(
        finding.model_copy(update={"waived": accepted[finding.rule]}) if finding.rule in accepted else finding
        for finding in found
    )
    return HostDone(_result(target, look, facts, _verdict(look, findings, policy.fail_on)), findings)


def _verdict(look: Evidence, findings: Sequence[Finding], fail_on: Severity) -> Verdict:
    if look.outcome != "checked":
        return look.outcome
    grave = any(not finding.waived and rank(finding.severity) >= rank(fail_on) for finding in findings)
    return "findings" if grave else "ok"


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
        system=facts.system,
        gpus=facts.gpus,
        toolkits=facts.toolkits,
        venvs=facts.venvs,
        caches=facts.caches,
        processes=facts.processes,
    )
