"""The lines of nvidia-smi that are no rows: each is classified by its text, an exit code where no text spoke."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal

from fleetcheck.facts import shape
from fleetcheck.facts.smi_rows import BUS_ID, normal

Kind = Literal[
    "driver-mismatch", "nvml-version", "driver-unloaded", "no-devices", "no-permission", "bad-device", "inforom",
    "library-missing", "nvml-error", "invalid-field", "not-found", "mixed-binaries", "malformed-row", "other",
]  # fmt: skip

# In this order: the text of a bad device ends in words that other messages hold too (NordicHPC/sonar#87).
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("invalid-field", r'Field "([^"]{1,80})" is not a valid field to query'),
    ("inforom", r"infoROM is corrupted"),
    (
        "bad-device",
        r"Unable to determine the device handle for|GPU is lost|GPU requires reset|GPU is inaccessible",
    ),
    ("driver-mismatch", r"Driver/library version mismatch"),
    ("nvml-version", r"NVML library version:\s*(\d[\d.]*)"),
    ("mixed-binaries", r"Mismatch in versions between nvidia-smi and NVML"),
    ("driver-unloaded", r"communicate with the NVIDIA driver|NVML: Driver Not Loaded"),
    ("no-devices", r"^No devices were found"),
    ("library-missing", r"find libnvidia-ml\.so|NVML: NVML Shared Library Not Found"),
    (
        "no-permission",
        r"NVML: Insufficient Permissions|^Insufficient Permissions|nvidia-smi: Permission denied",
    ),
    ("nvml-error", r"Failed to (?:initialize|properly shut down) NVML|access blocked by the operating system"),
    ("not-found", r"nvidia-smi: (?:command )?not found|nvidia-smi: No such file"),
)
_MESSAGES = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS)
# The manual's return values; raw NVML codes leak beside them (anderskm/gputil#55). They speak where no text did.
BY_RC: Mapping[int, Kind] = {
    4: "no-permission", 6: "no-devices", 8: "bad-device", 9: "driver-unloaded", 10: "bad-device",
    12: "library-missing", 15: "bad-device", 17: "nvml-error", 18: "driver-mismatch", 126: "no-permission",
    127: "not-found",
}  # fmt: skip
BESIDE_ROWS: Mapping[int, tuple[Kind, str]] = {
    8: ("bad-device", "the external power cables of a GPU are not attached"),
    10: ("bad-device", "the kernel has a problem with a GPU's interrupts"),
    14: ("inforom", "infoROM is corrupted at a GPU that it does not name"),
    15: ("bad-device", "a GPU is off the bus or inaccessible"),
}
"""What an exit code means where whole rows came as well; any other one is no word against them."""


@dataclass(frozen=True, slots=True)
class Message:
    """One line that is not a row. ``index`` and ``bus_id`` name the device that it speaks of."""

    kind: Kind
    line: str
    index: int | None = None
    bus_id: str | None = None
    value: str | None = None


def message(line: str) -> Message:
    """Classify one line that is not a row."""
    kind: Kind = "other"
    value = None
    for candidate, pattern in _MESSAGES:
        match = pattern.search(line)
        if match:
            kind, value = candidate, match.group(1) if pattern.groups else None
            break
    address = BUS_ID.search(re.sub(r"(?i)\bgpu(?=[0-9a-f]{4,8}:)", "gpu ", line))
    rest = line if address is None else line.replace(address.group(0), " ", 1)
    index = re.search(r"(?i)\bgpu\s?(\d{1,3})\b", rest)
    return Message(
        kind,
        shape.line(line) or "",
        int(index.group(1)) if index and kind == "bad-device" else None,
        normal(address) if address else None,
        value,
    )


def of_exit_code(rc: int, kinds: Set[Kind], *, rows: bool, faults: bool) -> Message | None:
    """Return what an exit code says that no line and no row said, or None."""
    said = f"nvidia-smi ended with exit code {rc}"
    if rows:
        kind, meaning = BESIDE_ROWS.get(rc, ("other", ""))
        told = kind in kinds or (kind == "bad-device" and faults) or (kind == "other" and (rc == 0 or kinds))
        return None if told else Message(kind, f"{said}: {meaning}" if meaning else said)
    quiet = not kinds - {"other", "invalid-field", "inforom", "mixed-binaries"}
    return Message(BY_RC[rc], said) if rc in BY_RC and quiet else None
