"""The driver's own errors in the kernel's log: ``NVRM: Xid (PCI:0000:17:00): 79, …``."""

from __future__ import annotations

import re

from fleetcheck.facts import shape
from fleetcheck.facts.records import Xid
from fleetcheck.facts.smi_rows import bus_id

MAX_XIDS = 20
_XID = re.compile(r"NVRM:\s*Xid\s*\(PCI:([0-9a-fA-F:.]{5,16})\):\s*(\d{1,4})\b,?\s*(.*)")
# /dev/kmsg: priority, sequence, microseconds since boot, flags. Log files may carry dmesg's "[  12.345678]".
_RECORD = re.compile(r"\d{1,5},\d{1,20},(\d{1,18}),[^;]{0,40};")
_STAMP = re.compile(r"\[\s*(\d{1,10}\.\d{1,9})\]")


def xids(part: object) -> tuple[Xid, ...]:
    """Type the part ``kernel``: the last errors. Of a log that may reach behind this boot there are none."""
    log = shape.mapping(part)
    if log.get("this_boot") is not True:
        return ()
    found = [one for line in shape.texts(log.get("lines"), 200) if (one := _xid(line)) is not None]
    return tuple(found[-MAX_XIDS:])


def _xid(line: str) -> Xid | None:
    match = _XID.search(line)
    if match is None:
        return None
    where = match.group(1)
    address = bus_id(where if "." in where else f"{where}.0")
    return Xid(
        code=int(match.group(2)),
        bus_id=address,
        seconds=_seconds(line[: match.start()]),
        text=shape.line(match.group(3), 200) or "",
    )


def _seconds(before: str) -> float | None:
    record = _RECORD.match(before)
    if record is not None:
        return int(record.group(1)) / 1e6
    stamp = _STAMP.search(before)
    return float(stamp.group(1)) if stamp is not None else None
