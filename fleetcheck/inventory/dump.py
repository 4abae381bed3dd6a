"""An inventory written out again, resolved: as YAML that loads to the same targets, as JSON values, as rows.

In: an inventory and the targets chosen of it. Out: text or plain values. Nothing here prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from fleetcheck.folding import fold
from fleetcheck.inventory.model import Expect, Inventory, Maintenance, Target, Waiver
from fleetcheck.inventory.nodes import expand

HEADERS = ("host", "address", "user", "via", "groups", "venvs", "expect")


def to_json(inventory: Inventory, targets: Sequence[Target]) -> dict[str, Any]:
    """Return ``source``, ``targets``, ``waivers`` and ``maintenance`` as JSON values, without what is not set."""
    shown = inventory.model_copy(update=_narrowed(inventory, targets) | {"targets": tuple(targets)})
    return shown.model_dump(mode="json", exclude_none=True)


def to_yaml(inventory: Inventory, targets: Sequence[Target]) -> str:
    """Return a native inventory that resolves to the same targets, waivers and maintenance, in the same order.

    Each host carries its own settings; a group is only a list of names. ``hosts`` comes first and gives the order.
    """
    groups: dict[str, list[str]] = {}
    for target in targets:
        for group in target.groups:
            groups.setdefault(group, []).append(target.name)
    document: dict[str, Any] = {"hosts": {target.name: _settings(target) for target in targets}}
    if groups:
        document["groups"] = {name: {"hosts": fold(hosts)} for name, hosts in sorted(groups.items())}
    for section, entries in _narrowed(inventory, targets).items():
        if entries:
            document[section] = [entry.model_dump() for entry in entries]
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def settings(targets: Iterable[Target]) -> dict[str, dict[str, Any]]:
    """Return what is set for hosts beside environments and expectations; hosts alike are one nodeset."""
    alike: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for target in targets:
        given = _reaching(target)
        if given:
            alike.setdefault(yaml.safe_dump(given), (given, []))[1].append(target.name)
    return {fold(names): given for given, names in alike.values()}


def section(name: str, value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return one section of an inventory as YAML; nothing where it is empty."""
    if not value:
        return ""
    return yaml.safe_dump({name: value}, sort_keys=False, width=110)


def rows(targets: Sequence[Target]) -> list[tuple[str, ...]]:
    """Return one row a target, in the order of ``HEADERS``. What ssh config decides is empty."""
    return [
        (
            target.name,
            _address(target),
            target.user or "",
            _via(target),
            ",".join(target.groups),
            ", ".join(item if isinstance(item, str) else item.path for item in target.venvs),
            _expectations(target.expect),
        )
        for target in targets
    ]


def graph(targets: Sequence[Target], children: Mapping[str, Sequence[str]]) -> str:
    """Return the groups of ``targets`` as an outline: a group, below it its child groups and the hosts of none
    of them.

    ``children`` maps a group to its child groups. A group with two parents stands below both.
    """
    members: dict[str, list[str]] = {}
    for target in targets:
        for group in target.groups:
            members.setdefault(group, []).append(target.name)
    below = {name: [child for child in children.get(name, ()) if child in members] for name in members}
    lines = [f"all: {_count(len(targets))}"]

    def branch(name: str, depth: int, above: frozenset[str]) -> None:
        nested = {host for child in below[name] for host in members[child]}
        own = [host for host in members[name] if host not in nested]
        indent = "  " * depth
        lines.append(f"{indent}{name}: {_count(len(members[name]))}" + (f", {fold(own)}" if own else ""))
        for child in below[name]:
            if child not in above:
                branch(child, depth + 1, above | {child})

    inner = {child for name in below for child in below[name]}
    for name in sorted(members.keys() - inner):
        branch(name, 1, frozenset({name}))
    alone = [target.name for target in targets if not target.groups]
    if alone:
        lines.append(f"  without a group: {_count(len(alone))}, {fold(alone)}")
    return "\n".join(lines) + "\n"


def _count(number: int) -> str:
    return f"{number} host{'s'[: number != 1]}"


def _via(target: Target) -> str:
    if target.connection != "ssh":
        return target.connection
    return target.proxy_jump or target.proxy_command or ""


def _address(target: Target) -> str:
    address = target.address or ""
    if target.port is None:
        return address
    return f"[{address}]:{target.port}" if ":" in address else f"{address}:{target.port}"


def _expectations(expect: Expect) -> str:
    given = expect.model_dump(exclude_none=True)
    files = given.pop("files", {})
    texts = [f"{key}{'' if str(value)[:1] in '<>=!~' else '='}{value}" for key, value in given.items()]
    return ", ".join(texts + ([f"{len(files)} file{'s'[: len(files) != 1]}"] if files else []))


def _settings(target: Target) -> dict[str, Any]:
    settings = _reaching(target)
    if target.venvs != Target.model_fields["venvs"].default:
        settings["venvs"] = [
            item if isinstance(item, str) else _item(item.path, item.expect) for item in target.venvs
        ]
    expect = target.expect.model_dump(exclude_none=True)
    return settings | ({"expect": expect} if expect else {})


def _reaching(target: Target) -> dict[str, Any]:
    """Return what is set for a host beside environments and expectations: how it is reached, scan and rules."""
    return target.model_dump(exclude_defaults=True, exclude={"name", "groups", "venvs", "expect"})


def _item(path: str, expect: Expect) -> str | dict[str, Any]:
    given = expect.model_dump(exclude_none=True)
    return {"path": path, "expect": given} if given else path


def _narrowed(inventory: Inventory, targets: Sequence[Target]) -> dict[str, tuple[Waiver | Maintenance, ...]]:
    """Return waivers and maintenance of the chosen targets alone."""
    chosen = {target.name for target in targets}
    narrowed: dict[str, tuple[Waiver | Maintenance, ...]] = {}
    for section, entries in (("waivers", inventory.waivers), ("maintenance", inventory.maintenance)):
        kept: list[Waiver | Maintenance] = []
        for entry in entries:
            hosts = [name for name in expand(entry.hosts) if name in chosen]
            if hosts:
                kept.append(entry.model_copy(update={"hosts": fold(hosts)}))
        narrowed[section] = tuple(kept)
    return narrowed
