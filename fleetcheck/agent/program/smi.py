"""nvidia-smi, raw: one query, a second for unknown fields, more where it was quick, none beside a hung one."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List

from fleetcheck.agent.program.hardware import gather_pci, which
from fleetcheck.agent.program.processes import call
from fleetcheck.agent.program.values import Root, one_line, read_bytes

# In the order in which releases brought them: nvidia-smi refuses a query for its first unknown field, so that the
# fields before that one are known. So one query and at most a second one do for every release.
FEW_FIELDS = ("index", "uuid", "pci.bus_id", "name", "memory.total", "driver_version")
FIELDS = (
    *FEW_FIELDS, "compute_cap", "serial", "vbios_version", "persistence_mode", "ecc.mode.current",
    "ecc.mode.pending", "ecc.errors.uncorrected.volatile.total", "retired_pages.pending", "mig.mode.current",
    "mig.mode.pending", "pcie.link.width.current", "pcie.link.width.max", "pcie.link.gen.current",
    "pcie.link.gen.max", "pstate", "utilization.gpu", "temperature.gpu", "power.limit", "power.max_limit",
    "clocks_throttle_reasons.active", "remapped_rows.pending", "remapped_rows.failure", "gpu_recovery_action",
)  # fmt: skip
UNKNOWN = ('Field "', '" is not a valid field to query')
LOST = "Unable to determine the device handle"
APPS = "pid,gpu_uuid,used_memory,process_name"
FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/lib/wsl/lib", "/opt/bin", "/run/nvidia/driver/usr/bin")
QUICK = 5.0
AGAIN = 1.0


def gather_smi(root: Root, limit: float) -> Dict[str, Any]:
    """Return the part ``smi``. ``limit`` is seconds for all calls together."""
    deadline = time.monotonic() + limit
    folders = [*([] if root.prefix else os.environ.get("PATH", "").split(":")), *FOLDERS]
    searched = list(dict.fromkeys(folder for folder in folders if folder.startswith("/")))
    path = which(root, "nvidia-smi", ":".join(searched))
    value: Dict[str, Any] = {
        "path": None if path is None else root.show(path),
        "searched": [root.show(folder) for folder in searched][:64],
        "d_state": [], "blocked": [], "skipped": None, "version": None, "query": None, "retry": None,
        "others": None, "mig": None, "topology": None, "p2p": None, "processes": None,
    }  # fmt: skip
    before = blocked(root)
    value["d_state"] = stuck(root, before)
    if value["d_state"]:
        value["skipped"] = "d-state"
    elif path is not None:
        ask(root, path, deadline, value)
    value["blocked"] = [{"pid": pid, "name": name} for pid, name in still(root, before)]
    return value


def ask(root: Root, path: str, deadline: float, value: Dict[str, Any]) -> None:
    """Make the calls, each only where those before it were quick, and put them into the part."""
    last = value["query"] = query(root, path, FIELDS, deadline)
    fewer = known_fields(last["call"])
    if fewer:
        last = value["retry"] = query(root, path, fewer, deadline)
    rest = others(root, last["call"])
    if rest:
        fields = tuple(last["fields"])
        last = value["others"] = query(root, path, fields, deadline, "--id=" + ",".join(rest))
    if last["call"]["timed_out"] or last["call"]["error"] is not None or last["call"]["seconds"] >= QUICK:
        return  # slow or stuck: what it says already is enough
    for name, arguments in further(last):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        value[name] = run_smi(root, [path, *arguments], min(QUICK, left))
        if value[name]["timed_out"]:
            break


def known_fields(call_value: Dict[str, Any]) -> "tuple[str, ...]":
    """Return the fields before the one that this nvidia-smi refused, none where it refused none."""
    said = call_value["stdout"] + call_value["stderr"]
    if call_value["rc"] != 2 or UNKNOWN[1] not in said:
        return ()
    refused = said.partition(UNKNOWN[0])[2].partition('"')[0]
    before = FIELDS[: FIELDS.index(refused)] if refused in FIELDS else ()
    return before if len(before) > len(FEW_FIELDS) else FEW_FIELDS


def further(answered: Dict[str, Any]) -> "List[tuple[str, tuple[str, ...]]]":
    """Return what else to ask after the rows: how several GPUs are linked, slices where MIG is on, processes."""
    rows = [line.split(", ") for line in answered["call"]["stdout"].splitlines() if ", " in line]
    rows = [row for row in rows if len(row) == len(answered["fields"])]
    asked: "List[tuple[str, tuple[str, ...]]]" = [("version", ("--version",))]
    if "mig.mode.current" in answered["fields"]:
        column = answered["fields"].index("mig.mode.current")
        if any(row[column].strip() == "Enabled" for row in rows):
            asked.append(("mig", ("-L",)))
    if len(rows) > 1:
        asked += [("topology", ("topo", "-m")), ("p2p", ("topo", "-p2p", "r"))]
    if rows:
        asked.append(("processes", ("--query-compute-apps=" + APPS, "--format=csv,noheader,nounits")))
    return asked


def others(root: Root, call_value: Dict[str, Any]) -> "List[str]":
    """Return the GPUs of PCI beside the ones that nvidia-smi gave up at, none where it listed any.

    An old one ends at the first GPU whose handle it cannot get, and hides all others.
    """
    said = call_value["stdout"] + call_value["stderr"]
    if not call_value["rc"] or LOST not in said or "GPU-" in said or call_value["timed_out"]:
        return []
    seen = [
        one["bus_id"] for one in gather_pci(root)["functions"] if (one["class"] or "")[:6] in ("0x0300", "0x0302")
    ]
    lost = [bus_id for bus_id in seen if bus_id.lower() in said.lower()]
    return [bus_id for bus_id in seen if bus_id not in lost] if lost else []


def query(root: Root, path: str, fields: "tuple[str, ...]", deadline: float, *which_gpus: str) -> Dict[str, Any]:
    """Run one query, of all GPUs unless told which."""
    argv = [path, *which_gpus, "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
    return {"fields": list(fields), "call": run_smi(root, argv, max(0.1, deadline - time.monotonic()))}


def run_smi(root: Root, argv: "List[str]", limit: float) -> Dict[str, Any]:
    """Run nvidia-smi in the C locale and return the call value, its path as the host has it."""
    value = call(argv, limit, dict(os.environ, LC_ALL="C"))
    value["argv"] = [root.show(argv[0]), *argv[1:]]
    return value


def stuck(root: Root, before: "Dict[int, str]") -> "List[int]":
    """Return the pids of nvidia-smi that stay in state D: another one would hang as they do.

    A busy or starting one passes through state D: only one that is there again a second later counts.
    """
    if "nvidia-smi" not in before.values():
        return []
    time.sleep(AGAIN)
    return [pid for pid, name in still(root, before) if name == "nvidia-smi"]


def still(root: Root, before: "Dict[int, str]") -> "List[tuple[int, str]]":
    """Return which of some processes in state D are in it now, the first 32."""
    now = blocked(root) if before else {}
    return sorted((pid, name) for pid, name in before.items() if now.get(pid) == name)[:32]


def blocked(root: Root) -> "Dict[int, str]":
    """Return the processes that are in state D now: pid to name."""
    found: "Dict[int, str]" = {}
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
            before, closed, rest = text.rpartition(b") ")
            if closed and rest[:1] == b"D":
                found[int(name)] = one_line(before.partition(b" (")[2].decode("utf-8", "replace"), 64)
    return found
