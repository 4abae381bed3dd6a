"""One line of nvidia-smi's CSV, typed: a row is told by its shape, and a value has more than two states."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fleetcheck.facts import shape

CellState = Literal["value", "na", "fault", "permission"]
Form = Literal["table", "list", "text", "xml"]

UUID = re.compile(r"(?:GPU-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
BUS_ID = re.compile(
    r"(?<![0-9a-f])(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])(?![0-9a-f])", re.IGNORECASE
)
LOST = re.compile(r"GPU is (?:lost|inaccessible)", re.IGNORECASE)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_UNIT = re.compile(r"\s*(?:MiB|MHz|W|%)$")
_NOT_APPLICABLE = {"", "n/a", "not supported", "not available", "requested functionality has been deprecated"}
_FAULTS = {"unknown error", "gpu requires reset", "gpu is lost", "gpu is inaccessible", "err!"}
_INDEX = re.compile(r"\d{1,4}")
_NAMES = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")

# What the values of a field look like, by the field's whole name or the start of it, the first that fits. A query
# that asks for no index, uuid and bus id is told from noise by these alone (starsmasher#24: an error as a name).
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,6})?")
_WORD = re.compile(r"[A-Za-z][A-Za-z _]{0,40}")
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("compute_cap", re.compile(r"\d{1,2}\.\d")),
    ("driver_version", re.compile(r"\d{2,4}(?:\.\d{1,4}){1,3}")),
    ("clocks_event_reasons", re.compile(r"0x[0-9a-fA-F]{1,16}|Active|Not Active")),
    ("clocks_throttle_reasons", re.compile(r"0x[0-9a-fA-F]{1,16}|Active|Not Active")),
    ("remapped_rows.pending", re.compile(r"Yes|No|[01]")),
    ("remapped_rows.failure", re.compile(r"Yes|No|[01]")),
    ("retired_pages.pending", re.compile(r"Yes|No|[01]")),
    ("pstate", re.compile(r"P\d{1,2}")),
    *((start, _WORD) for start in ("ecc.mode.", "mig.mode.", "persistence_mode", "power.management")),
    *(
        (start, _NUMBER)
        for start in (
            "index", "memory.", "temperature.", "fan.speed", "utilization.", "power.", "enforced.power.",
            "ecc.errors.", "retired_pages.", "remapped_rows.", "pcie.link.", "clocks.",
        )
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One value: ``text`` where ``state`` is ``value``; ``said`` is what was printed."""

    state: CellState
    said: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU as listed. ``bus_id`` is normalised; ``index`` is None where it was not asked for.

    ``whole`` is False where the columns that were asked for are not there. ``form`` is what printed it, where that
    was not the CSV.
    """

    index: int | None
    uuid: str | None
    bus_id: str | None
    cells: Mapping[str, Cell]
    whole: bool = True
    form: Form | None = None

    @property
    def faults(self) -> tuple[str, ...]:
        """What the row says of a fault, each once: ``memory.total: [GPU is lost]``."""
        bad = [(name, cell.said) for name, cell in self.cells.items() if cell.state == "fault"]
        return shape.unique(f"{name}: {said}" for name, said in bad)

    @property
    def lost(self) -> bool:
        """Whether the row is of a GPU that is off the bus; one that needs a reset is still there."""
        return any(LOST.search(cell.said) for cell in self.cells.values() if cell.state == "fault")

    def value(self, name: str) -> str | None:
        """Return the text of a field, or None where it has no value."""
        cell = self.cells.get(name)
        return cell.text if cell else None


def plain(line: str) -> str:
    """Return a line without colour codes and without what a terminal puts at its end."""
    return _ESCAPE.sub("", line).rstrip()


def bus_id(text: str | None) -> str | None:
    """Return ``00000000:05:00.0`` for any spelling of a PCI address (lspci, sysfs, nvidia-smi), or None."""
    match = BUS_ID.fullmatch(text.strip()) if text else None
    return normal(match) if match else None


def normal(match: re.Match[str]) -> str:
    """Return the one spelling of an address that :data:`BUS_ID` matched."""
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):08X}:{bus.upper()}:{device.upper()}.{function}"


@lru_cache(maxsize=4096)
def cell(said: str) -> Cell:
    """Type one value. Missing-value tokens come with and without brackets, in one row (driver 590).

    Of the values of a fleet most are equal: a host has 250 of them, and ten that no other has.
    """
    bare = said.strip()
    word = bare.strip("[]").strip().lower()
    if word in _NOT_APPLICABLE:
        return Cell("na", bare)
    if word in _FAULTS or word.startswith("gpu is lost"):
        return Cell("fault", bare)
    if word == "insufficient permissions":
        return Cell("permission", bare)
    return Cell("value", bare, _UNIT.sub("", bare))


def row(fields: Sequence[str], line: str) -> Row | None:
    """Return the row that a line is by its shape, or None.

    Where one of index, uuid and bus id was asked for, it must stand in its place. A line whose columns do not fit
    is still a GPU where all three do: the CSV has no quoting, so that a comma in a name makes one column more
    (nvidia_gpu_exporter#477). Where no uuid and no bus id was asked for, every value must look like its field.
    """
    values = [value.strip() for value in line.split(",")]
    if not fields or not line.isprintable():
        return None
    whole = len(values) == len(fields)
    found = dict(zip(fields, values, strict=False))
    number = found.get("index", "")
    if "index" in fields and not _INDEX.fullmatch(number):
        return None
    index = int(number) if number else None
    uuid = found.get("uuid", found.get("gpu_uuid", ""))
    uuid = uuid if UUID.fullmatch(uuid) else ""
    address = bus_id(found.get("pci.bus_id", found.get("gpu_bus_id")))
    if whole:
        cells = {name: cell(text) for name, text in found.items()}
        named = bool(uuid or address) if any(name in fields for name in _NAMES) else _fits(cells)
        return Row(index, uuid or None, address, cells) if named else None
    return Row(index, uuid, address, {}, whole=False) if index is not None and uuid and address else None


def _fits(cells: Mapping[str, Cell]) -> bool:
    """Return whether every value looks like its field, and one of them is of a field that looks like no text."""
    told = False
    for name, found in cells.items():
        looks = next((pattern for start, pattern in _SHAPES if name.startswith(start)), None)
        if found.state != "value":
            told = told or found.said != ""
        elif looks is not None:
            if not looks.fullmatch(found.text or ""):
                return False
            told = True
    return told


def is_header(fields: Sequence[str], line: str) -> bool:
    """Return whether a line names the columns; a name may be a newer alias (nvidia_gpu_exporter#123)."""
    if not line.startswith(tuple(fields[:1])):
        return False
    names = [re.sub(r" \[[^]]*\]$", "", value.strip()) for value in line.split(",")]
    return len(names) == len(fields) and names[:1] == list(fields[:1]) and all(map(_is_field, names))


def _is_field(name: str) -> bool:
    return re.fullmatch(r"[a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*", name) is not None
