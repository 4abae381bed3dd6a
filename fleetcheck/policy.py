"""What a user decides about findings: which count, which are accepted, what fails a host, whom to leave alone.

In: an inventory's waivers and maintenance, and options. Out: findings with their waivers, and the evidence of
hosts that are not to be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from pydantic import TypeAdapter

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Inventory, Maintenance, Target, Waiver
from fleetcheck.inventory.nodes import expand
from fleetcheck.rules.choice import Choice
from fleetcheck.rules.finding import Finding, Severity, Waived, rank

Accepted = Mapping[str, Waived]
"""What is accepted of one host, by rule."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What makes a host fail, what is accepted, which hosts are left alone, and which rules are judged."""

    fail_on: Severity = "error"
    waivers: tuple[Waiver, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    choice: Choice = field(default_factory=Choice)

    @classmethod
    def of(cls, inventory: Inventory, fail_on: Severity = "error", choice: Choice | None = None) -> Policy:
        """Return the policy that an inventory states, for the rules that are chosen (None: every rule)."""
        return cls(fail_on, inventory.waivers, inventory.maintenance, choice or Choice())


policy_json: TypeAdapter[Policy] = TypeAdapter(Policy)


def resting(targets: Sequence[Target], policy: Policy, day: date) -> dict[str, Evidence]:
    """Return the evidence, ``skipped``, of the targets that are under maintenance on ``day``.

    Of several entries for one host the one that lasts longest is named.
    """
    names = {target.name: target for target in targets}
    rest: dict[str, Evidence] = {}
    for entry in sorted(policy.maintenance, key=lambda entry: entry.until):
        if entry.until >= day:
            why = f"maintenance until {entry.until}: {entry.reason}"
            for name in expand(entry.hosts):
                if name in names:
                    address = names[name].address
                    rest[name] = Evidence(name, "skipped", "queue", "maintenance", why, address, attempts=0)
    return rest


def accepted(policy: Policy, day: date) -> dict[str, Accepted]:
    """Return what the waivers in force on ``day`` accept, by host; of several, the one that lasts longest."""
    by_host: dict[str, dict[str, Waived]] = {}
    for waiver in sorted(policy.waivers, key=lambda waiver: waiver.until):
        if waiver.until >= day:
            waived = Waived(reason=waiver.reason, until=waiver.until.isoformat())
            for name in expand(waiver.hosts):
                by_host.setdefault(name, {})[waiver.rule] = waived
    return dict(by_host)


def waive(findings: Sequence[Finding], accepted: Mapping[str, Accepted]) -> tuple[Finding, ...]:
    """Return the findings, marked where they are accepted: by their own rule, or with the root that explains
    them.
    """
    return tuple(_waived(finding, accepted.get(finding.host or "", {})) for finding in findings)


def _waived(finding: Finding, accepted: Accepted) -> Finding:
    waived = accepted.get(finding.rule) or accepted.get(finding.cause or "")
    return finding.model_copy(update={"waived": waived}) if waived is not None else finding


def fails(findings: Sequence[Finding], fail_on: Severity) -> bool:
    """Return whether findings of one host make it fail: one that nobody accepted is grave enough."""
    return any(not finding.waived and rank(finding.severity) >= rank(fail_on) for finding in findings)
