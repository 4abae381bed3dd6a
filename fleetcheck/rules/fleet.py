"""Rules over a whole run: hosts that all fail in one way, and hosts that differ from their group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from fleetcheck.folding import fold
from fleetcheck.rules import outliers, text
from fleetcheck.rules.rule import FleetLook, Hit, Member, fleet_rule

FEWEST = 3
"""Fewer hosts than this that fail alike are no sign of a common cause."""
HERE: dict[str, tuple[str, tuple[str, ...]]] = {
    "auth-failed": (
        "the key or the user name that this machine logs in with",
        (
            "ssh -v -o BatchMode=yes {host} true",
            "Check user and identity_file in the inventory; from cron there is no ssh-agent.",
        ),
    ),
    "host-key-unknown": (
        "the known_hosts file that this machine reads",
        (
            "ssh-keygen -F {host}",
            "Name the right file under known_hosts in the inventory, or record keys once with --accept-new.",
        ),
    ),
    "host-key-changed": (
        "a known_hosts file that is old, or somebody between this machine and the hosts",
        ("ssh-keygen -lF {host}", "Compare the fingerprint on the console of one host; accept nothing before."),
    ),
    "gateway-failed": ("the gateway", ("ssh -v -o BatchMode=yes {host} true",)),
    "unreachable": (
        "the network, the VPN, the name service or a firewall of this machine",
        ("ssh -v -o BatchMode=yes {host} true", "Run the audit from another machine of the same network."),
    ),
    "timeout": (
        "the network of this machine, a gateway, or limits that are too short",
        ("ssh -v -o BatchMode=yes {host} true", "Try fewer --workers, or a longer --limit for this stage."),
    ),
    "probe-error": (
        "fleetcheck itself, or a program that the login of this user starts",
        ("ssh {host} true", "fleetcheck --debug audit {host} -i INVENTORY"),
    ),
}
"""By outcome: what on this side it may be, and how to find out."""


def failures(look: FleetLook) -> tuple[Counter[tuple[str, str | None, str | None]], dict[str, list[Member]], int]:
    """Return how many hosts failed in each way, the hosts by outcome, and how many hosts were to be looked at.

    Hosts that were left alone on purpose, or that an interrupted run never came to, do not count.
    """
    tried = [one for one in look.members if one.outcome != "skipped" and one.detail != "interrupted"]
    failed: dict[str, list[Member]] = defaultdict(list)
    for one in tried:
        if one.outcome != "checked":
            failed[one.outcome].append(one)
    ways = Counter((one.outcome, one.stage, one.detail) for hosts in failed.values() for one in hosts)
    return ways, failed, len(tried)


@fleet_rule(
    "fleet-suspicious",
    "fleet",
    "warning",
    summary="Most hosts could not be looked at, all in the same way.",
    explanation=(
        "When more than half of the hosts fail with one outcome at the same moment, the cause is more often "
        "one thing on this side (a key, the network, a gateway, a known_hosts file) than as many faults on "
        "the hosts. Nothing is known of those hosts: their last state may be as good as ever. It takes "
        "three such hosts at least."
    ),
    remedy="Try one of the hosts by hand with ssh from this machine, mend what that shows, and audit again.",
    references=("docs/ssh.md", "https://man.openbsd.org/ssh.1"),
)
def fleet_suspicious(look: FleetLook) -> Iterator[Hit]:
    """Fire where more than half of the hosts failed with one outcome."""
    ways, failed, tried = failures(look)
    for outcome, hosts in failed.items():
        if len(hosts) < FEWEST or 2 * len(hosts) <= tried:
            continue
        (_, stage, detail), count = max(
            ((way, count) for way, count in ways.items() if way[0] == outcome), key=lambda item: item[1]
        )
        alike = ", ".join(part for part in (detail, stage and f"stage {stage}") if part)
        alike = f" ({count} of them: {alike})" if alike and count < len(hosts) else f" ({alike})" if alike else ""
        side, steps = HERE.get(outcome, ("something on this side", ("ssh -v -o BatchMode=yes {host} true",)))
        host = text.quote(hosts[0].name)
        yield Hit(
            f"{len(hosts)} of {tried} hosts ended alike, with {outcome}{alike}; the cause may be on this side: "
            f"{side}.",
            seen={"outcome": outcome, "hosts": fold(one.name for one in hosts)},
            remedy=tuple(step.replace("{host}", host) for step in steps),
        )


@fleet_rule(
    "fleet-outlier",
    "fleet",
    "warning",
    summary="A host differs from nearly all others of its group.",
    explanation=(
        "Versions, sha256 sums of the files that decide, gates, toolkits, the driver, the GPUs and their "
        "link are compared within each group of five and more hosts. Where four fifths or more agree, the "
        "others are outliers. A host is compared in its smallest group that is large enough. Where all hosts of a "
        "smaller group agree with each other, they are no outliers of a larger one. What a rule of its own "
        "says of the host already is "
        "left out, and so are facts that change by themselves or name one machine. Hosts that differ in the "
        "same way, as in the middle of an upgrade, read as one line."
    ),
    remedy=(
        "See what sets the host apart (`fleetcheck compare`), and bring it to what the others have. Where "
        "the difference is meant, give these hosts a group of their own."
    ),
    references=("docs/inventory.md",),
)
def fleet_outlier(look: FleetLook) -> Iterator[Hit]:
    """Fire for each host that differs; facts of environments that neither are listed nor serve are a note."""
    for name, odd in outliers.find(look.members).items():
        told = look.findings.get(name, ())
        kept = [one for one in odd if not outliers.is_told(one, told)]
        for idle in (False, True):
            some = [one for one in kept if one.trait.idle is idle]
            if some:
                yield outlier_hit(name, some, idle)


def outlier_hit(name: str, odd: list[outliers.Odd], idle: bool) -> Hit:
    """Return the hit of one host. Its words name no host, so that hosts that differ alike fold to one line."""
    group = odd[0].group
    where = f"most hosts of {text.brief(group)}" if group else "most hosts"
    parts = [
        f"{one.trait.words} is {outliers.shown(one.seen)}, not {outliers.shown(one.common)}" for one in odd[:3]
    ]
    more = f", and {text.plural(len(odd) - 3, 'more fact')}" if len(odd) > 3 else ""
    venvs = {one.trait.venv for one in odd}
    return Hit(
        f"Unlike {where}: {'; '.join(parts)}{more}.",
        host=name,
        venv=next(iter(venvs)) if len(venvs) == 1 else None,
        severity="info" if idle else None,
        expected={one.trait.words: outliers.shown(one.common) for one in odd},
        seen={one.trait.words: outliers.shown(one.seen) for one in odd},
        remedy=(
            f"fleetcheck audit {text.quote(group or 'all')} -i INVENTORY --fold  # what sets these hosts apart",
            (
                "Bring them to what the others have; or give them a group of their own in the inventory, if it "
                "is meant."
            ),
        ),
    )


RULES = (fleet_outlier, fleet_suspicious)
