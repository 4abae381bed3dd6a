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
# Of those in the other one four admit none of the GPUs that a gate admits.
FUSED_CLOSED = 4


# Releases whose csrc/trtllm_allreduce.cu steps through the pointers by the number of GPUs, and not by 16 as its
# kernels read them (flashinfer#3903), and the sha256 of that file: 0.2.14 and 0.3.1, 0.4.1, 0.5.3, from 0.6.0 on.
WRONG_STRIDE = SpecifierSet(">=0.2.14,<0.6.17.dev0", prereleases=True)
MENDED_STRIDE = SpecifierSet(">=0.6.17.dev0", prereleases=True)
WRONG_STRIDE_FILES = frozenset(
    (
        "9f72b611d7b409d0983873149e05e2437c8c231fecce4396c318391e4f4c937a",
        "662f7587a464660fe88a6361e1599f7d6b29f8f2c3da760564b4eb014eea5105",
        "a8d1da0dd412c20bdb097ee361dc5357e76f5b77599b13ddcf198b93d1d4dad9",
        "ab90286e6b3c50a63c8150abda719e62fcde9d2a8cbfb4f36ededffd1b61eb86",
    )
)
# The same file with the stride mended: 0.6.17 to 0.7.4.
MENDED_STRIDE_FILES = frozenset(("1a02cb9003d18eca08dbfc62856c7f4eade9c311d0884c4dc53bbe38d72cb05e",))


def has_wrong_stride(version: str | None) -> bool | None:
    """Return whether the release's own ``csrc/trtllm_allreduce.cu`` has the wrong stride; None: not known."""
    release = parsed(version)
    if release is None:
        return None
    return True if WRONG_STRIDE.contains(release) else False if MENDED_STRIDE.contains(release) else None


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
