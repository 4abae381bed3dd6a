"""What FlashInfer's releases hold, as data. Read in the tagged sources from 0.2.0 to 0.7.4."""

from __future__ import annotations

from functools import lru_cache

from packaging.specifiers import SpecifierSet

from fleetcheck.facts.toolchain import parsed

# Majors that gen_trtllm_comm_module of an unedited release admits; None is no gate (flashinfer#3903 added 12).
STOCK_GATES: tuple[tuple[str, tuple[int, ...] | None], ...] = (
    (">=0.2.7,<0.3.1", None),
    (">=0.3.1,<0.6.17.dev0", (9, 10)),
    (">=0.6.17rc1", (9, 10, 12)),
)
# The sources of trtllm_comm under csrc: without one of them the module cannot be built.
CSRC_FILES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (">=0.2.7", ("trtllm_allreduce.cu", "trtllm_allreduce_fusion.cu", "trtllm_moe_allreduce_fusion.cu")),
    (">=0.2.6.dev0,<0.2.7", ("trtllm_allreduce.cu", "custom_all_reduce.cu")),
    (">=0.2.0.dev0,<0.2.6.dev0", ("batch_decode.cu", "sampling.cu", "norm.cu")),
)
# sglang that switches the fusion on for compute capability 12.x although no gate admits it (sglang#15650).
SGLANG_AUTO_ENABLES = SpecifierSet(">=0.5.5,<0.5.8", prereleases=True)


@lru_cache(maxsize=256)
def stock_gate(version: str | None) -> tuple[bool, tuple[int, ...] | None]:
    """Return whether the release is known, and the majors that its unedited gate admits (None: all)."""
    release = parsed(version)
    for span, gate in STOCK_GATES:
        if release is not None and SpecifierSet(span, prereleases=True).contains(release):
            return True, gate
    return False, None


# Releases whose trtllm_comm needs both headers, and how many conditions on __CUDA_ARCH__ the first one holds.
FUSION_HEADERS = SpecifierSet(">=0.2.14,<0.8.dev0", prereleases=True)
HEADER_CONDITIONS = 15
# sha256 of what that header holds beside comments and conditions: 0.2.14 to 0.6.6, 0.6.7 to 0.6.16, from 0.6.17.
HEADER_RESTS = frozenset(
    (
        "b07c3d7a8b4fe31158b73a6c958f6716f4a70c5db19f1f66b881477009ec6cb3",
        "aa71a84a11a5ac5e02ed4da940f98f56ca5d682834eabd5fb0e1308443007f0c",
        "6b46bec177581d2c45cbae725f509d576eec369f21a34aa226f86e000d115614",
    )
)


def has_fusion_headers(version: str | None) -> bool:
    """Return whether the release is known to build trtllm_comm from the two headers of the all-reduce."""
    release = parsed(version)
    return release is not None and FUSION_HEADERS.contains(release)


@lru_cache(maxsize=256)
def csrc_files(version: str | None) -> tuple[str, ...]:
    """Return the files without which a release's csrc is incomplete; none where the release is not known."""
    release = parsed(version)
    for span, names in CSRC_FILES:
        if release is not None and SpecifierSet(span, prereleases=True).contains(release):
            return names
    return ()


def sglang_auto_enables(version: str | None) -> bool:
    """Return whether this sglang may switch the fusion on where it is refused; True where that is not known."""
    release = parsed(version)
    return release is None or SGLANG_AUTO_ENABLES.contains(release)
