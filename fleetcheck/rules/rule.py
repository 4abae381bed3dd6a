"""What a rule is: words for a reader, and a pure check over the facts of one host or over a whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from fleetcheck.facts.records import Basis, FlashInfer, Gpus, HostFacts, Toolkit, Venv
from fleetcheck.inventory.model import Expect, Target, VenvItem, Waiver
from fleetcheck.rules.finding import Finding, Severity

Family = Literal["csrc", "venv", "fusion", "toolchain", "gpu", "policy", "fleet"]


@dataclass(frozen=True, slots=True)
class Hit:
    """What a check found. Rule and reference are added by the judge, and the host where one host was judged.

    ``host`` is set by checks over a whole run, and None there for what concerns no single host. ``venv`` is the
    path of the environment, or the inventory's entry that led to none. ``severity`` replaces the rule's own.
    ``key`` tells hits of one rule apart for causes (``expectation-unchecked/gpus``).
    """

    message: str
    host: str | None = None
    venv: str | None = None
    gpu: str | None = None
    key: str | None = None
    severity: Severity | None = None
    expected: Any = None
    seen: Any = None
    basis: Basis | None = None
    remedy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """One host as a check sees it: what is known, and what is expected."""

    target: Target
    facts: HostFacts

    def item(self, venv: Venv) -> VenvItem | None:
        """Return the inventory entry that named this environment, None where it was discovered."""
        for item in self.target.venvs:
            if isinstance(item, VenvItem) and item.path == venv.item:
                return item
        return None

    def expect(self, venv: Venv | None = None) -> Expect:
        """Return the host's expectations, with those of the environment's own entry over them."""
        item = self.item(venv) if venv is not None else None
        return self.target.expect if item is None else self.target.expect.merged(item.expect)

    def sets(self, venv: Venv, key: str) -> bool:
        """Return whether the environment's own entry gives this expectation, not just the host."""
        item = self.item(venv)
        return item is not None and getattr(item.expect, key) is not None

    def installed(self) -> Iterable[tuple[Venv, FlashInfer]]:
        """Yield the environments in which FlashInfer was found, with what was found."""
        for venv in self.facts.venvs:
            if venv.state == "ok" and venv.flashinfer is not None:
                yield venv, venv.flashinfer


@dataclass(frozen=True, slots=True)
class Member:
    """One host of a run as a fleet rule sees it: how the look at it ended, and what is known of it."""

    name: str
    groups: tuple[str, ...] = ()
    outcome: str = "checked"
    stage: str | None = None
    detail: str | None = None
    gpus: Gpus = field(default_factory=Gpus)
    toolkits: tuple[Toolkit, ...] = ()
    venvs: tuple[Venv, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetLook:
    """A whole run as a fleet rule sees it. ``day`` is the one that it began on, in UTC.

    ``findings`` are those of each host so far; ``known`` are all rules, ``judged`` those that were selected.
    """

    members: tuple[Member, ...]
    findings: Mapping[str, tuple[Finding, ...]]
    waivers: tuple[Waiver, ...]
    day: date
    known: frozenset[str]
    judged: frozenset[str]


Check = Callable[[Look], Iterable[Hit]]
FleetCheck = Callable[[FleetLook], Iterable[Hit]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``causes`` are the findings that it explains: ``slug``, or ``slug/key`` for one kind of them.

    ``references`` are addresses, or pages of the documentation (``docs/ssh.md``).
    ``remedy`` says in general how it is mended; each finding has the steps for its own host. A rule has one of
    ``check``, over one host, and ``fleet_check``, over a whole run.
    """

    slug: str
    family: Family
    severity: Severity
    summary: str
    explanation: str
    remedy: str
    references: tuple[str, ...]
    check: Check | None = None
    causes: tuple[str, ...] = ()
    fleet_check: FleetCheck | None = None

    @property
    def reference(self) -> str:
        """Where a reader of a finding reads on: an address, or a command where a page of ours would be one.

        An installed fleetcheck has no such pages; ``fleetcheck rules`` shows what they say of a rule.
        """
        first = self.references[0]
        return first if first.startswith("https://") else f"fleetcheck rules {self.slug}"


def rule(
    slug: str,
    family: Family,
    severity: Severity,
    *,
    summary: str,
    explanation: str,
    remedy: str,
    references: tuple[str, ...],
    causes: tuple[str, ...] = (),
) -> Callable[[Check], Rule]:
    """Make a :class:`Rule` of the check that is decorated."""

    def wrap(check: Check) -> Rule:
        return Rule(slug, family, severity, summary, explanation, remedy, references, check, causes)

    return wrap


def fleet_rule(
    slug: str,
    family: Family,
    severity: Severity,
    *,
    summary: str,
    explanation: str,
    remedy: str,
    references: tuple[str, ...],
) -> Callable[[FleetCheck], Rule]:
    """Make a :class:`Rule` over a whole run of the check that is decorated."""

    def wrap(check: FleetCheck) -> Rule:
        return Rule(slug, family, severity, summary, explanation, remedy, references, fleet_check=check)

    return wrap
