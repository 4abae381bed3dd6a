"""The health and the link of one GPU, from its row of nvidia-smi and, for the link, from sysfs."""

from __future__ import annotations

import re
from typing import Any

from fleetcheck.facts import shape
from fleetcheck.facts.pci import PciGpu
from fleetcheck.facts.records import Slowdown
from fleetcheck.facts.smi_rows import Row

# nvml.h: the bits of nvmlClocksEventReasons. The software's own holds (idle, power cap) are how a GPU works.
_REASONS: tuple[tuple[int, Slowdown], ...] = (
    (0x80, "power-brake"),
    (0x40, "heat-hardware"),
    (0x20, "heat-software"),
)
_FLAGS = {
    "enabled": True,
    "yes": True,
    "active": True,
    "disabled": False,
    "no": False,
    "not active": False,
    "1": True,
    "0": False,
}
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
_WHOLE = re.compile(r"\d{1,16}")
_WATTS = re.compile(r"\d{1,5}(?:\.\d{1,4})?")
_BITS = re.compile(r"0x[0-9a-fA-F]{1,16}")


def of(row: Row, pci: PciGpu | None, *, inforom_corrupt: bool) -> dict[str, Any]:
    """Return the fields of :class:`Device` that tell of health and link. What is not told is None."""
    pages, rows = flag(row, "retired_pages.pending"), flag(row, "remapped_rows.pending")
    return {
        "vbios": shape.line(row.value("vbios_version"), 40),
        "pcie_width": width(row, "current") or (pci.width if pci else None),
        "pcie_width_max": width(row, "max") or (pci.width_max if pci else None),
        "port_width": pci.port_width if pci else None,
        "pcie_generation": whole(row, "pcie.link.gen.current", 9) or (pci.generation if pci else None),
        "pcie_generation_max": whole(row, "pcie.link.gen.max", 9) or (pci.generation_max if pci else None),
        "power_limit": watts(row, "power.limit"),
        "power_limit_max": watts(row, "power.max_limit"),
        "utilization": whole(row, "utilization.gpu", 100),
        "temperature": whole(row, "temperature.gpu", 200),
        "slowdown": slowdown(row),
        "persistence": flag(row, "persistence_mode"),
        "ecc": flag(row, "ecc.mode.current"),
        "ecc_pending": flag(row, "ecc.mode.pending"),
        "ecc_uncorrected": whole(row, "ecc.errors.uncorrected.volatile.total", 1 << 53),
        "mig": flag(row, "mig.mode.current"),
        "mig_pending": flag(row, "mig.mode.pending"),
        "rows_pending": True if True in (pages, rows) else rows if pages is None else pages,
        "rows_failed": flag(row, "remapped_rows.failure"),
        "inforom_corrupt": inforom_corrupt,
        "recovery_action": recovery(row),
    }


def flag(row: Row, name: str) -> bool | None:
    """Return a value of two words as a truth value; ``1`` and ``0`` are taken too, all else is not known."""
    return _FLAGS.get((row.value(name) or "").lower())


def whole(row: Row, name: str, most: int) -> int | None:
    """Return a whole number from 0 to ``most``, or None."""
    said = row.value(name) or ""
    number = int(said) if _WHOLE.fullmatch(said) else None
    return number if number is not None and number <= most else None


def width(row: Row, which: str) -> int | None:
    """Return a link width of the row in lanes, None where it is none that PCIe has (63 and 255 are all ones)."""
    found = whole(row, f"pcie.link.width.{which}", 32)
    return found if found in _WIDTHS else None


def watts(row: Row, name: str) -> float | None:
    """Return a power in W, or None."""
    said = (row.value(name) or "").replace(",", ".")
    return float(said) if _WATTS.fullmatch(said) else None


def slowdown(row: Row) -> tuple[Slowdown, ...]:
    """Return what holds the clocks down now, beside idleness and the power limit."""
    said = row.value("clocks_throttle_reasons.active") or row.value("clocks_event_reasons.active") or ""
    bits = int(said, 16) if _BITS.fullmatch(said) else 0
    return tuple(dict.fromkeys(word for bit, word in _REASONS if bits & bit))


def recovery(row: Row) -> str | None:
    """Return what the driver asks for, in its own words (``Reset``, ``GPU Reset``, ``Reboot``, …)."""
    said = shape.line(row.value("gpu_recovery_action"), 60)
    return None if said is None or said.lower() == "none" or not re.fullmatch(r"[A-Za-z0-9 ]+", said) else said
