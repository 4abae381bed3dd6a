"""The GPUs of one host, from three witnesses: PCI, the loaded driver and nvidia-smi.

What nvidia-smi lists outweighs a PCI bus or a ``/proc`` that could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fleetcheck.facts import health, kernel_log, nvidia_smi, products, shape, smi_forms, smi_lists, topology
from fleetcheck.facts.nvidia_smi import Listing
from fleetcheck.facts.pci import DEAD, Driver, Pci, PciGpu, read_driver, read_iommu, read_pci, surroundings
from fleetcheck.facts.records import Device, DeviceState, Gpus, GpuState
from fleetcheck.facts.smi_messages import Message
from fleetcheck.facts.smi_rows import Row

MAX_DIAGNOSTICS = 20
MAX_LOST = 64
_CAPABILITY = re.compile(r"\d{1,2}\.\d")
_MEMORY = re.compile(r"(\d{1,9})(?:\.\d+)?")
UNTOLD = "PCI counts one more; nvidia-smi gave no bus ids that would tell which"


def gpus(parts: Mapping[str, Any]) -> Gpus:
    """Type the parts ``smi``, ``pci``, ``driver``, ``kernel`` and ``system``.

    Capabilities and names are those of the listed devices.
    """
    smi = shape.mapping(parts.get("smi"))
    listing = nvidia_smi.read(smi)
    place, driver = surroundings(parts), read_driver(parts.get("driver"))
    # The PCI of a WSL guest holds no NVIDIA function, with a GPU and without (microsoft/WSL#9938).
    pci = Pci() if place == "wsl" else read_pci(parts.get("pci"))
    devices = smi_lists.with_slices(_devices(listing, pci), smi.get("mig"))
    listed = devices[: len(listing.listed)]
    mismatch = listing.first("nvml-version")
    links = topology.links(smi.get("topology"))
    told = _one(row.value("driver_version") for row in listing.rows)
    return Gpus(
        state=_state(listing, pci, driver, devices),
        count=_count(listing, pci),
        compute_capability=capabilities(listed),
        names=shape.unique(device.name for device in listed),
        driver=driver.version or told or listing.shown_driver,
        driver_userspace=(mismatch.value if mismatch else None) or listing.version,
        kernel_module=driver.module,
        link=topology.worst(links),
        pci_count=None if pci.gpus is None else len(pci.gpus),
        devices=devices,
        diagnostics=shape.unique(message.line for message in listing.messages)[:MAX_DIAGNOSTICS],
        unsupported=listing.unsupported[:64],
        nvlink=topology.nvlink(links),
        links=links,
        p2p=topology.peers(smi.get("p2p")),
        iommu=read_iommu(parts.get("system"), pci),
        surroundings=place,
        processes=smi_lists.processes(smi.get("processes")),
        xids=kernel_log.xids(parts.get("kernel")),
        blocked=smi_lists.blocked(smi.get("blocked")),
    )


def _one(values: Any) -> str | None:
    return next((value for value in values if value), None)


def _devices(listing: Listing, pci: Pci) -> tuple[Device, ...]:
    by_bus = {gpu.bus_id: gpu for gpu in pci.gpus or () if gpu.bus_id}
    devices = [_listed(row, listing, by_bus.get(row.bus_id or "")) for row in listing.listed]
    bad = [message for message in listing.messages if message.kind == "bad-device"]
    lost = [message for message in bad if not any(_same(message, device) for device in devices)][:MAX_LOST]
    rows = {device.bus_id for device in devices}
    unlisted = [gpu for gpu in pci.gpus or () if gpu.bus_id not in rows]
    # A guest or a container may number the bus otherwise: only as many are missing as PCI counts more.
    spare = max(0, len(pci.gpus or ()) - len(devices))
    named, unplaced = _placed(lost, devices, pci, unlisted[:spare] if len(unlisted) == spare else [])
    # Where nvidia-smi gave no bus ids, or other ones, which of those functions it does not list is not known.
    sure = len(unlisted) == spare and not unplaced
    told = [gpu for gpu in unlisted if sure or gpu.bus_id in named or gpu.dead]
    for gpu in sorted(told, key=lambda gpu: gpu.bus_id not in named)[:spare]:
        devices.append(_unlisted(gpu, named.pop(gpu.bus_id, None), _absent_state(listing)))
    for message in [*named.values(), *unplaced]:
        devices.append(Device(index=message.index, bus_id=message.bus_id, state="fault", note=message.line))
    untold = max(0, len(pci.gpus or ()) - len(devices))
    return (*devices, *([Device(state=_absent_state(listing), note=UNTOLD)] * untold))


def _placed(
    lost: Sequence[Message], devices: Sequence[Device], pci: Pci, unlisted: Sequence[PciGpu]
) -> tuple[dict[str | None, Message], list[Message]]:
    """Return the lost devices by bus id, and those that only have an index.

    nvidia-smi mostly counts in the order of the bus. Where it does so for all that it lists, an index that is lost
    has its place there; where one is lost and one is not listed, they are the same.
    """
    named: dict[str | None, Message] = {}
    unplaced: dict[int | None, Message] = {}
    for message in lost:
        if message.bus_id:
            named.setdefault(message.bus_id, message)
    known = {message.index for message in named.values() if message.index is not None}
    for message in lost:
        if not message.bus_id and message.index is not None and message.index not in known:
            unplaced.setdefault(message.index, message)
    order: dict[int | None, str] = dict(enumerate(sorted(gpu.bus_id for gpu in pci.gpus or () if gpu.bus_id)))
    counts = all(device.bus_id is not None and order.get(device.index) == device.bus_id for device in devices)
    free = {gpu.bus_id for gpu in unlisted} - set(named)
    left = []
    for message in unplaced.values():
        place = order.get(message.index) if counts and devices else None
        if place is None and len(free) == len(unplaced) == 1:
            place = next(iter(free))
        if place in free:
            free.discard(place)
            named[place] = message
        else:
            left.append(message)
    return named, left


def _absent_state(listing: Listing) -> DeviceState:
    # Where nvidia-smi did not speak at all, that it does not list a device says nothing of the device.
    return "missing" if listing.listed or "no-devices" in listing.kinds else "unknown"


def _same(message: Message, device: Device) -> bool:
    if message.bus_id:
        return message.bus_id == device.bus_id
    return message.index is not None and message.index == device.index


def _listed(row: Row, listing: Listing, pci: PciGpu | None) -> Device:
    notes = list(row.faults)
    said = [message for message in listing.messages if message.bus_id and message.bus_id == row.bus_id]
    corrupt = any(message.kind == "inforom" for message in said)
    faulty = bool(notes) or any(message.kind == "bad-device" for message in said)
    notes += [message.line for message in said if message.kind != "malformed-row"]
    name = shape.line(row.value("name"), 120)
    capability, basis = row.value("compute_cap"), "reported"
    if capability is None or not _CAPABILITY.fullmatch(capability):
        capability, basis = products.compute_capability(name, pci.device if pci else None), "guessed"
    memory = _MEMORY.fullmatch(row.value("memory.total") or "")
    state: DeviceState = "fault" if faulty else "ok"
    if not row.whole and not faulty:
        state, notes = "unknown", [_unsure(row)]
    return Device(
        index=row.index,
        uuid=row.uuid,
        serial=shape.line(row.value("serial"), 40),
        bus_id=row.bus_id,
        name=name,
        compute_capability=capability,
        compute_capability_basis=(basis if capability else None),
        memory_mib=int(memory.group(1)) if memory else None,
        state=state,
        note=shape.line("; ".join(notes)),
        **health.of(row, pci, inforom_corrupt=corrupt),
    )


def _unsure(row: Row) -> str:
    if row.form is None:
        return "nvidia-smi's line has not the columns that were asked for"
    return f"only nvidia-smi's {smi_forms.WORDS[row.form]} shows it, which was not asked for"


def _unlisted(gpu: PciGpu, message: Message | None, state: DeviceState) -> Device:
    capability = products.compute_capability(None, gpu.device)
    return Device(
        index=message.index if message else None,
        bus_id=gpu.bus_id,
        name=products.name(gpu.device),
        compute_capability=capability,
        compute_capability_basis="guessed" if capability else None,
        state="fault" if message else state,
        note=message.line if message else DEAD if gpu.dead else gpu.error,
    )


def _count(listing: Listing, pci: Pci) -> int | None:
    """What nvidia-smi lists and has not lost; none where it says so, or where PCI shows none."""
    if listing.listed:
        return sum(not row.lost for row in listing.listed)
    return 0 if "no-devices" in listing.kinds or pci.empty else None


def capabilities(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the compute capabilities of some devices, each once, the lowest first."""
    found = {device.compute_capability for device in devices if device.compute_capability}
    return tuple(sorted(found, key=lambda text: tuple(int(number) for number in text.split("."))))


def _state(listing: Listing, pci: Pci, driver: Driver, devices: Sequence[Device]) -> GpuState:
    if listing.hung:
        return "hung"
    if not listing.listed and (state := _without_rows(listing, pci, driver)):
        return state
    states = {device.state for device in devices}
    if "fault" in states or "bad-device" in listing.kinds:
        return "fault"
    if "missing" in states:
        return "missing"
    return "ok" if listing.listed and states == {"ok"} else "unknown"


def _without_rows(listing: Listing, pci: Pci, driver: Driver) -> GpuState | None:
    kinds = listing.kinds
    unspoken = listing.missing or not listing.answered or "not-found" in kinds
    if "driver-mismatch" in kinds:
        return "driver-mismatch"
    # A host without the hardware lacks driver and tools rightly (NordicHPC/sonar#188).
    if "driver-unloaded" in kinds or (unspoken and driver.loaded is False and pci.gpus):
        return "no-gpu" if pci.empty else "driver-unloaded"
    if listing.missing or "not-found" in kinds:
        return "no-gpu" if pci.empty else "smi-missing"
    if pci.empty or ("no-devices" in kinds and pci.gpus is None and "bad-device" not in kinds):
        return "no-gpu"
    if "no-permission" in kinds:
        return "no-permission"
    if kinds & {"nvml-error", "library-missing"}:
        return "nvml-error"
    return None
