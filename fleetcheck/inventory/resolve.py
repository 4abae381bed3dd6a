"""Groups, parents and hosts become targets: the nearest setting wins.

In: the parts of one inventory. Out: resolved targets, and every problem that only shows between the parts:
a host or a group defined twice, a cycle of groups, an empty group, two groups that disagree about a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetcheck.errors import Problem
from fleetcheck.folding import fold
from fleetcheck.inventory import shape
from fleetcheck.inventory.document import Part
from fleetcheck.inventory.explain import key_path
from fleetcheck.inventory.model import Expect, Target
from fleetcheck.inventory.nodes import named, twice
from fleetcheck.inventory.wording import meant, shown

Place = tuple[Part, tuple[str | int, ...]]
PATHS = ("identity_file", "known_hosts", "ssh_config")
WAYS = {"proxy_jump": "proxy_command", "proxy_command": "proxy_jump"}
"""Each takes the place of the other: a host has one way through gateways."""


@dataclass(slots=True)
class Group:
    """One group: its own hosts and children, and what it sets (key to value)."""

    name: str
    place: Place
    hosts: tuple[str, ...]
    children: tuple[str, ...]
    settings: dict[str, Any]
    above: frozenset[str] = frozenset()
    """The groups that hold this one, at any distance."""


@dataclass(slots=True)
class Fleet:
    """All that the parts say, joined."""

    problems: list[Problem]
    lost: frozenset[str]
    """Holds ``hosts`` or ``groups`` where some are known to be absent, so that an unknown name proves nothing."""
    defaults: dict[str, Any] = field(default_factory=dict)
    defaults_at: Place | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    hosts: dict[str, Place] = field(default_factory=dict)
    """Every host, in the order of the inventory, and where it is named first."""
    own: dict[str, tuple[Place, dict[str, Any]]] = field(default_factory=dict)
    """What ``hosts:`` sets, and where."""
    member: dict[str, list[str]] = field(default_factory=dict)
    """The groups that name a host themselves."""

    def report(self, place: Place, message: str, *below: str | int) -> None:
        """Note a problem with the key at ``place``, or at the keys ``below`` it."""
        part, loc = place
        self.problems.append(part.problem((*loc, *below), message))


def join(parts: list[Part], problems: list[Problem], lost: frozenset[str]) -> Fleet:
    """Join the parts of an inventory; what is wrong between them is added to ``problems``."""
    fleet = Fleet(problems, lost.union(*(part.lost for part in parts)))
    first: Part | None = None
    for part in parts:
        if "defaults" in part.sections:
            if first is not None:
                fleet.report((part, ("defaults",)), f"given twice (first in {_at((first, ('defaults',)))})")
            else:
                first = part
                fleet.defaults_at = (part, ("defaults",))
                fleet.defaults = flat(part.document.defaults, part.folder)
        for section in part.sections:
            if section == "groups":
                _take_groups(fleet, part)
            elif section == "hosts":
                _take_hosts(fleet, part)
    _check_groups(fleet)
    return fleet


def targets(fleet: Fleet) -> tuple[Target, ...]:
    """Return every host resolved, in the order of the inventory."""
    by_groups: dict[tuple[str, ...], list[str]] = {}
    for host in fleet.hosts:
        by_groups.setdefault(tuple(fleet.member.get(host, ())), []).append(host)
    made: dict[str, Target] = {}
    for direct, hosts in by_groups.items():
        groups = sorted({*direct, *(name for one in direct for name in fleet.groups[one].above)})
        common = over(fleet.defaults, _nearest(fleet, groups, hosts))
        pattern = target("-", groups, common)
        for host in hosts:
            if host in fleet.own and fleet.own[host][1]:
                made[host] = target(host, groups, over(common, fleet.own[host][1]))
            else:
                made[host] = pattern.model_copy(update={"name": host})
    return tuple(made[host] for host in fleet.hosts)


def over(further: Mapping[str, Any], nearer: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``further`` with what ``nearer`` sets in its place."""
    hidden = {WAYS[key] for key in nearer if key in WAYS}
    return {key: value for key, value in further.items() if key not in hidden} | dict(nearer)


def _take_groups(fleet: Fleet, part: Part) -> None:
    for name, group in part.document.groups.items():
        place: Place = (part, ("groups", name))
        if name == "all" or not shape.NAME.fullmatch(name):
            why = "all means every host" if name == "all" else "a name has letters, digits, dots, - and _"
            fleet.report(place, f"no name for a group: {why}")
        if name in fleet.groups:
            fleet.report(place, f"the group is defined twice (first in {_at(fleet.groups[name].place)})")
            continue
        settings = flat(group, part.folder)
        fleet.groups[name] = Group(name, place, group.names, tuple(group.children), settings)
        _once(fleet, (part, (*place[1], "hosts")), group.names)
        for host in dict.fromkeys(group.names):
            fleet.hosts.setdefault(host, (part, (*place[1], "hosts")))
            fleet.member.setdefault(host, []).append(name)


def _take_hosts(fleet: Fleet, part: Part) -> None:
    for key, settings in part.document.hosts.items():
        place: Place = (part, ("hosts", key))
        try:
            names = named(key)
        except ValueError as error:
            fleet.report(place, str(error))
            fleet.lost |= {"hosts"}
            continue
        _once(fleet, place, names)
        known = [name for name in names if name in fleet.own]
        if known:
            fleet.report(place, f"{fold(known)} is defined twice (first in {_at(fleet.own[known[0]][0])})")
        own = flat(settings, part.folder)
        for name in names:
            fleet.hosts.setdefault(name, place)
            fleet.own.setdefault(name, (place, own))


def _once(fleet: Fleet, place: Place, names: Sequence[str]) -> None:
    more = twice(names)
    if more:
        fleet.report(place, f"{fold(more)} is listed twice")


def _check_groups(fleet: Fleet) -> None:
    parents: dict[str, list[str]] = {}
    for group in fleet.groups.values():
        for kept, child in enumerate(group.children):
            index = group.place[0].index((*group.place[1], "children"), kept)
            if child in group.children[:kept]:
                fleet.report(group.place, f"{shown(child)} is listed twice", "children", index)
            if child in fleet.groups:
                parents.setdefault(child, []).append(group.name)
            elif "groups" not in fleet.lost:
                message = f"no group is called {shown(child)}{meant(child, fleet.groups)}"
                fleet.report(group.place, message, "children", index)
        written = group.place[0].keys(*group.place[1])
        if not written & {"hosts", "children"} and written <= shape.Group.model_fields.keys():
            fleet.report(group.place, "the group is empty; it needs hosts or children")
        if group.name in fleet.hosts:
            where = _at(fleet.hosts[group.name])
            fleet.report(group.place, f"a group and a host have one name (the host stands in {where})")
    for group in fleet.groups.values():
        group.above = frozenset(_above(group.name, parents))
    _check_rings(fleet)


def _check_rings(fleet: Fleet) -> None:
    """Report every ring of groups once, with a shortest way around it."""
    done: set[str] = set()
    for name, group in fleet.groups.items():
        if name in group.above and name not in done:
            ring = frozenset(one for one in group.above if name in fleet.groups[one].above)
            done |= ring
            path = " > ".join(map(shown, _ring(name, fleet.groups, ring)))
            fleet.report(group.place, f"the groups hold each other: {path}", "children")


def _above(name: str, parents: Mapping[str, list[str]]) -> Iterator[str]:
    seen: set[str] = set()
    waiting = list(parents.get(name, ()))
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            yield one
            waiting += parents.get(one, ())


def _ring(start: str, groups: Mapping[str, Group], ring: frozenset[str]) -> list[str]:
    """Return a shortest way from ``start`` through its children back to ``start``."""
    ways = [[start]]
    seen: set[str] = set()
    for way in ways:
        for child in groups[way[-1]].children:
            if child == start:
                return [*way, start]
            if child in ring and child not in seen:
                seen.add(child)
                ways.append([*way, child])
    return [start, start]


def _nearest(fleet: Fleet, names: list[str], hosts: list[str]) -> dict[str, Any]:
    """Return what the groups ``names`` set for ``hosts``; unrelated groups that disagree are a problem."""
    chosen: dict[str, Any] = {}
    for key, near in nearest_groups(fleet, names).items():
        chosen[key] = near[0].settings[key]
        other = next((one for one in near if one.settings[key] != chosen[key]), None)
        if other is None:
            continue
        torn = [host for host in hosts if host not in fleet.own or key not in fleet.own[host][1]]
        if torn:
            part, loc = near[0].place
            below = key.split(".")
            fleet.report(
                other.place,
                f"differs from {key_path((*loc, *below))} ({_at((part, (*loc, *below)))}) for {fold(torn)}; "
                "set it on the hosts, or make one group a child of the other",
                *below,
            )
    torn = [host for host in hosts if host not in fleet.own or not WAYS.keys() & fleet.own[host][1].keys()]
    if torn and WAYS.keys() <= chosen.keys():
        jump, other = (nearest_groups(fleet, names)[key][0] for key in WAYS)
        message = (
            f"the group {shown(jump.name)} sets another way (proxy_jump) for {fold(torn)}; set it on the hosts"
        )
        fleet.report(other.place, message, "proxy_command")
    return chosen


def nearest_groups(fleet: Fleet, names: Iterable[str]) -> dict[str, list[Group]]:
    """Return each key that the groups ``names`` set, and those of them that set it and are equally near."""
    setters: dict[str, list[Group]] = {}
    for name in names:
        for key in fleet.groups[name].settings:
            setters.setdefault(key, []).append(fleet.groups[name])
    found = {}
    for key, groups in setters.items():
        rivals = groups + setters.get(WAYS.get(key, ""), [])
        near = [one for one in groups if not any(one.name in other.above for other in rivals)]
        if near or key not in WAYS:
            found[key] = near or groups
    return found


def flat(settings: shape.Settings, folder: Path) -> dict[str, Any]:
    """Return the keys that are set, those of ``expect`` and ``rules`` one by one as ``expect.KEY``."""
    found: dict[str, Any] = {}
    for key in Target.model_fields:
        if key not in settings.model_fields_set:
            continue
        value = getattr(settings, key)
        if key == "expect":
            found |= {f"expect.{one}": getattr(value, one) for one in sorted(value.model_fields_set)}
        elif key == "rules":
            found |= {f"rules.{pattern}": level for pattern, level in value.items()}
        elif key == "venvs":
            found[key] = tuple(entry.resolved() for entry in value)
        elif key in PATHS:
            found[key] = _path(value, folder)
        else:
            found[key] = value.rstrip("/") if key == "sysroot" else value
    return found


def _path(value: str, folder: Path) -> str:
    """Return an absolute path; ``none`` and what begins with a token of ssh (``%d/key``) stay as they are."""
    if value == "none" or value.startswith("%"):
        return value
    if value.startswith("~"):
        try:
            return str(Path(value).expanduser())
        except RuntimeError:  # no home folder is known: cron without HOME, a user that does not exist
            return value
    return str(folder / value)


def target(name: str, groups: list[str], settings: Mapping[str, Any]) -> Target:
    """Return the target of settings as :func:`flat` gives them."""
    expect = {key.removeprefix("expect."): value for key, value in settings.items() if key.startswith("expect.")}
    rules = {key.removeprefix("rules."): value for key, value in settings.items() if key.startswith("rules.")}
    own = {key: value for key, value in settings.items() if not key.startswith(("expect.", "rules."))}
    return Target(name=name, groups=tuple(groups), expect=Expect(**expect), rules=rules, **own)


def _at(place: Place) -> str:
    part, loc = place
    return f"{part.name}:{part.line(*loc)}"
