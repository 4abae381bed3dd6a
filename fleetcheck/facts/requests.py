"""Whether a serving process was started with the all-reduce fusion, as its arguments say."""

from __future__ import annotations

from fleetcheck.facts.records import Process

ASKS = ("--enable-flashinfer-allreduce-fusion", "--flashinfer-allreduce-fusion-backend")
FORBIDS = ("--enforce-disable-flashinfer-allreduce-fusion", "--disable-flashinfer-allreduce-fusion")
TENSOR_PARALLEL = ("--tp", "--tp-size", "--tensor-parallel-size", "-tp")
PASSES = ("fuse_allreduce_rms", "enable_fi_allreduce_fusion")
"""The names of vLLM's pass in ``--compilation-config``, new and old."""
SIZE = "fi_allreduce_fusion_max_size_mb"
"""The size of ``--compilation-config`` that takes the place of vLLM's own table, also where this has none."""


def wanted(process: Process, *, auto: bool) -> bool | None:
    """Return whether the process asked for the fusion; None where its arguments leave that open.

    ``auto``: this framework may switch it on unasked on these GPUs, for some models. Both frameworks fuse only
    where more than one GPU shares a layer, and both start with one unless told otherwise.
    """
    if process.title is not None and process.launcher is None:
        return None  # a renamed child, whose launcher was not seen: its arguments are gone
    flags = process.flags
    size = next((flags[name] for name in TENSOR_PARALLEL if name in flags), "1")
    if size == "1" or any(name in flags for name in FORBIDS):
        return False
    told = {flags[name] for name in PASSES if name in flags}
    if process.server == "vllm":
        return "true" in told if told else None
    if any(name in flags for name in ASKS):
        return True
    return None if auto else False


def sized(process: Process) -> bool:
    """Return whether vLLM was given a size, so that its table of GPUs does not count."""
    return process.server == "vllm" and SIZE in process.flags
