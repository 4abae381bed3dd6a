"""Rules on the waivers of an inventory: those that ended, and those that accept nothing."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from fleetcheck.folding import fold
from fleetcheck.inventory.model import Waiver
from fleetcheck.inventory.nodes import expand
from fleetcheck.rules import text
from fleetcheck.rules.rule import FleetLook, Hit, fleet_rule

GUIDE = "docs/inventory.md"


def concerned(look: FleetLook, waiver: Waiver) -> list[str]:
    """Return the hosts of this run that a waiver speaks of, in its order."""
    names = {member.name for member in look.members}
    return [name for name in expand(waiver.hosts) if name in names]


def having(look: FleetLook, waiver: Waiver, hosts: list[str]) -> list[str]:
    """Return those of ``hosts`` on which the waiver's rule found something."""
    return [name for name in hosts if any(finding.rule == waiver.rule for finding in look.findings.get(name, ()))]


def title(waiver: Waiver) -> str:
    """Return the beginning of a sentence on a waiver."""
    return f"The waiver of {text.brief(waiver.rule)} on {text.brief(waiver.hosts)} ({text.brief(waiver.reason)})"


@fleet_rule(
    "waiver-expired",
    "policy",
    "warning",
    summary="A waiver of the inventory has ended.",
    explanation=(
        "A waiver accepts a finding until the last day that it names. After that day the finding counts "
        "again and may fail the run, so that nothing is accepted for ever by oversight. Only waivers that "
        "speak of hosts of this run are judged; days are those of UTC."
    ),
    remedy=(
        "Mend what was waived and delete the entry; or look at the reason again, and write a new last day "
        "under `until`."
    ),
    references=(GUIDE,),
)
def waiver_expired(look: FleetLook) -> Iterator[Hit]:
    """Fire for each waiver whose last day is past."""
    checked = {member.name for member in look.members if member.outcome == "checked"}
    for waiver in look.waivers:
        hosts = concerned(look, waiver)
        if not hosts or waiver.until >= look.day:
            continue
        left = having(look, waiver, hosts)
        if left:
            still = f"the finding is still there on {text.brief(fold(left))}"
            steps: tuple[str, ...] = (
                f"fleetcheck rules {text.quote(waiver.rule)}  # what it is, and what mends it",
                "If it is to be accepted for longer, write a new last day under until in the inventory.",
                "When it is mended, delete this entry of waivers in the inventory.",
            )
        elif waiver.rule in look.judged and checked.issuperset(expand(waiver.hosts)):
            still = "nothing of it was found"
            steps = ("Delete this entry of waivers in the inventory.",)
        else:
            still = "whether the finding is still there was not looked at"
            steps = (
                f"fleetcheck audit {text.quote(waiver.hosts)} -i INVENTORY",
                "Then delete this entry of waivers in the inventory, or write a new last day under until.",
            )
        yield Hit(
            f"{title(waiver)} ended on {waiver.until}; {still}.",
            expected=f"until {look.day} or later",
            seen=waiver.until.isoformat(),
            remedy=steps,
        )


@fleet_rule(
    "waiver-unused",
    "policy",
    "info",
    summary="A waiver of the inventory accepts nothing.",
    explanation=(
        "Each host that the waiver names was looked at, and its rule found nothing on any of them: what "
        "was waived is mended, or the name of the rule is mistyped. A waiver that is left would hide the "
        "same fault when it comes back. Nothing is said where one of its hosts was not part of the run or "
        "was not checked, or where its rule was not selected."
    ),
    remedy="Delete the entry, or correct the name of its rule.",
    references=(GUIDE,),
)
def waiver_unused(look: FleetLook) -> Iterator[Hit]:
    """Fire for each waiver in force whose rule is known to have found nothing on all of its hosts."""
    checked = {member.name for member in look.members if member.outcome == "checked"}
    for waiver in look.waivers:
        hosts = concerned(look, waiver)
        if not hosts or waiver.until < look.day:
            continue
        if waiver.rule not in look.known:
            nearest = get_close_matches(waiver.rule, sorted(look.known), n=1, cutoff=0.5)
            hint = f"Write {nearest[0]} if that is meant; " if nearest else ""
            yield Hit(
                f"{title(waiver)} accepts nothing: there is no rule of that name.",
                seen=waiver.rule,
                remedy=(
                    f"{hint}`fleetcheck rules` lists all.",
                    "Delete this entry in the inventory, or correct its rule.",
                ),
            )
        elif (
            waiver.rule in look.judged
            and checked.issuperset(expand(waiver.hosts))
            and not having(look, waiver, hosts)
        ):
            yield Hit(
                f"{title(waiver)} accepts nothing: {text.brief(waiver.rule)} was not found there.",
                seen=0,
                remedy=("Delete this entry of waivers in the inventory.",),
            )


RULES = (waiver_expired, waiver_unused)
