"""Names a GPU that is gone by what an earlier run knew of it: uuid, serial, name. No number is given anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fleetcheck.facts import shape
from fleetcheck.facts.records import Device, Gpus

FILLED = ("uuid", "serial", "bus_id", "name")


def wanted(parts: Mapping[str, Any]) -> bool:
    """Return whether a GPU may be gone: nvidia-smi said a line that is no row, or PCI lists more functions."""
    query = shape.mapping(shape.mapping(parts.get("smi")).get("query"))
    call = shape.mapping(query.get("call"))
    lines = [
        line for key in ("stdout", "stderr") for line in str(call.get(key) or "").splitlines() if line.strip()
    ]
    rows = sum(line[:1].isdigit() for line in lines)
    listed = shape.items(shape.mapping(parts.get("pci")).get("functions"), 64)
    displays = sum(str(shape.mapping(one).get("class")).startswith("0x03") for one in listed)
    return bool(lines) and (rows < len(lines) or rows < displays)


def remembered(gpus: Gpus) -> dict[str, Any]:
    """Return what is to be known of GPUs later, as the part ``known`` of the evidence."""
    return {"devices": [device.model_dump(include={"index", *FILLED}) for device in gpus.devices]}


def recalled(gpus: Gpus, part: object) -> Gpus:
    """Return ``gpus`` with what the part ``known`` adds; as they are where it is none."""
    if not isinstance(part, dict):
        return gpus
    try:
        return with_known(gpus, Gpus.model_validate(part))
    except ValidationError:
        return gpus


def with_known(gpus: Gpus, before: Gpus) -> Gpus:
    """Return ``gpus`` in which the devices that are not ``ok`` carry what ``before``, the same host, knew of them.

    The bus id tells which one it is, else the index, else that it is the only one gone. What is known now stays.
    """
    here = {device.uuid for device in gpus.devices if device.uuid is not None}
    gone = [device for device in before.devices if device.uuid is not None and device.uuid not in here]
    nameless = [device for device in gpus.devices if device.state != "ok" and device.uuid is None]
    filled: dict[int, Device] = {}
    for device in nameless:
        known = _earlier(device, gone, alone=len(nameless) == 1)
        if known is not None:
            gone.remove(known)
            news = {key: getattr(known, key) for key in FILLED if getattr(device, key) is None}
            filled[id(device)] = device.model_copy(update=news)
    devices = tuple(filled.get(id(device), device) for device in gpus.devices)
    return gpus.model_copy(update={"devices": devices}) if filled else gpus


def _earlier(device: Device, gone: list[Device], *, alone: bool) -> Device | None:
    if device.bus_id is not None:
        # Boards may have been moved: another bus id is another board, whatever its index.
        return next((known for known in gone if known.bus_id == device.bus_id), None)
    if device.index is not None:
        return next((known for known in gone if known.index == device.index), None)
    return gone[0] if alone and len(gone) == 1 else None
