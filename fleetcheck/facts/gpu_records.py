"""What is known of the GPUs of a host, and of the way between them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetcheck.facts.fact import IDENTITY, VOLATILE, Fact

GpuState = Literal[
    "hung", "driver-mismatch", "driver-unloaded", "smi-missing", "no-gpu", "no-permission", "nvml-error",
    "fault", "missing", "ok", "unknown",
]  # fmt: skip
DeviceState = Literal["ok", "fault", "missing", "unknown"]
Slowdown = Literal["power-brake", "heat-hardware", "heat-software"]


class MigDevice(Fact):
    """A slice of a GPU that is partitioned. ``profile`` is such as ``1g.24gb``."""

    index: int
    profile: str
    uuid: Annotated[str | None, IDENTITY] = None


class Device(Fact):
    """One GPU as nvidia-smi lists it, or as PCI alone shows it (then ``index`` and ``uuid`` are None).

    ``bus_id`` is normalised: eight digits of domain, upper case. ``memory_mib`` is MiB. None is always "not
    known", also where the product has no such thing (ECC on a GeForce, MIG on a workstation board).
    ``pcie_width`` and ``pcie_generation`` are the link's now, ``…_max`` what GPU and system can; an idle link
    runs at a lower generation. ``port_width`` is what the slot's port can. ``power_limit`` is W, ``utilization``
    %, ``temperature`` °C.
    """

    index: int | None = None
    uuid: Annotated[str | None, IDENTITY] = None
    serial: Annotated[str | None, IDENTITY] = None
    bus_id: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    compute_capability_basis: Literal["reported", "guessed"] | None = None
    memory_mib: int | None = None
    state: DeviceState = "unknown"
    note: str | None = None
    """What nvidia-smi said of a device that is not ``ok``."""
    vbios: str | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    port_width: int | None = None
    pcie_generation: Annotated[int | None, VOLATILE] = None
    pcie_generation_max: int | None = None
    power_limit: float | None = None
    power_limit_max: float | None = None
    utilization: Annotated[int | None, VOLATILE] = None
    temperature: Annotated[int | None, VOLATILE] = None
    slowdown: Annotated[tuple[Slowdown, ...], VOLATILE] = ()
    """What holds the clocks down now, beside idleness and the power limit."""
    persistence: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    """The ECC mode after the next reset."""
    ecc_uncorrected: Annotated[int | None, VOLATILE] = None
    """Errors since the driver was loaded."""
    mig: bool | None = None
    mig_pending: bool | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    rows_pending: bool | None = None
    """Whether rows (before Ampere: pages) of memory will be replaced at the next reset."""
    rows_failed: bool | None = None
    """Whether a row could not be replaced."""
    inforom_corrupt: bool | None = None
    recovery_action: str | None = None
    """What the driver asks for, None where it asks for nothing or cannot tell."""


class GpuProcess(Fact):
    """A process that computes on a GPU, as nvidia-smi lists it. ``memory_mib`` is MiB."""

    pid: int
    gpu: str | None = None
    """The uuid of the GPU, or of the slice."""
    memory_mib: int | None = None
    name: str | None = None


class Xid(Fact):
    """An error that the driver wrote to the kernel's log. ``seconds`` is since boot, where the log tells it."""

    code: int
    bus_id: str | None = None
    seconds: float | None = None
    text: str = ""


class Gpus(Fact):
    """The GPUs of one host. ``count`` is None where nothing could count them, 0 where there are none.

    ``driver`` is the loaded kernel driver, ``driver_userspace`` what nvidia-smi or NVML brings.
    ``pci_count`` counts NVIDIA functions of PCI class 0300 and 0302. ``link`` is the worst of ``links`` (``SYS``,
    ``NODE``, ``PHB``, ``PXB``, ``PIX``, ``NV18``), ``nvlink`` whether every pair has NVLink. ``links`` and
    ``p2p`` have a pair as key (``0-1``, the indices) and ``topo``'s word as value.
    """

    state: GpuState = "unknown"
    count: int | None = None
    compute_capability: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    driver: str | None = None
    driver_userspace: str | None = None
    kernel_module: Literal["open", "proprietary"] | None = None
    link: str | None = None
    pci_count: int | None = None
    devices: tuple[Device, ...] = ()
    diagnostics: tuple[str, ...] = ()
    """Lines of nvidia-smi that are not rows, classified or not, bounded."""
    unsupported: tuple[str, ...] = ()
    """Fields that this nvidia-smi does not know; what they would tell is unknown, not absent."""
    nvlink: bool | None = None
    links: dict[str, str] = Field(default_factory=dict)
    p2p: dict[str, str] = Field(default_factory=dict)
    iommu: Literal["off", "passthrough", "translated", "on"] | None = None
    """How the IOMMU treats the GPUs; ``on`` where it is on and its mode is not known."""
    surroundings: str | None = None
    """``wsl``, or the kind of container (``docker``); None on a plain host."""
    processes: Annotated[tuple[GpuProcess, ...], VOLATILE] = ()
    xids: Annotated[tuple[Xid, ...], VOLATILE] = ()
    """The driver's errors of this boot, the last last, bounded."""
    blocked: Annotated[tuple[str, ...], VOLATILE] = ()
    """Processes that stay in uninterruptible sleep: ``nvidia-smi (4711)``."""
