"""What ``ansible-inventory --list`` prints becomes targets.

In: that JSON. Out: targets in the order of the groups, where each value comes from, and what could not be used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fleetcheck.errors import Problem
from fleetcheck.folding import fold
from fleetcheck.inventory import ansible_vars, resolve
from fleetcheck.inventory.explain import ALLOWED
from fleetcheck.inventory.model import Target
from fleetcheck.inventory.nodes import check_name
from fleetcheck.inventory.shape import Settings
from fleetcheck.inventory.source import Text
from fleetcheck.inventory.wording import shown

EVERY = frozenset({"all", "ungrouped"})
"""Ansible's own groups, which say nothing of a host."""


@dataclass(slots=True)
class Listing:
    """An Ansible inventory. ``variables`` names, host by host, the variable behind each key."""

    targets: tuple[Target, ...] = ()
    variables: dict[str, Mapping[str, str]] = field(default_factory=dict)
    children: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Notes:
    """What is said of hosts: one line for all hosts of which it is true."""

    source: str
    said: dict[str, list[str]] = field(default_factory=dict)

    def lines(self) -> Iterator[Problem]:
        for message, hosts in self.said.items():
            yield Problem(self.source, None, f"{shown(fold(dict.fromkeys(hosts)), 100)}: {message}")

    def of(self, host: str) -> ansible_vars.Note:
        return lambda message: self.said.setdefault(message, []).append(host)


def read(
    text: Text, problems: list[Problem], warnings: list[Problem], *, vaulted: Callable[[str], bool]
) -> Listing:
    """Return the inventory. ``vaulted`` tells whether a variable comes from an encrypted file: it is no secret."""
    known = len(problems)
    data = _data(text, problems)
    members = {
        name: group for name in data if name != "_meta" for group in [_group(text, name, data[name], problems)]
    }
    if len(problems) > known:
        return Listing()
    hostvars = data.get("_meta", {}).get("hostvars", {})
    hosts = _ordered(members)
    hosts.update(dict.fromkeys(hostvars))
    listing = Listing()
    errors, remarks = _Notes(text.name), _Notes(text.name)
    belongs = _belongs(members)
    targets = []
    for name in hosts:
        given = hostvars.get(name, {})
        problem = errors.of(name) if _is_name(name) else errors.of("?")
        try:
            check_name(name)
        except ValueError as error:
            problem(str(error))
            continue
        held = [one for one in ansible_vars.secrets(given) if not vaulted(one.partition(".")[0])]
        for variable in held:
            problem(f"{shown(variable)}: {ansible_vars.SECRETS}")
        found = ansible_vars.read(name, given, problem=problem, warning=remarks.of(name))
        target = _target(name, sorted(belongs.get(name, ())), found, problem)
        if target is not None:
            targets.append(target)
            listing.variables[name] = found.variables
    problems += errors.lines()
    warnings += remarks.lines()
    listing.targets = tuple(targets)
    listing.children = {name: tuple(children) for name, (_, children) in members.items() if name not in EVERY}
    return listing


def _data(text: Text, problems: list[Problem]) -> dict[str, Any]:
    try:
        data = json.loads(text.text, object_hook=_unmarked)
    except json.JSONDecodeError as error:
        problems.append(Problem(text.name, error.lineno, f"not JSON: {error.msg}", error.colno))
        return {}
    except RecursionError:
        problems.append(Problem(text.name, None, "not an inventory: nested too deep"))
        return {}
    meta = data.get("_meta") if isinstance(data, dict) else None
    hostvars = meta.get("hostvars") if isinstance(meta, dict) else None
    if not isinstance(hostvars, dict) or not all(isinstance(one, dict) for one in hostvars.values()):
        message = "no _meta.hostvars; this is not what `ansible-inventory --list` prints"
        problems.append(Problem(text.name, None, message))
        return {}
    return dict(data)


def _unmarked(value: dict[str, Any]) -> Any:
    """Return what Ansible marks as data of a third party, without the mark."""
    return value["__ansible_unsafe"] if value.keys() == {"__ansible_unsafe"} else value


def _group(text: Text, name: str, value: Any, problems: list[Problem]) -> tuple[list[str], list[str]]:
    """Return the hosts and children of one group."""
    parts = value if isinstance(value, dict) else {"hosts": value}
    hosts, children = parts.get("hosts", []), parts.get("children", [])
    if not all(isinstance(one, list) and all(isinstance(item, str) for item in one) for one in (hosts, children)):
        message = f"{shown(name)}: hosts and children are lists of names in what `ansible-inventory --list` prints"
        problems.append(Problem(text.name, None, message))
        return [], []
    if parts.get("vars"):
        message = f"{shown(name)}: holds vars; give what `ansible-inventory --list` prints without --export"
        problems.append(Problem(text.name, None, message))
    return hosts, children


def _ordered(members: Mapping[str, tuple[list[str], list[str]]]) -> dict[str, None]:
    """Return every host once: those of a group before those of its children, from ``all`` down."""
    hosts: dict[str, None] = {}
    seen: set[str] = set()
    waiting = [*reversed(list(members)), *(["all"] if "all" in members else [])]
    while waiting:
        name = waiting.pop()
        if name in members and name not in seen:
            seen.add(name)
            hosts.update(dict.fromkeys(members[name][0]))
            waiting += reversed(members[name][1])
    return hosts


def _belongs(members: Mapping[str, tuple[list[str], list[str]]]) -> dict[str, set[str]]:
    """Return the groups of each host, at any distance, without Ansible's own."""
    belongs: dict[str, set[str]] = {}
    for group in members:
        if group in EVERY:
            continue
        seen, waiting = {group}, [group]
        while waiting:
            hosts, children = members.get(waiting.pop(), ([], []))
            for host in hosts:
                belongs.setdefault(host, set()).add(group)
            fresh = [child for child in children if child not in seen]
            seen.update(fresh)
            waiting += fresh
    return belongs


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except ValueError:
        return False
    return True


def _target(name: str, groups: list[str], found: ansible_vars.Found, problem: ansible_vars.Note) -> Target | None:
    try:
        settings = Settings.model_validate(found.settings)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            key = str(one["loc"][0]) if one["loc"] else ""
            variable = found.variables.get(key, key)
            where = variable + "".join(
                f"[{step}]" if isinstance(step, int) else f".{step}" for step in one["loc"][1:]
            )
            named = [step for step in one["loc"] if step in ALLOWED]
            if one["type"] == "value_error":
                problem(f"{where}: {one['ctx']['error']}")
            elif one["type"] == "extra_forbidden":
                problem(f"{where}: unknown key")
            else:
                given = "a value" if isinstance(one["input"], (dict, list)) else shown(str(one["input"]))
                problem(
                    f"{where}: given {given}; allowed: {ALLOWED[str(named[-1])] if named else 'another value'}"
                )
        return None
    return resolve.target(name, groups, resolve.flat(settings, Path.cwd()))
