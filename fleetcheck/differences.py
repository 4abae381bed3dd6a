"""What sets hosts apart: their facts as flat keys, two hosts compared, many hosts folded into equal groups.

In: hosts of a run. Out: keys such as ``venvs[/opt/ml-env].flashinfer.version`` with a value on each side. A fact
whose definition says that it is volatile or an identity is left out (:func:`fleetcheck.facts.records.kind_of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from fleetcheck.facts.records import Device, FileFact, FlashInfer, Toolkit, Venv
from fleetcheck.run import HostResult

ROOTS = ("system", "gpus", "toolkits", "venvs")
"""The fields of a host that hold facts; the others tell how the look at it went."""
LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "System": ("hostname", "user"),
    "Gpus": ("diagnostics", "pci_count"),
    "Device": ("index", "compute_capability_basis", "bus_id"),
    "FileFact": ("path", "size", "record"),
    "Toolkit": ("path",),
    "Venv": ("path", "item", "executable"),
    "FlashInfer": ("constants", "basis", "root", "modified"),
    "Fusion": ("gates",),
}
"""Facts that name the host or the way it was looked at, and those that repeat what other facts tell."""
KEYS: Mapping[type[BaseModel], str] = {Venv: "path", Toolkit: "path", FileFact: "path", Device: "bus_id"}
"""By which field the items of a list are told apart."""

Flat = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact in which two hosts differ; None where a host does not have it."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Fold:
    """Hosts whose facts are equal, and in what they differ from the largest such group."""

    hosts: tuple[str, ...]
    differences: tuple[Difference, ...]


def flat(host: HostResult) -> dict[str, str]:
    """Return the facts of a host that can be compared, as text by key. What is not known has no key."""
    found: dict[str, str] = {}
    for root in ROOTS:
        _walk(root, getattr(host, root), found)
    return found


def differences(before: Flat, after: Flat) -> tuple[Difference, ...]:
    """Return in what two hosts differ, in the order of the first one's keys, then of the second's."""
    if before == after:
        return ()
    keys = dict.fromkeys((*before, *after))
    return tuple(
        Difference(key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)
    )


def fold(hosts: Sequence[HostResult]) -> tuple[Fold, ...]:
    """Return the hosts that were checked in groups of equal facts, the largest first; then in order."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for host in hosts:
        if host.outcome == "checked":
            groups.setdefault(tuple(flat(host).items()), []).append(host.name)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    if not ordered:
        return ()
    largest = dict(ordered[0][0])
    return tuple(Fold(tuple(names), differences(largest, dict(facts))) for facts, names in ordered)


def _walk(path: str, value: Any, found: dict[str, str], root: str | None = None) -> None:
    """Put a value's facts into ``found``. Below ``root``, a package's folder, files have short names."""
    if isinstance(value, BaseModel):
        below = value.root if isinstance(value, FlashInfer) else None
        for name in _plain(type(value)):
            _walk(f"{path}.{name}", getattr(value, name), found, below)
    elif isinstance(value, Mapping):
        for key in sorted(value):
            _walk(f"{path}.{key}", value[key], found)
    elif isinstance(value, tuple):
        if any(isinstance(item, BaseModel) for item in value):
            for name, item in _items(value, root):
                _walk(f"{path}[{name}]", item, found)
        elif value:
            found[path] = ", ".join(map(str, value))
    elif value is not None:
        found[path] = str(value)


def _items(items: Sequence[BaseModel], root: str | None) -> list[tuple[str, BaseModel]]:
    """Return records with what tells them apart, in its order; the place in the list where nothing does."""
    named = []
    for index, item in enumerate(items):
        name = str(getattr(item, KEYS.get(type(item), ""), None) or index)
        named.append((name.removeprefix(f"{root}/") if root else name, item))
    return sorted(named, key=lambda pair: pair[0])


@lru_cache(maxsize=64)
def _plain(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of a record that can be compared between hosts."""
    names = []
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if name not in LEFT_OUT.get(model.__name__, ()) and not (isinstance(extra, dict) and "fact" in extra):
            names.append(name)
    return tuple(names)
