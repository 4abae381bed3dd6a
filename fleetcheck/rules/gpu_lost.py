"""Rules on GPUs that are in the host and cannot be used: not listed, or named as lost."""

from __future__ import annotations

from collections.abc import Iterator

from fleetcheck.facts.pci import DEAD
from fleetcheck.facts.records import Device, Gpus
from fleetcheck.rules import text
from fleetcheck.rules.gpu import OPEN, UNCHECKED, XID, last_xid, said
from fleetcheck.rules.rule import Hit, Look, rule

FELL_OFF = 79
"""The Xid of a GPU that has fallen off the bus."""
POWER_CYCLE = "Have the drained host powered off and on again; a reboot may not bring the GPU back."
UNLESS_FELL = (
    "If step 1 shows rev ff, or step 2 Xid 79, the GPU fell off the bus: have the drained host powered off and on "
    "instead of the next step."
)
STILL = "If the GPU is still not usable, have the board reseated with the host powered off, or replaced"


def others(gpus: Gpus) -> str:
    """Return a sentence on the GPUs that are listed beside a lost one, nothing where there is none."""
    left = sum(device.state == "ok" for device in gpus.devices)
    # Reported of driver 610: jobs that run go on, torch counts no device in a new process.
    return f" {text.plural(left, 'other')} may refuse new work until a reboot." if left else ""


@rule(
    "gpu-missing",
    "gpu",
    "error",
    summary="PCI lists a GPU that nvidia-smi does not.",
    explanation=(
        "The board is on the bus, but the driver did not bring it up, or lost it. nvidia-smi lists the "
        "others and may exit with 0. For RTX PRO 6000 Blackwell a proprietary kernel module does the same: "
        "these GPUs need the open one. `rev ff` in lspci's lines, or Xid 79 in the kernel log, say that the GPU "
        "fell off the bus: a power cycle may bring it back where a reboot does not."
    ),
    remedy=(
        "Read lspci's lines and the kernel log for the bus id. Drain the host, then power-cycle it where they "
        "show `rev ff` or Xid 79, and reboot it otherwise. A GPU that is still missing then: reseat the board, or "
        "have it replaced."
    ),
    references=(XID, f"{OPEN}/872"),
    causes=("gpu-count", *UNCHECKED),
)
def gpu_missing(look: Look) -> Iterator[Hit]:
    """Fire for each GPU that PCI alone shows, where nvidia-smi did answer."""
    gpus = look.facts.gpus
    if gpus.state not in ("ok", "missing", "fault", "no-gpu"):
        return
    lost = [device for device in gpus.devices if device.state == "missing"]
    dead = [device for device in lost if device.note == DEAD]
    for device in lost:
        where = device.bus_id or device.uuid
        why = f": {text.brief(device.note)}" if device.note else ""
        yield Hit(
            f"PCI lists the GPU {text.brief(where, 'without a bus id')}, nvidia-smi does not{why}."
            f"{last_xid(gpus, where, meaning=device not in dead)}{others(gpus) if device in dead[:1] else ''}",
            gpu=device.uuid or device.bus_id,
            expected="listed",
            seen="missing",
            remedy=lost_steps(gpus, device),
        )
    short = gpus.pci_count is not None and gpus.count is not None and gpus.pci_count > gpus.count
    if not lost and short and gpus.state in ("missing", "no-gpu"):
        yield Hit(
            f"PCI lists {gpus.pci_count} GPUs, nvidia-smi {gpus.count}.{last_xid(gpus)}",
            expected=gpus.pci_count,
            seen=gpus.count,
            remedy=lost_steps(gpus),
        )


def lost_steps(gpus: Gpus, device: Device | None = None) -> tuple[str, ...]:
    """Return the steps towards a GPU that is not usable: look, stop what runs, then a reboot or a power cycle."""
    bus_id = device.bus_id if device is not None else None
    short = bus_id.lower().removeprefix("0000") if bus_id else None
    look = f"sudo lspci -vvs {text.quote(short)}" if short else "lspci -d 10de: -nn"
    fell = any(xid.code == FELL_OFF and bus_id is not None and xid.bus_id == bus_id for xid in gpus.xids)
    if fell or (device is not None and device.note == DEAD):
        cycle: tuple[str, ...] = (POWER_CYCLE,)
    else:
        cycle = (UNLESS_FELL, text.REBOOT)
    return (look, "sudo dmesg | grep -iE 'xid|nvrm'", text.APPS, *cycle, f"{STILL}{board(device)}.")


def board(device: Device | None) -> str:
    """Return ``: it is serial 1320, GPU-…``, what is known of a board that is not usable; else nothing."""
    serial, uuid = (device.serial, device.uuid) if device is not None else (None, None)
    known = [*((f"serial {text.brief(serial)}",) if serial else ()), *((text.brief(uuid),) if uuid else ())]
    return f": its last known mark is {', '.join(known)}" if known else ""


@rule(
    "gpu-fault",
    "gpu",
    "error",
    summary="nvidia-smi names a GPU that does not work.",
    explanation=(
        "nvidia-smi names a device whose handle it cannot get, that is lost, or that asks for a reset. "
        "Listed is not usable: after one GPU fell off the bus, the healthy ones may refuse new CUDA "
        "contexts until a reboot."
    ),
    remedy=(
        "Read the Xid in the kernel log; drain the host, then reset the GPU, reboot, or power-cycle: the latter "
        "where lspci shows `rev ff` or the log Xid 79."
    ),
    references=(XID, f"{OPEN}/387"),
    causes=("gpu-count", *UNCHECKED),
)
def gpu_fault(look: Look) -> Iterator[Hit]:
    """Fire for each device that is named, or once where none is told apart."""
    gpus = look.facts.gpus
    bad = [device for device in gpus.devices if device.state == "fault"]
    for device in bad:
        which = device.bus_id or device.uuid or (f"{device.index}" if device.index is not None else None)
        named = text.brief(which, "it does not name")
        yield Hit(
            f"nvidia-smi says of the GPU {named}: {text.brief(device.note)}."
            f"{last_xid(gpus, device.bus_id)}{others(gpus)}",
            gpu=device.uuid or device.bus_id,
            expected="ok",
            seen=device.note or "fault",
            remedy=lost_steps(gpus, device),
        )
    if not bad and gpus.state == "fault":
        yield Hit(
            f"nvidia-smi reports a GPU that does not work: {said(gpus)}.{last_xid(gpus)}{others(gpus)}",
            expected="ok",
            seen="fault",
            remedy=lost_steps(gpus),
        )


RULES = (gpu_missing, gpu_fault)
