"""The record of one audit: the JSON document ``fleetcheck/run/1``, and the events that lead to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fleetcheck.agent.evidence import Outcome, Stage
from fleetcheck.facts.records import VOLATILE, Cache, Gpus, NamedCsrc, Process, System, Toolkit, Venv
from fleetcheck.rules.finding import Finding, Severity

SCHEMA: Literal["fleetcheck/run/1"] = "fleetcheck/run/1"
Verdict = Literal[
    "ok", "findings", "probe-error", "auth-failed", "host-key-unknown", "host-key-changed",
    "unreachable", "timeout", "gateway-failed", "skipped",
]  # fmt: skip


class Record(BaseModel):
    """A frozen record of the document. Newer documents may hold more keys; they are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class RunInfo(Record):
    """One audit. Times are RFC 3339 in UTC; ``complete`` is False where it was interrupted.

    ``select`` and ``ignore`` are the rules that it was limited to, as the user named them; ``fail_on`` is None
    where it is not known.
    """

    id: str
    started: str
    finished: str | None
    version: str
    inventory: str
    complete: bool
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: Severity | None = None


class Summary(Record):
    """Counts. ``hosts`` is every selected host: ``ok + findings + not_checked``.

    ``not_checked`` counts hosts under maintenance too; readers are told the two apart (:func:`tally`).
    """

    hosts: int
    ok: int
    findings: int
    not_checked: int
    by_outcome: dict[Outcome, int]

    @property
    def maintenance(self) -> int:
        """How many hosts were left alone on purpose."""
        return self.by_outcome.get("skipped", 0)

    @property
    def unseen(self) -> int:
        """How many hosts were to be checked, and could not be."""
        return self.not_checked - self.maintenance


class HostResult(Record):
    """How the look at one host ended (``outcome``), what is said of it (``verdict``), and the facts."""

    name: str
    address: str | None
    groups: tuple[str, ...]
    outcome: Outcome
    stage: Stage | None
    detail: str | None
    message: str | None
    verdict: Verdict
    attempts: Annotated[int, VOLATILE]
    seconds: Annotated[float, VOLATILE]
    notes: Annotated[tuple[str, ...], VOLATILE] = ()
    """What was odd on the way to the host or in its answer, and changed nothing: a bad line of known_hosts."""
    system: System | None
    gpus: Gpus
    toolkits: tuple[Toolkit, ...]
    venvs: tuple[Venv, ...]
    caches: tuple[Cache, ...] | None
    processes: tuple[Process, ...] | None
    processes_unread: Annotated[tuple[str, ...], VOLATILE] = ()
    """Processes that may serve and could not be looked at, with the reason."""
    named_csrc: tuple[NamedCsrc, ...] = ()
    """Paths of CUDA sources that units and start scripts of what serves name."""


class Run(Record):
    """The whole document. Every selected host appears exactly once, in inventory order."""

    schema_: Literal["fleetcheck/run/1"] = Field(default=SCHEMA, alias="schema")
    run: RunInfo
    summary: Summary
    hosts: tuple[HostResult, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON values, by its promised names."""
        document: dict[str, Any] = self.model_dump(mode="json", by_alias=True)
        return document


@dataclass(frozen=True, slots=True)
class Started:
    """The audit begins; ``hosts`` is how many it will look at."""

    info: RunInfo
    hosts: int


@dataclass(frozen=True, slots=True)
class HostDone:
    """One host's look ended. Its verdict is final only in :class:`Finished`."""

    host: HostResult
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The audit ended; ``run`` is the record."""

    run: Run


Event = Started | HostDone | Finished


def summarise(hosts: tuple[HostResult, ...]) -> Summary:
    """Count verdicts and outcomes."""
    verdicts = Counter(host.verdict for host in hosts)
    return Summary(
        hosts=len(hosts),
        ok=verdicts["ok"],
        findings=verdicts["findings"],
        not_checked=len(hosts) - verdicts["ok"] - verdicts["findings"],
        by_outcome=dict(sorted(Counter(host.outcome for host in hosts).items())),
    )


def tally(total: Summary) -> str:
    """Return the counts for a reader: ``2 ok, 1 failing, 0 not checked``, and those in maintenance."""
    counts = f"{total.ok} ok, {total.findings} failing, {total.unseen} not checked"
    return f"{counts}, {total.maintenance} in maintenance" if total.maintenance else counts


def exit_code(run: Run) -> int:
    """Return 0 all ok, 1 findings, 3 some hosts not checked, 4 both; 130 where the run was interrupted.

    A host skipped for maintenance is left alone on purpose and does not count as not checked.
    """
    if not run.run.complete:
        return 130
    findings = any(host.verdict == "findings" for host in run.hosts)
    unseen = any(host.verdict not in ("ok", "findings", "skipped") for host in run.hosts)
    return {(False, False): 0, (True, False): 1, (False, True): 3, (True, True): 4}[findings, unseen]
