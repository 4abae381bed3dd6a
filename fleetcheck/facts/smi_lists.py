"""What is listed beside the GPUs: slices of partitioned ones, their processes, and what hangs in the kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetcheck.facts import shape
from fleetcheck.facts.records import Device, GpuProcess, MigDevice
from fleetcheck.facts.smi_forms import LIST_GPU, LIST_MIG
from fleetcheck.facts.smi_rows import cell, plain

MAX_SLICES = 64
MAX_PROCESSES = 200
_UUID = r"[0-9A-Fa-f-]{36}"
_APP_GPU = re.compile(rf"(?:GPU|MIG)-{_UUID}")


def slices(call: object) -> dict[str, tuple[MigDevice, ...]]:
    """Return the slices that ``nvidia-smi -L`` lists, by the uuid of their GPU. An indented line is no GPU."""
    found: dict[str, list[MigDevice]] = {}
    parent: str | None = None
    for line in _lines(call):
        gpu, mig = LIST_GPU.fullmatch(line), LIST_MIG.fullmatch(line)
        if gpu is not None:
            parent = gpu.group(3)
        elif mig is not None and parent is not None and len(found.setdefault(parent, [])) < MAX_SLICES:
            found[parent].append(MigDevice(index=int(mig.group(2)), profile=mig.group(1), uuid=mig.group(3)))
        elif line and not line[0].isspace():
            parent = None  # slices behind a line of an error belong to a GPU that is not known
    return {uuid: tuple(listed) for uuid, listed in found.items()}


def with_slices(devices: Sequence[Device], call: object) -> tuple[Device, ...]:
    """Return the devices with the slices of each."""
    found = slices(call)
    return tuple(
        device.model_copy(update={"mig_devices": found[device.uuid]}) if device.uuid in found else device
        for device in devices
    )


def processes(call: object) -> tuple[GpuProcess, ...]:
    """Return the rows of ``--query-compute-apps=pid,gpu_uuid,used_memory,process_name``; names may hold commas."""
    found: list[GpuProcess] = []
    for line in _lines(call):
        cells = [cell.strip() for cell in line.split(",", 3)]
        if len(cells) != 4 or not re.fullmatch(r"\d{1,10}", cells[0]) or not _APP_GPU.fullmatch(cells[1]):
            continue
        memory = cell(cells[2]).text or ""
        name = cell(cells[3]).text
        found.append(
            GpuProcess(
                pid=int(cells[0]),
                gpu=cells[1],
                memory_mib=int(memory) if re.fullmatch(r"\d{1,9}", memory) else None,
                name=shape.line(name, 200),
            )
        )
    return tuple(found[:MAX_PROCESSES])


def blocked(value: object) -> tuple[str, ...]:
    """Return the processes in uninterruptible sleep, as ``nvidia-smi (4711)``."""
    found = []
    for raw in shape.items(value, 32):
        process = shape.mapping(raw)
        pid, name = shape.integer(process.get("pid")), shape.line(process.get("name"), 64)
        if pid is not None and name is not None:
            found.append(f"{name} ({pid})")
    return tuple(found)


def _lines(call: object) -> list[str]:
    said = shape.mapping(call)
    return [plain(line) for line in (shape.text(said.get("stdout"), shape.SOURCE_LIMIT) or "").splitlines()[:2000]]
