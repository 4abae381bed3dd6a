"""Names a GPU that is gone by what an earlier run knew of it: uuid, serial, name. No number is given anew."""

from __future__ import annotations

from fleetcheck.facts.records import Device, Gpus

FILLED = ("uuid", "serial", "bus_id", "name")


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
