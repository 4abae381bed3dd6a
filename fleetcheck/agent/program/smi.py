"""nvidia-smi, raw: one narrow query, one retry where a field is unknown, and none where one hangs already."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List

from fleetcheck.agent.program.hardware import which
from fleetcheck.agent.program.processes import call
from fleetcheck.agent.program.values import Root, read_bytes

FIELDS = (
    "index", "uuid", "pci.bus_id", "name", "compute_cap", "memory.total", "driver_version", "serial",
    "persistence_mode", "ecc.mode.current", "mig.mode.current", "pcie.link.width.current", "pcie.link.width.max",
    "pcie.link.gen.current", "pcie.link.gen.max",
)  # fmt: skip
FEW_FIELDS = ("index", "uuid", "pci.bus_id", "name", "memory.total", "driver_version")
FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/lib/wsl/lib", "/opt/bin", "/run/nvidia/driver/usr/bin")
QUICK = 5.0


def gather_smi(root: Root, limit: float) -> Dict[str, Any]:
    """Return the part ``smi``. ``limit`` is seconds for all calls together."""
    deadline = time.monotonic() + limit
    folders = ["/usr/bin"] if root.prefix else [*os.environ.get("PATH", "").split(":"), *FOLDERS]
    searched = list(dict.fromkeys(folder for folder in folders if folder.startswith("/")))
    path = which(root, "nvidia-smi", ":".join(searched))
    value: Dict[str, Any] = {
        "path": None if path is None else root.show(path),
        "searched": [root.show(folder) for folder in searched][:64],
        "d_state": [], "skipped": None, "version": None, "query": None, "retry": None,
    }  # fmt: skip
    if path is None:
        return value
    value["d_state"] = stuck(root)
    if value["d_state"]:
        value["skipped"] = "d-state"
        return value
    first = query(root, path, FIELDS, deadline)
    value["query"] = first
    call_value = first["call"]
    if call_value["rc"] == 2 and "not a valid field" in call_value["stdout"] + call_value["stderr"]:
        value["retry"] = query(root, path, FEW_FIELDS, deadline)
        call_value = value["retry"]["call"]
    quick = not call_value["timed_out"] and call_value["seconds"] < QUICK
    if quick and call_value["error"] is None and deadline - time.monotonic() > QUICK:
        value["version"] = run_smi(root, [path, "--version"], QUICK)
    return value


def query(root: Root, path: str, fields: "tuple[str, ...]", deadline: float) -> Dict[str, Any]:
    """Run one query of all GPUs."""
    argv = [path, "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
    return {"fields": list(fields), "call": run_smi(root, argv, max(0.1, deadline - time.monotonic()))}


def run_smi(root: Root, argv: "List[str]", limit: float) -> Dict[str, Any]:
    """Run nvidia-smi in the C locale and return the call value, its path as the host has it."""
    value = call(argv, limit, dict(os.environ, LC_ALL="C"))
    value["argv"] = [root.show(argv[0]), *argv[1:]]
    return value


def stuck(root: Root) -> "List[int]":
    """Return the pids of nvidia-smi processes in state D: another one would hang as they do."""
    found: "List[int]" = []
    try:
        names = os.listdir(root.at("/proc"))
    except OSError:
        return found  # what cannot be seen cannot forbid the call, which has its own limit
    for name in names:
        if name.isdigit():
            try:
                text = read_bytes(root.at("/proc/" + name + "/stat"), 128)
            except OSError:
                continue  # it ended meanwhile
            if b"(nvidia-smi) D" in text:
                found.append(int(name))
    return sorted(found)[:32]
