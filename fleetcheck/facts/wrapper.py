"""The host wrapper of FlashInfer's plain all-reduce: is it the release's file, and is its pointer stride right?

``csrc/trtllm_allreduce.cu`` hands the kernels of ``trtllm_custom_all_reduce`` their pointers. Below 0.6.17 it lays
them out by the number of GPUs, and the kernels read them 16 apart, so that results are wrong unless 16 take part
(flashinfer#3903). The fused kernels have a wrapper of their own.
"""

from __future__ import annotations

from typing import Literal

from fleetcheck.facts import releases
from fleetcheck.facts.records import FlashInfer

SOURCE = "data/csrc/trtllm_allreduce.cu"
MODULE = "trtllm_comm"
MOST_TOLD = 200
"""As many files are told of at most: beyond, a file that is not told of may have been left out."""

Stride = Literal["wrong", "right", "edited", "unknown"]


def stride(found: FlashInfer) -> Stride:
    """Return what is known of the pointer stride that would be compiled; ``edited``: of no release, and not read.

    Of the files that decide only those are told of that RECORD does not vouch for. A prebuilt module is loaded in
    place of what the sources say.
    """
    if any(path.rpartition("/")[2] == MODULE for path in found.prebuilt):
        return "unknown"
    file = found.file(SOURCE)
    if file is not None and file.sha256 in releases.WRONG_STRIDE_FILES:
        return "wrong"
    if file is not None and file.sha256 in releases.MENDED_STRIDE_FILES:
        return "right"
    if file is not None and file.record == "mismatch":
        return "edited"
    released = _vouched(found) if file is None else file.record == "match"
    wrong = releases.has_wrong_stride(found.version) if released else None
    return "unknown" if wrong is None else "wrong" if wrong else "right"


def _vouched(found: FlashInfer) -> bool:
    """Return whether the file, which is not told of, is there and as RECORD lists it."""
    gone = any(
        name.rpartition("/")[2] == SOURCE.rpartition("/")[2] for name in (*found.csrc_missing, *found.absent)
    )
    there = found.csrc_state in ("complete", "incomplete") and not gone and SOURCE not in found.modified
    return bool(found.verified) and there and len(found.files) < MOST_TOLD
