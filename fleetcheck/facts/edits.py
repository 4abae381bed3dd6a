"""Whose doing an unsafe all-reduce is: an edited gate, a header that was put in, or the release as it came.

The verdict ``unsafe-patch`` says that the gate lets compute capability 12.x come to kernels that are empty for it.
From 0.6.17 on the release's gate does so, with a header that has no guard; before 0.3.1 no release has a gate.
"""

from __future__ import annotations

from typing import Literal

from fleetcheck.facts import guards, releases
from fleetcheck.facts.records import FlashInfer, Fusion

Origin = Literal["gate", "header", "release", "unknown"]
UNSAFE_MAJOR = 12


def origin(found: FlashInfer, fusion: Fusion) -> Origin:
    """Return what was changed for GPUs of major 12 to come to a header with guards.

    ``gate``: the list was widened. ``header``: the gate is as the release has it, and the header is not.
    ``release``: neither was changed. ``unknown``: no RECORD vouches for either, and the release is not known.
    """
    gate, header = _record(found, fusion.gate_file), _record(found, guards.HEADER)
    known, stock = releases.stock_gate(found.version)
    admits = known and (stock is None or UNSAFE_MAJOR in stock)
    if known and not admits:
        return "gate"
    if header == "mismatch":
        return "gate" if gate == "mismatch" and not admits else "header"
    if gate == "mismatch":
        return "gate"
    if not admits:
        return "unknown"
    # Without a RECORD: a release without a gate has the guards itself, a later one has them from elsewhere.
    return "release" if stock is None else "header"


def _record(found: FlashInfer, name: str | None) -> str | None:
    """Return how a file stands to RECORD; None where it is not told of."""
    file = found.file(name) if name else None
    return None if file is None else file.record
