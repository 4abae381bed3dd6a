"""What sysfs and /proc say of the GPUs and their driver, without nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from fleetcheck.facts import shape
from fleetcheck.facts.smi_rows import bus_id

NVIDIA = 0x10DE
# VGA and 3D controllers; the HDMI audio function beside them is 0403 (NVIDIA/deepops#702).
GPU_CLASSES = (0x0300, 0x0302)
# A register that reads as all ones: nobody answers at that address any more.
ALL_ONES = (63, 255)
DEAD = "PCI reads all ones from it (rev ff): it fell off the bus or is dead"
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{1,8})")
_NUMBER = re.compile(r"\d{1,3}")
KEYS = (
    "bus_id", "device", "revision", "error", "iommu_type", "current_link_width", "max_link_width",
    "current_link_speed", "max_link_speed", "port_max_link_width",
)  # fmt: skip
"""What a function says of itself, in the order in which it is typed."""
_RATES = {
    "2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64": 6, "64.0": 6,
}  # fmt: skip
Iommu = Literal["off", "passthrough", "translated", "on"]


@dataclass(frozen=True, slots=True)
class PciGpu:
    """One NVIDIA function of class 0300 or 0302; ``device`` is the PCI device id, widths are lanes.

    ``dead`` is whether its registers read as all ones; then there are no widths.
    """

    bus_id: str | None
    device: int | None
    error: str | None
    width: int | None = None
    width_max: int | None = None
    generation: int | None = None
    generation_max: int | None = None
    port_width: int | None = None
    iommu: str | None = None
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Pci:
    """What PCI shows. ``gpus`` is None where the bus could not be read."""

    gpus: tuple[PciGpu, ...] | None = None

    @property
    def empty(self) -> bool:
        """True where the bus was read and holds no NVIDIA GPU."""
        return self.gpus == ()


@dataclass(frozen=True, slots=True)
class Driver:
    """The kernel driver. ``loaded`` is None where it could not be told."""

    loaded: bool | None = None
    version: str | None = None
    module: Literal["open", "proprietary"] | None = None


def read_pci(part: object) -> Pci:
    """Type the ``pci`` part: every NVIDIA function that is a GPU."""
    bus = shape.mapping(part)
    if shape.line(bus.get("error")) or not isinstance(bus.get("functions"), list):
        return Pci()
    found: list[PciGpu] = []
    unclear = False
    for raw in shape.items(bus["functions"]):
        function = shape.mapping(raw)
        vendor, kind = _hex(function.get("vendor")), _hex(function.get("class"))
        if vendor is not None and vendor != NVIDIA:
            continue
        if shape.name(function.get("driver")) == "vfio-pci":
            continue  # handed to a virtual machine on purpose: it is not this host's
        if kind is None:
            unclear = True
        elif kind >> 8 in GPU_CLASSES:
            found.append(_gpu(function))
    # A function whose class cannot be read may be a GPU: then an empty list proves nothing.
    return Pci(None if unclear and not found else tuple(found))


def _gpu(function: Mapping[str, Any]) -> PciGpu:
    said = [function.get(key) for key in KEYS]
    return _told(tuple(value if isinstance(value, str) else None for value in said))


@lru_cache(maxsize=1024)
def _told(said: tuple[str | None, ...]) -> PciGpu:
    """Type what one function says under :data:`KEYS`. The boards of a fleet are alike: most say the same."""
    bus, device, revision, error, iommu, lanes, lanes_max, speed, speed_max, port_max = said
    width, width_max, port = _number(lanes), _number(lanes_max), _number(port_max)
    dead = _hex(revision) == 0xFF or width in ALL_ONES or width_max in ALL_ONES
    return PciGpu(
        bus_id=bus_id(shape.name(bus)),
        device=_hex(device),
        error=shape.line(error),
        # A function that is no PCIe endpoint (NVLink-C2C, some guests) has width 0, which is no width.
        width=None if dead else width or None,
        width_max=None if dead else width_max or None,
        generation=None if dead else _generation(speed),
        generation_max=None if dead else _generation(speed_max),
        port_width=None if port in ALL_ONES else port or None,
        iommu=shape.name(iommu, 40),
        dead=dead,
    )


def read_driver(part: object) -> Driver:
    """Type the ``driver`` part. Both files absent means that no driver is loaded."""
    driver = shape.mapping(part)
    proc, module = shape.mapping(driver.get("proc_version")), shape.mapping(driver.get("module_version"))
    first = next((line for line in (shape.text(proc.get("text")) or "").splitlines() if "NVRM" in line), "")
    words = (word for word in first.split() if re.fullmatch(r"\d{2,4}(?:\.\d{1,4}){1,3}", word))
    version = next(words, None)
    plain = shape.name(module.get("text")) or ""
    if version is None and re.fullmatch(r"\d{2,4}(?:\.\d{1,4}){1,3}", plain):
        version = plain
    if version is None:
        gone = all(one.get("error") == "ENOENT" for one in (proc, module))
        return Driver(loaded=False if gone else None)
    kind: Literal["open", "proprietary"] | None = None
    if "Kernel Module" in first:
        kind = "open" if "Open Kernel Module" in first else "proprietary"
    return Driver(True, version, kind)


def read_iommu(system: object, pci: Pci) -> Iommu | None:
    """Return how the IOMMU treats the GPUs: by their groups' domains, else by the kernel's command line."""
    kinds = {gpu.iommu for gpu in pci.gpus or () if gpu.iommu}
    if kinds:
        return "passthrough" if kinds == {"identity"} else "translated"
    iommu = shape.mapping(shape.mapping(system).get("iommu"))
    groups, tokens = shape.integer(iommu.get("groups")), shape.texts(iommu.get("cmdline"), 40)
    if not groups:
        return "off" if groups == 0 else None
    if "iommu=pt" in tokens or "iommu.passthrough=1" in tokens:
        return "passthrough"
    return "on"


def surroundings(parts: Mapping[str, Any]) -> str | None:
    """Return ``wsl`` or the kind of container that the host is, None where nothing says so."""
    kernel = shape.name(shape.mapping(parts.get("system")).get("kernel"), 255) or ""
    if "microsoft" in kernel.lower():
        return "wsl"
    return shape.line(shape.mapping(parts.get("driver")).get("container"), 40)


def _hex(value: object) -> int | None:
    match = _HEX.fullmatch(shape.name(value) or "")
    return int(match.group(1), 16) if match else None


def _number(value: object) -> int | None:
    text = shape.name(value) or ""
    return int(text) if _NUMBER.fullmatch(text) else None


def _generation(speed: object) -> int | None:
    """Return the PCIe generation of a speed of sysfs, such as ``32.0 GT/s PCIe``."""
    return _RATES.get((shape.name(speed) or "").partition(" ")[0])
