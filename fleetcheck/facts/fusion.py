"""The verdict on FlashInfer's TRT-LLM all-reduce: does what stands on the disk fit this host's GPUs?

What the files say decides, not the version number. A gate tests that the GPUs' majors and its list have one in
common, not that each is in it: on a host with compute capabilities 9.0 and 12.0, ``[9, 10]`` passes and builds
code for 9.0 alone. So every major is judged, and the worst is the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetcheck.facts import gates, guards, releases, shape
from fleetcheck.facts.records import Fusion, FusionEffective, FusionVerdict

_WORST_FIRST: tuple[FusionVerdict, ...] = ("unsafe-patch", "refused", "unknown", "patched", "supported")
MODULE_FRAMEWORKS = ("sglang", "vllm")


def fusion(
    files: Mapping[str, Mapping[str, Any]],
    version: str | None,
    capabilities: Sequence[str],
    frameworks: Mapping[str, str | None],
    *,
    framework_edited: bool = False,
) -> Fusion:
    """Judge the files of one FlashInfer. ``capabilities`` are those of all GPUs, empty if unknown."""
    reading = gates.read(files)
    header = files.get(guards.HEADER, {})
    text = None if header.get("record") == "missing" else shape.source(header.get("text"))
    guarded = None if text is None else guards.count(text, capabilities)
    verdict = _verdict(reading, guarded, version, capabilities)
    return Fusion(
        verdict=verdict,
        effective=_effective(verdict, frameworks, edited=framework_edited),
        gate=reading.gate,
        gate_state=reading.state,
        gate_file=reading.file,
        gate_error=reading.error,
        guards=guarded,
        gates=dict(reading.gates),
        frameworks=dict(frameworks),
    )


def _verdict(
    reading: gates.Reading, guarded: int | None, version: str | None, capabilities: Sequence[str]
) -> FusionVerdict:
    if reading.state in ("absent", "unreadable"):
        return "absent" if reading.state == "absent" else "unreadable"
    majors = {int(capability.split(".")[0]) for capability in capabilities}
    found = {_of_major(reading, guarded, version, major) for major in majors}
    return next((verdict for verdict in _WORST_FIRST if verdict in found), "unknown")


def _of_major(reading: gates.Reading, guarded: int | None, version: str | None, major: int) -> FusionVerdict:
    if reading.gate is not None and major not in reading.gate:
        return "refused"
    if major < 9:
        # Its kernels start at `__CUDA_ARCH__ >= 900`; an ungated release builds them, and nobody tried.
        return "unknown"
    if major == 12 and guarded is None:
        return "unknown"
    if major == 12 and guarded:
        return "unsafe-patch"
    known, stock = releases.stock_gate(version)
    by_release = stock is None or major in stock
    edited = not by_release if known else reading.record == "mismatch"
    return "patched" if edited else "supported"


def _effective(verdict: FusionVerdict, frameworks: Mapping[str, str | None], *, edited: bool) -> FusionEffective:
    """Say ``off`` only where no caller could be let through; flags and processes are not examined here."""
    auto = "sglang" in frameworks and releases.sglang_auto_enables(frameworks["sglang"])
    return "off" if verdict in ("absent", "refused") and not auto and not edited else "unknown"
