"""A whole host as a folder: /proc, /sys, /etc, /dev, tools, environments; audited under ``sysroot``.

In: what the host should be like. Out: a folder that holds it. Environments are real ones, made by the standard
library's ``venv``; nvidia-smi is a stand-in of :mod:`fleetcheck.demo.smi`.
"""

from __future__ import annotations

import hashlib
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from fleetcheck.demo import smi


class Environment:
    """One Python environment of a host. ``path`` is as the host has it, ``real`` where it lies here."""

    def __init__(self, root: Path, path: str) -> None:
        self.path = path
        self.real = root / path.lstrip("/")
        venv.EnvBuilder(symlinks=True, with_pip=False).create(self.real)

    @property
    def site(self) -> Path:
        """Its ``site-packages`` folder."""
        return self.real / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    @property
    def bin(self) -> Path:
        """Its ``bin`` folder."""
        return self.real / "bin"

    @property
    def flashinfer(self) -> Path:
        """The folder of the ``flashinfer`` package in it."""
        return self.site / "flashinfer"


class HostTree:
    """A host as the folder ``root``. At first it has no GPU, no driver and no environment."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.write("/etc/hostname", f"{name}\n")
        self.write("/etc/machine-id", hashlib.md5(name.encode(), usedforsecurity=False).hexdigest() + "\n")
        self.write("/etc/os-release", 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12"\n')
        self.write("/proc/stat", "cpu  1 0 1 1 0 0 0 0 0 0\nbtime 1760000000\n")
        self.write("/proc/uptime", "86400.00 86000.00\n")
        self.write("/proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro quiet\n")
        self.write("/proc/sys/kernel/hostname", f"{name}\n")
        self.write("/proc/sys/kernel/osrelease", "6.1.0-40-amd64\n")
        for folder in ("/sys/bus/pci/devices", "/dev", "/usr/bin", "/usr/local", "/root"):
            self.folder(folder)

    def place(self, path: str) -> Path:
        """Return where the host's ``path`` lies here."""
        return self.root / path.lstrip("/")

    def folder(self, path: str) -> Path:
        """Make a folder of the host and return where it lies."""
        real = self.place(path)
        real.mkdir(parents=True, exist_ok=True)
        return real

    def write(self, path: str, text: str, mode: int = 0o644) -> Path:
        """Write one file of the host and return where it lies."""
        real = self.place(path)
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(text)
        real.chmod(mode)
        return real

    def environment(self, path: str) -> Environment:
        """Make an environment at ``path`` of the host."""
        return Environment(self.root, path)

    def nvidia_smi(self, script: str) -> None:
        """Put a stand-in at ``/usr/bin/nvidia-smi``."""
        self.write("/usr/bin/nvidia-smi", script, 0o755)

    def pci(self, model: smi.Model, count: int, *, bound: bool = True) -> None:
        """Let PCI show ``count`` GPUs, each with its audio function; ``bound`` to the driver or to none."""
        for number in range(count):
            place = f"/sys/bus/pci/devices/0000:{0x10 + number:02x}:00"
            self._function(f"{place}.0", model.device, "0x030200", number)
            self._function(f"{place}.1", "0x22e8", "0x040300", number)
            if bound:
                self.folder("/sys/bus/pci/drivers/nvidia")
                self.place(f"{place}.0/driver").symlink_to("../../drivers/nvidia")

    def _function(self, place: str, device: str, kind: str, number: int) -> None:
        texts = {
            "vendor": "0x10de", "device": device, "class": kind, "revision": "0xa1",
            "subsystem_vendor": "0x10de", "subsystem_device": "0x204b", "numa_node": str(number // 4),
            "current_link_width": "16", "max_link_width": "16",
            "current_link_speed": "2.5 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
        }  # fmt: skip
        for name, text in texts.items():
            self.write(f"{place}/{name}", text + "\n")

    def driver(self, version: str = smi.DRIVER, devices: int = 0) -> None:
        """Let the open kernel driver be loaded, with its device nodes."""
        self.write(
            "/proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (build@lab)  \n"
            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14) \n",
        )
        self.write("/sys/module/nvidia/version", f"{version}\n")
        for name in ["nvidiactl", *(f"nvidia{number}" for number in range(devices))]:
            self.write(f"/dev/{name}", "")

    def gpus(self, model: smi.Model, count: int, *, listed: Sequence[int] | None = None) -> None:
        """Give the host ``count`` GPUs on PCI; ``listed`` are those that nvidia-smi shows (None: all)."""
        self.pci(model, count)
        self.driver(devices=count)
        numbers = range(count) if listed is None else listed
        self.nvidia_smi(smi.answering([smi.row(model, number) for number in numbers]))
