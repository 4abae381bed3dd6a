"""Evidence of one host made typed: parts in, :class:`HostFacts` out. Never raises on what a host sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleetcheck.facts import caches, gpus, imported, in_force, lost, processes, shape, toolchain
from fleetcheck.facts.records import FileFact, HostFacts, System, Venv
from fleetcheck.facts.venv import HostView, venv

MAX_VENVS = 200
MAX_FILES = 1000


def host_facts(parts: Mapping[str, Any], expected_compute_capability: str | None = None) -> HostFacts:
    """Type every part that arrived (``docs/evidence.md``); what did not arrive, or is no such value, is unknown.

    On a host whose GPUs did not answer the fusion is judged by what their PCI ids say, else by
    ``expected_compute_capability`` (``"12.0"``).
    """
    seen = lost.recalled(gpus.gpus(parts), parts.get("known"))
    capabilities = seen.compute_capability or gpus.capabilities(seen.devices)
    if not capabilities and expected_compute_capability:
        capabilities = (expected_compute_capability,) if _is_capability(expected_compute_capability) else ()
    listed = shape.mapping(parts.get("venvs"))
    view = HostView(shape.mapping(parts.get("system")), parts.get("toolkits"), capabilities)
    venvs = _venvs(parts, listed, view)
    places = {("", one.real): one.path for one in reversed(venvs) if one.real} | {
        (space, path): shown
        for raw in shape.items(listed.get("items"), MAX_VENVS)
        if (space := shape.name(shape.mapping(raw).get("namespace"), 60))
        and (shown := shape.name(shape.mapping(raw).get("path")))
        for key in ("inside", "inside_real")
        if (path := shape.name(shape.mapping(raw).get(key)))
    }
    serving = (
        processes.processes(parts["processes"], seen.processes, places)
        if isinstance(parts.get("processes"), dict)
        else None
    )
    return HostFacts(
        system=_system(parts),
        gpus=seen,
        toolkits=toolchain.toolkits(parts.get("toolkits")),
        venvs=in_force.of_venvs(venvs, serving, capabilities),
        venvs_known=isinstance(listed.get("items"), list),
        unmatched=shape.texts(listed.get("unmatched"), 200),
        caches=caches.caches(parts["caches"]) if isinstance(parts.get("caches"), dict) else None,
        processes=serving,
        named_csrc=(*processes.named_csrc(parts.get("processes")), *processes.named_csrc(parts.get("scan"))),
        scanned=shape.integer(shape.mapping(parts.get("scan")).get("files")),
        scan_unread=processes.scan_unread(parts.get("scan")),
        expected_files=expected_files(parts.get("expected")),
        processes_unread=processes.unread(parts.get("processes"), parts.get("end")),
        unread=processes.unread_processes(parts.get("processes")),
        processes_hidden=processes.hidden(parts.get("processes")),
    )


def expected_files(part: object) -> tuple[FileFact, ...]:
    """Type the part ``expected``: what became of the files that the inventory names."""
    found = []
    for raw in shape.items(shape.mapping(part).get("files"), MAX_FILES):
        item = shape.mapping(raw)
        path, sha256, error = (shape.name(item.get(key)) for key in ("path", "sha256", "error"))
        if path and (sha256 or error):
            gone = error in ("ENOENT", "ENOTDIR")
            found.append(
                FileFact(
                    path=path,
                    sha256=sha256 if sha256 and re.fullmatch(r"[0-9a-f]{64}", sha256) else None,
                    size=shape.integer(item.get("size")),
                    record="missing" if gone else "unreadable" if error else "no-record",
                )
            )
    return tuple(found)


def _is_capability(text: str) -> bool:
    return re.fullmatch(r"\d{1,2}\.\d", text) is not None


def _system(parts: Mapping[str, Any]) -> System | None:
    system, agent = shape.mapping(parts.get("system")), shape.mapping(parts.get("agent"))
    if not system and not agent:
        return None
    return System(
        hostname=shape.name(system.get("hostname"), 255),
        kernel=shape.name(system.get("kernel"), 255),
        machine_id=shape.name(system.get("machine_id"), 128),
        boot_time=shape.number(system.get("boot_time")),
        user=shape.name(agent.get("user"), 100),
        python=shape.name(agent.get("python"), 100),
    )


def _venvs(parts: Mapping[str, Any], listed: Mapping[str, Any], view: HostView) -> tuple[Venv, ...]:
    """Every listed environment in order, then those whose part came although the list did not."""
    found: list[Venv] = []
    done: set[str] = set()
    for position, raw in enumerate(shape.items(listed.get("items"), MAX_VENVS)):
        item = shape.mapping(raw)
        index = shape.integer(item.get("index"))
        name = f"venv/{position if index is None else index}"
        deep = parts.get(f"deep/{position if index is None else index}")
        found.append(imported.beside(venv(item, parts.get(name), view), deep))
        done.add(name)
    for name in sorted(parts, key=_number):
        if re.fullmatch(r"venv/\d{1,6}", name) and name not in done and len(found) < MAX_VENVS:
            found.append(venv({}, parts[name], view))
    return tuple(found)


def _number(name: str) -> tuple[int, str]:
    match = re.fullmatch(r"venv/(\d{1,6})", name)
    return (int(match.group(1)) if match else 0, name)
