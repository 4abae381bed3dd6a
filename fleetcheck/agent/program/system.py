"""The host itself: name, kernel, boot time, distribution, machine id (hashed), IOMMU, the login's environment."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict

from fleetcheck.agent.program.values import Root, allowed_env, problem, read_bytes, short


def about_agent(version: str, sysroot: str) -> Dict[str, Any]:
    """Return the part ``agent``: what gathers here, as whom, and when by this host's clock."""
    return {
        "version": version, "python": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable,
        "uid": os.getuid(), "user": os.environ.get("USER") or os.environ.get("LOGNAME"),
        "sysroot": sysroot, "time": time.time(),
    }  # fmt: skip


def gather_system(root: Root) -> Dict[str, Any]:
    """Return the part ``system``."""
    uname = os.uname()
    return {
        "hostname": uname.nodename,
        "kernel": short(root.at("/proc/sys/kernel/osrelease")) or uname.release,
        "machine": uname.machine,
        "boot_time": boot_time(root),
        "machine_id": machine_id(root),
        "distro": distro(root),
        "env": allowed_env(os.environ, root),
        "iommu": iommu(root),
    }


def boot_time(root: Root) -> "int | None":
    """Return when the kernel started, seconds since the epoch."""
    try:
        for line in read_bytes(root.at("/proc/stat"), 1 << 20).splitlines():
            if line.startswith(b"btime "):
                return int(line.split()[1])
    except Exception:
        return None
    return None


def sha256_of(data: bytes) -> str:
    """Return the sha256 in hex; the built-in module starts in a tenth of OpenSSL's time."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]  # Python 3.12 and newer
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found]
        except ImportError:
            from hashlib import sha256
    return str(sha256(data).hexdigest())


def machine_id(root: Root) -> "str | None":
    """Return the sha256 of the machine id: it is confidential (machine-id(5)), its hash tells hosts apart."""
    text = short(root.at("/etc/machine-id"))
    return sha256_of(text.encode()) if text else None


def distro(root: Root) -> "str | None":
    """Return PRETTY_NAME of os-release."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = short(root.at(path), 8192)
        for line in (text or "").splitlines():
            if line.startswith("PRETTY_NAME="):
                return line.partition("=")[2].strip().strip("\"'")[:200]
    return None


def iommu(root: Root) -> Dict[str, Any]:
    """Return how many IOMMU groups there are, and the kernel's tokens about it."""
    value: Dict[str, Any] = {"groups": None, "cmdline": []}
    try:
        value["groups"] = len(os.listdir(root.at("/sys/kernel/iommu_groups")))
    except Exception as error:
        value["error"] = problem(error)
    tokens = (short(root.at("/proc/cmdline"), 8192) or "").split()
    value["cmdline"] = [token[:200] for token in tokens if "iommu" in token][:20]
    return value
