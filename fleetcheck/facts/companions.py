"""What stands beside FlashInfer: its metadata folders, companion packages, prebuilt modules, and shadows of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from packaging.utils import canonicalize_name

from fleetcheck.facts import shape
from fleetcheck.facts.records import Distribution, FlashInfer, Shadow

OWN = ("flashinfer-python", "flashinfer")
MAX_SHADOWS = 20
MAX_PREBUILT = 500
PCIE_IPC = "gen_pcie_ipc_comm_module"


def beside(found: FlashInfer, packages: Mapping[str, Mapping[str, Any]]) -> FlashInfer:
    """Return the facts of FlashInfer with what the parts of it and of its companions say."""
    package = packages.get("flashinfer", {})
    own = tuple(dist for dist in distributions(package) if canonicalize_name(dist.name) in OWN)
    others = tuple(
        dist
        for name in ("flashinfer_cubin", "flashinfer_jit_cache")
        if packages.get(name, {}).get("spec") in ("file", "namespace")
        for dist in distributions(packages[name])
    )
    records = {file.record for file in found.files}
    checked = shape.integer(package.get("checked"))
    vouched = bool(records & {"match", "mismatch", "missing"}) or bool(checked)
    return found.model_copy(
        update={
            "verified": _verified(package, vouched) if found.files or checked is not None else None,
            "recorded_version": own[0].version if own else None,
            "distributions": own,
            "shadows": _shadows(package),
            "companions": others,
            "prebuilt": _prebuilt(package) + _prebuilt(packages.get("flashinfer_jit_cache", {})),
            "cubins": _cubins(packages.get("flashinfer_cubin", {})),
            "pcie_ipc": _has_pcie_ipc(package),
        }
    )


def _verified(package: Mapping[str, Any], vouched: bool) -> bool | Literal["partly"]:
    """Return whether all was compared by its hash: of many megabytes of sources only what changed late is."""
    checked = shape.integer(package.get("checked")) or 0
    for item in shape.items(package.get("csrc"), 50) if vouched else ():
        entry = shape.mapping(item)
        listed = (shape.integer(entry.get("listed")) or 0) - (shape.integer(entry.get("missing_count")) or 0)
        differs = len(shape.texts(entry.get("size_differs"), 50))
        if shape.integer(entry.get("unhashed")) or checked < listed - differs:
            return "partly"
    return vouched


def distributions(package: Mapping[str, Any]) -> tuple[Distribution, ...]:
    """Return every metadata folder of a package, in the order in which Python finds them."""
    found = []
    for item in shape.items(package.get("dists"), 50):
        dist = shape.mapping(item)
        name, version = shape.name(dist.get("name"), 200), shape.name(dist.get("version"), 100)
        if name and version:
            installer = shape.name(dist.get("installer"), 100)
            path = shape.name(dist.get("dir"))
            found.append(
                Distribution(name=canonicalize_name(name), version=version, path=path, installer=installer)
            )
    return tuple(found)


def _shadows(package: Mapping[str, Any]) -> tuple[Shadow, ...]:
    found = []
    for item in shape.items(package.get("shadows"), MAX_SHADOWS):
        entry = shape.mapping(item)
        by, path = entry.get("by"), shape.name(entry.get("path"))
        if path and by in ("PYTHONPATH", "user-site", "cwd"):
            found.append(Shadow(by=by, path=path))
    return tuple(found)


def _prebuilt(package: Mapping[str, Any]) -> tuple[str, ...]:
    folder = shape.mapping(package.get("prebuilt"))
    path = shape.name(folder.get("path"))
    names = shape.texts(folder.get("modules"), MAX_PREBUILT)
    return tuple(f"{path}/{name}" for name in names if path and name and "/" not in name)


def _cubins(package: Mapping[str, Any]) -> dict[str, int] | None:
    archs = shape.mapping(package.get("cubins")).get("archs")
    if not isinstance(archs, dict):
        return None
    return {
        arch: count
        for arch, value in list(archs.items())[:50]
        if isinstance(arch, str) and re.fullmatch(r"\d{2,3}", arch) and (count := shape.integer(value)) is not None
    }


def _has_pcie_ipc(package: Mapping[str, Any]) -> bool | None:
    """Whether ``gen_pcie_ipc_comm_module`` is there, by the text of ``jit/comm.py``."""
    for item in shape.items(package.get("files")):
        entry = shape.mapping(item)
        if entry.get("name") == "jit/comm.py" and (text := shape.source(entry.get("text"))):
            return f"def {PCIE_IPC}(" in text
    return None
