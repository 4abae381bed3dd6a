"""NVIDIA's PCI functions, the loaded driver, CUDA toolkits: as texts of sysfs, /proc and /usr/local, unparsed."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from fleetcheck.agent.program.values import Root, problem, short, text_value

PCI = "/sys/bus/pci/devices"
PCI_TEXTS = {
    "device": "device", "class": "class", "subsystem_vendor": "subsystem_vendor",
    "subsystem_device": "subsystem_device", "revision": "revision",
    "current_link_width": "current_link_width", "max_link_width": "max_link_width",
    "current_link_speed": "current_link_speed", "max_link_speed": "max_link_speed", "numa_node": "numa_node",
    "port_max_link_width": "../max_link_width", "iommu_type": "iommu_group/type",
}  # fmt: skip


def gather_pci(root: Root) -> Dict[str, Any]:
    """Return the part ``pci``: every function of vendor 10de, GPU or not."""
    functions: List[Dict[str, Any]] = []
    try:
        names = sorted(os.listdir(root.at(PCI)))
    except Exception as error:
        return {"functions": functions, "error": problem(error)}
    for name in names:
        folder = root.at(PCI) + "/" + name
        if short(folder + "/vendor") != "0x10de":
            continue
        function: Dict[str, Any] = {"bus_id": name, "vendor": "0x10de", "error": None}
        for key, file in PCI_TEXTS.items():
            function[key] = short(folder + "/" + file)
        try:
            function["driver"] = os.path.basename(os.readlink(folder + "/driver"))
        except FileNotFoundError:
            function["driver"] = None
        except OSError as error:
            function["driver"], function["error"] = None, problem(error)
        functions.append(function)
    return {"functions": functions[:256], "error": None}


def gather_driver(root: Root) -> Dict[str, Any]:
    """Return the part ``driver``."""
    devices: List[str] = []
    error = None
    try:
        devices = sorted(name for name in os.listdir(root.at("/dev")) if name.startswith("nvidia"))
    except Exception as caught:
        error = problem(caught)
    return {
        "proc_version": text_value(root, "/proc/driver/nvidia/version"),
        "module_version": text_value(root, "/sys/module/nvidia/version"),
        "devices": devices[:256],
        "container": container(root),
        "error": error,
    }


def container(root: Root) -> "str | None":
    """Return what kind of container this is, None where nothing says that it is one."""
    for path, kind in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if os.path.exists(root.at(path)):
            return kind
    return short(root.at("/run/systemd/container"))


def gather_toolkits(root: Root) -> Dict[str, Any]:
    """Return the part ``toolkits``: ``/usr/local/cuda*``, ``/opt/cuda*``, and the nvcc of the login's PATH."""
    found: List[Dict[str, Any]] = []
    seen = set()
    for parent in ("/usr/local", "/opt"):
        try:
            names = sorted(name for name in os.listdir(root.at(parent)) if name.startswith("cuda"))
        except OSError:
            continue  # a host without the folder has no toolkit in it
        for name in names[:32]:
            path = root.at(parent + "/" + name)
            if os.path.isdir(path):
                found.append(toolkit(root, path))
                seen.add(os.path.realpath(path))
    nvcc = which(root, "nvcc", os.environ.get("PATH", ""))
    return {"found": found, "which_nvcc": None if nvcc is None else root.show(nvcc)}


def toolkit(root: Root, path: str) -> Dict[str, Any]:
    """Describe one toolkit folder; nvcc is not started."""
    nvcc = path + "/bin/nvcc"
    return {
        "path": root.show(path),
        "real": root.show(os.path.realpath(path)),
        "version_json": text_value(root, path[len(root.prefix) :] + "/version.json"),
        "nvcc": root.show(nvcc) if os.path.exists(nvcc) else None,
    }


def which(root: Root, name: str, path: str) -> "str | None":
    """Find an executable of the host in PATH. Entries that are not absolute are passed by."""
    for folder in path.split(":"):
        if folder.startswith("/"):
            place = folder if root.prefix and root.under(folder) else root.at(folder)
            candidate = place.rstrip("/") + "/" + name
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return candidate
    return None
