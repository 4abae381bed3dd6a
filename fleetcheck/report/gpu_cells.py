"""The cells of a row that tell of a host's GPUs: how many there are, how they are linked, and their driver."""

from __future__ import annotations

from collections import Counter

from fleetcheck.facts.records import Gpus
from fleetcheck.report.text import clean
from fleetcheck.run import HostResult

NAME = 60
"""Characters of one name that stand in a cell."""


def counted(host: HostResult) -> tuple[str, str]:
    """Return how many GPUs of what kind there are, with what is wrong, and what is wrong alone."""
    gpus = host.gpus
    kinds = ",".join(clean(kind, NAME) for kind in gpus.compute_capability[:8])
    counted = f"{gpus.count}× {kinds}".rstrip() if gpus.count else ""
    if gpus.state == "ok":
        return counted or "ok", counted or "ok"
    if gpus.state == "unknown" and not counted:
        state = "unknown" if host.outcome == "checked" else "-"
        return state, state
    bad = unusable(gpus)
    if bad:
        return f"{counted}, {bad}" if counted else bad, bad
    # What came before nvidia-smi hung or failed is no count of what there is, and a bare number would read as one.
    text = f"{gpus.state}, {gpus.count} listed" if counted else str(gpus.state)
    return text, text


def unusable(gpus: Gpus) -> str:
    """Return how many GPUs of how many cannot be used, as in ``1 of 8 missing``; nothing where all can."""
    states: Counter[str] = Counter(device.state for device in gpus.devices)
    if gpus.state == "missing" and not states["missing"] and None not in (gpus.pci_count, gpus.count):
        states["missing"] = max(0, (gpus.pci_count or 0) - (gpus.count or 0))
    if gpus.state not in ("missing", "fault"):
        return ""
    known = (gpus.count or 0) + (states["missing"] if gpus.state == "missing" else 0)
    every = max(gpus.pci_count or 0, len(gpus.devices), known)
    words = [f"{states[state]} {word}" for state, word in _UNUSABLE.items() if states[state]]
    if not words:
        return f"some {_UNUSABLE[gpus.state]}"
    number, _, rest = ", ".join(words).partition(" ")
    return f"{number} of {every} {rest}"


_UNUSABLE: dict[str, str] = {"fault": "faulty", "missing": "missing"}


def linked(gpus: Gpus) -> tuple[str, str]:
    """Return the worst link between two GPUs, with the pairs that have it where others are better, and alone."""
    if gpus.link is None:
        return "-", "-"
    short = clean(gpus.link, NAME)
    if gpus.nvlink is False and any(word.startswith("NV") for word in gpus.links.values()):
        short += ", NVLink in part"
    worst = [clean(pair, NAME) for pair, word in gpus.links.items() if word == gpus.link]
    if not worst or len(worst) == len(gpus.links):
        return short, short
    first, *others = worst
    return f"{short} ({first}{f' +{len(others)}' if others else ''})", short


def drivers(gpus: Gpus) -> str:
    """Return the loaded driver, and that of its libraries where it is another."""
    versions = dict.fromkeys(clean(version, NAME) for version in (gpus.driver, gpus.driver_userspace) if version)
    return "/".join(versions) or "-"
