"""The verdict on FlashInfer's TRT-LLM all-reduce: does what stands on the disk fit this host's GPUs?

What the files say decides, not the version number. A gate tests that the GPUs' majors and its list have one in
common, not that each is in it: on a host with compute capabilities 9.0 and 12.0, ``[9, 10]`` passes and builds
code for 9.0 alone. So every major is judged, and the worst is the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fleetcheck.facts import deciders, gates, guards, modules, releases, requests, rests, shape, wrapper
from fleetcheck.facts.records import Framework, Fusion, FusionEffective, FusionVerdict, Process

_WORST_FIRST: tuple[FusionVerdict, ...] = (
    "unsafe-patch",
    "unreadable",
    "refused",
    "unknown",
    "patched",
    "supported",
)
_ON: Mapping[FusionVerdict, FusionEffective] = {
    "supported": "on",
    "patched": "on-unvalidated",
    "unsafe-patch": "on-unvalidated",
}
CONTEXT = deciders.CONTEXT
ARCH_LIST = "FLASHINFER_CUDA_ARCH_LIST"
MODULE_FRAMEWORKS = ("sglang", "vllm")


def fusion(
    files: Mapping[str, Mapping[str, Any]],
    version: str | None,
    capabilities: Sequence[str],
    callers: Sequence[Framework] = (),
    rows: Sequence[Any] = (),
    *,
    arch_list: str | None = None,
) -> Fusion:
    """Judge the files of one FlashInfer. ``capabilities`` are those of all GPUs, empty if unknown.

    ``callers`` are the frameworks beside it, ``rows`` the lists of majors that the agent cut out of all its files,
    ``arch_list`` is the value of ``FLASHINFER_CUDA_ARCH_LIST`` where that names the targets.
    """
    reading = gates.read(files, version)
    listed = modules.gates(rows)
    # A function beside the gate may have its list from a helper, which the reading by its own text misses.
    every = listed | {name: gate or listed.get(name) for name, gate in reading.gates.items()}
    guarded, doubt, doubted = _headers(files, version, capabilities)
    error, error_file = reading.error, reading.file
    if reading.state in ("read", "no-gate"):
        error, error_file = _context_doubt(files), CONTEXT
    verdict: FusionVerdict = "unreadable" if error else _verdict(reading, guarded, version, capabilities, doubt)
    if error is None and verdict == "unreadable":
        error, error_file = doubt, doubted
    if verdict == "refused" and (error := _built_for_others(reading, capabilities, arch_list)):
        verdict, error_file = "unreadable", ARCH_LIST
    if error is None and verdict in ("refused", "supported", "patched", "unknown"):
        # The table of verdicts holds for the release's own modules around the gate.
        around = _around(files, version, verdict)
        if around is not None and (verdict != "refused" or around[2] == "unreadable"):
            error_file, error, verdict = around
    return Fusion(
        verdict=verdict,
        effective=effective(verdict, callers, capabilities),
        gate=reading.gate,
        gate_state=reading.state,
        gate_file=reading.file,
        gate_error=error,
        error_file=error_file if error else None,
        guards=guarded,
        gates=every,
        frameworks={caller.name: caller.version for caller in callers},
        callers=tuple(callers),
        closed=modules.closed(every, capabilities),
    )


def unsure(judged: Fusion, why: str, file: str | None, capabilities: Sequence[str]) -> Fusion:
    """Return a verdict that lets the GPUs pass as ``unknown``: other sources than the package's may be built.

    A gate that refuses them does so for any sources, and empty kernels in the package's own stay a danger.
    """
    if judged.verdict not in ("supported", "patched"):
        return judged
    found = effective("unknown", judged.callers, capabilities)
    return judged.model_copy(
        update={"verdict": "unknown", "effective": found, "gate_error": why, "error_file": file}
    )


def _context_doubt(files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return why the gate's list may not decide: what the gate is called on, where edited, may admit anything."""
    context = files.get(CONTEXT, {})
    record = context.get("record")
    if record == "mismatch":
        return f"{CONTEXT}, which applies the gate, was edited"
    if record not in ("no-record", "unlisted") or shape.source(context.get("text")) is None or context.get("cut"):
        return None
    doubt = deciders.context_doubt(context)
    return f"{CONTEXT}, which applies the gate, is not that of a release: {doubt}" if doubt else None


def _around(
    files: Mapping[str, Mapping[str, Any]], version: str | None, verdict: FusionVerdict
) -> tuple[str, str, Literal["unknown", "unreadable"]] | None:
    """Return the file around the gate that keeps a verdict from being true, why, and the verdict then."""
    for module, by in deciders.replaced(files).items():
        return module, f"{by} lies beside {module}, and Python imports that instead", "unreadable"
    for name in deciders.edited(files):
        return name, f"{name} was edited, and may replace the gate or the sources", "unreadable"
    for name in deciders.lost(files, version):
        vendored = name.startswith(deciders.FOREIGN)
        without = (
            "FlashInfer compiles with it" if vendored else "trtllm_comm cannot be built or imported without it"
        )
        return name, f"{name} is not there, and {without}", "unknown"
    return None if verdict == "refused" else _compiled(files, verdict)


def _compiled(
    files: Mapping[str, Mapping[str, Any]], verdict: FusionVerdict
) -> tuple[str, str, Literal["unknown", "unreadable"]] | None:
    """Return the file beside the headers by which what is compiled for the GPUs is not known, why, the verdict."""
    # A patch mends the wrapper of the plain all-reduce as well: what a patched one does is told beside it.
    mended = (wrapper.SOURCE,) if verdict == "patched" else ()
    for name in rests.LAUNCHERS:
        if name not in mended and (why := rests.doubt(files, name)):
            return name, f"{why}: what it launches is not known", "unreadable"
    for name in deciders.included(files):
        return name, f"{name}, which trtllm_comm is compiled with, was edited", "unreadable"
    return None


def _built_for_others(reading: gates.Reading, capabilities: Sequence[str], arch_list: str | None) -> str | None:
    """Return what happens where a list of architectures lets the gate pass by other GPUs than these, or None.

    The gate asks for one major in common with the list, and code is built for those in common alone.
    """
    targets = {int(major) for major in re.findall(r"(?:^|\s)(\d{1,2})\.\d", arch_list or "")}
    built = sorted(targets & set(reading.gate or ()))
    majors = {int(capability.partition(".")[0]) for capability in capabilities}
    if not built or majors & set(built):
        return None
    return f"{ARCH_LIST}={arch_list}: the gate passes, and code is built for {', '.join(map(str, built))} alone"


def _headers(
    files: Mapping[str, Mapping[str, Any]], version: str | None, capabilities: Sequence[str]
) -> tuple[int | None, str | None, str]:
    """Return how many guards the header holds, why the headers leave doubt (or None), and in which file."""
    header = files.get(guards.HEADER, {})
    text = None if header.get("record") == "missing" else shape.source(header.get("text"))
    if doubt := _header_doubt(header, text, version):
        return None, doubt, guards.HEADER
    guarded = None if text is None else guards.count(text, capabilities)
    if guarded and any(capability.startswith("12.") for capability in capabilities):
        return guarded, None, guards.HEADER  # empty kernels are known, whatever else was edited
    if doubt := rests.doubt(files, guards.HEADER):
        return guarded, doubt, guards.HEADER
    return guarded, _fused_doubt(files, capabilities), guards.FUSED


def _header_doubt(header: Mapping[str, Any], text: str | None, version: str | None) -> str | None:
    """Return why the guards of the header cannot be told although it is there, or None."""
    name = _name(guards.HEADER)
    error = shape.line(header.get("error"))
    if text is None:
        gone = not error or error in ("ENOENT", "ENOTDIR") or header.get("record") == "missing"
        return None if gone else f"{name}: {error}"
    if header.get("record") == "match":
        return None
    doubt = guards.doubt(text, releases.HEADER_CONDITIONS if releases.has_fusion_headers(version) else 0)
    edited = "was edited" if header.get("record") == "mismatch" else "is not that of a release"
    return f"{name} {edited}: {doubt}" if doubt else None


def _fused_doubt(files: Mapping[str, Mapping[str, Any]], capabilities: Sequence[str]) -> str | None:
    """Return why a header of the fused kernels that no RECORD vouches for may leave them out here, or None."""
    header = files.get(guards.FUSED, {})
    text = shape.source(header.get("text")) if header.get("record") not in ("match", "missing") else None
    if text is None:
        return None
    doubt = guards.doubt(text, closed=releases.FUSED_CLOSED)
    doubt = doubt or ("a condition leaves 12.x out" if guards.count(text, capabilities) else None)
    edited = "was edited" if header.get("record") == "mismatch" else "is not that of a release"
    return f"{_name(guards.FUSED)} {edited}: {doubt}" if doubt else rests.doubt(files, guards.FUSED)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _verdict(
    reading: gates.Reading,
    guarded: int | None,
    version: str | None,
    capabilities: Sequence[str],
    doubt: str | None,
) -> FusionVerdict:
    if reading.state in ("absent", "unreadable"):
        return "absent" if reading.state == "absent" else "unreadable"
    majors = {int(capability.split(".")[0]) for capability in capabilities}
    found = {_of_major(reading, guarded, version, major, doubt) for major in majors}
    return next((verdict for verdict in _WORST_FIRST if verdict in found), "unknown")


def _of_major(
    reading: gates.Reading, guarded: int | None, version: str | None, major: int, doubt: str | None
) -> FusionVerdict:
    if reading.gate is not None and major not in reading.gate:
        return "refused"
    if doubt:
        return "unreadable"
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


def effective(
    verdict: FusionVerdict,
    frameworks: Sequence[Framework],
    capabilities: Sequence[str] = (),
    processes: Sequence[Process] | None = None,
) -> FusionEffective:
    """Say what is in force, from FlashInfer's gate, the frameworks' gates and what serves.

    ``processes`` are those that serve from this environment; None: they were not looked at, so that what a flag
    decides is ``unknown``. The worst of the frameworks counts.
    """
    majors = {int(capability.partition(".")[0]) for capability in capabilities}
    if not frameworks:
        return "off" if verdict in ("absent", "refused") else "unknown"
    states = {_of_framework(verdict, framework, majors, processes) for framework in frameworks}
    return next(state for state in ("would-crash", "on-unvalidated", "on", "unknown", "off") if state in states)


def _of_framework(
    verdict: FusionVerdict,
    framework: Framework,
    majors: set[int],
    processes: Sequence[Process] | None,
) -> FusionEffective:
    refuses = verdict in ("absent", "refused")
    undecided = set(framework.modified) - {gate.file for gate in framework.gates}
    if undecided:
        # A file that decides without holding a gate was edited: what it does is not known.
        return "unknown"
    if not framework.gates:
        auto = framework.name == "sglang" and releases.sglang_auto_enables(framework.version)
        return "off" if refuses and not auto else "unknown"
    if refuses and framework.falls_back:
        return "off"
    if framework.admits is None or not majors:
        return "unknown"
    own = [process for process in processes or () if process.server == framework.name]
    calls = majors if any(map(requests.sized, own)) else majors & set(framework.admits)
    if refuses and calls and majors & set(framework.auto_enables or ()) & calls:
        # It fuses with more than one GPU to a layer alone: what serves with one does not come to the call.
        asked = {requests.wanted(process, auto=True) for process in own}
        return "off" if asked == {False} else "would-crash"
    if not calls:
        hidden = framework.name == "vllm" and any(map(requests.unseen, own))
        return "unknown" if hidden else "off"
    auto = framework.auto_enables is None or bool(majors & set(framework.auto_enables))
    wanted = {requests.wanted(process, auto=auto) for process in own}
    if not wanted or None in wanted:
        return "unknown"
    if True not in wanted:
        return "off"
    return "would-crash" if refuses else _ON.get(verdict, "unknown")
