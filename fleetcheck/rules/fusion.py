"""Rules on FlashInfer's TRT-LLM all-reduce: its gate, its header, and this host's GPUs."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from fleetcheck.facts.edits import origin
from fleetcheck.facts.guards import HEADER
from fleetcheck.facts.records import Basis, Fusion, Venv
from fleetcheck.facts.wrapper import SOURCE, stride
from fleetcheck.rules import text
from fleetcheck.rules.gpu import counted
from fleetcheck.rules.patched import (
    FIXED,
    back_to_release,
    capabilities,
    capability,
    check_stride,
    gate_path,
    in_use,
    package_path,
    version,
)
from fleetcheck.rules.rule import Hit, Look, rule
from fleetcheck.rules.versions import below

GUARDS = 13
"""How many guards the header holds in the releases from 0.5.3 to 0.6.16."""
PR = "https://github.com/flashinfer-ai/flashinfer/pull/3903"
SGLANG_PR = "https://github.com/sgl-project/sglang/pull/32330"
SGLANG_CRASH = "https://github.com/sgl-project/sglang/issues/15650"
STRIDE_GPUS = 16
"""The one number of GPUs with which the wrong pointer stride and the kernels' own agree (MAX_RANKS_PER_NODE)."""
GATE = "package-modified/gate"
LOOK_AT_GATE = "grep -n -A 20 'def gen_trtllm_comm_module'"
ARCH_LIST = "FLASHINFER_CUDA_ARCH_LIST"
LOOKS = {
    "compilation_context.py": "grep -n -A 30 'def get_nvcc_flags_list'",
}
"""How to look at the file that keeps the gate from being told."""
SOURCES = (".cu", ".cuh", ".h", ".hpp")
LOOK_AT_SOURCE = "grep -n -e __CUDA_ARCH -e return -e '#error'"


def _look_at(cause: str | None) -> str:
    if cause is not None and cause.endswith(SOURCES):
        return LOOK_AT_SOURCE
    return LOOKS.get(cause or "", LOOK_AT_GATE)


def judged(look: Look, verdict: str) -> Iterator[tuple[Venv, Fusion]]:
    """Yield the environments of which the facts give this verdict."""
    for venv in look.facts.venvs:
        if venv.state == "ok" and venv.fusion is not None and venv.fusion.verdict == verdict:
            yield venv, venv.fusion


def package(venv: Venv) -> str:
    """Return ``FlashInfer 0.6.2``, as far as it is known."""
    return text.name(venv.flashinfer) if venv.flashinfer is not None else "FlashInfer"


def majors(fusion: Fusion) -> str:
    """Return what the gate admits, in words."""
    if fusion.gate is None:
        return "every compute capability"
    return f"majors {', '.join(map(str, fusion.gate))}" if fusion.gate else "no major"


def basis(look: Look) -> Basis:
    """Return what a verdict rests on: the files, and the GPUs, which may not have told what they are."""
    return "resolved" if capabilities(look)[1] is None else "guessed"


@rule(
    "fusion-refused",
    "fusion",
    "info",
    summary="FlashInfer's gate keeps its TRT-LLM all-reduce off this host's GPUs.",
    explanation=(
        "`gen_trtllm_comm_module` compiles for the majors in its list alone: 9 and 10 from 0.3.1 to "
        "0.6.16, and 12 too from 0.6.17. On other GPUs its first use raises RuntimeError. This is how the "
        "release is meant, and serving without all-reduce fusion is correct."
    ),
    remedy=(
        "Nothing is to be mended. If the fusion is wanted, move to FlashInfer 0.6.17 or newer with a "
        "framework that allows it there. Do not widen the gate by hand."
    ),
    references=(PR, SGLANG_CRASH),
)
def fusion_refused(look: Look) -> Iterator[Hit]:
    """Fire where the gate's majors miss this host's GPUs."""
    for venv, fusion in judged(look, "refused"):
        newer = below(version(venv), FIXED)
        yield Hit(
            f"The gate of {package(venv)} admits {majors(fusion)}, so all-reduce fusion is refused on "
            f"{capability(look)}.",
            venv=venv.path,
            seen=fusion.gate,
            basis=basis(look),
            remedy=(
                "Nothing to mend: the release does not support it here, and serving without it is correct.",
                *(
                    (f"If it is wanted, move to FlashInfer {FIXED} or newer; do not widen the gate by hand.",)
                    if newer
                    else ()
                ),
            ),
        )


@rule(
    "fusion-unsafe-patch",
    "fusion",
    "error",
    summary="The gate admits these GPUs, but the header compiles plain all-reduce kernels to nothing for them.",
    explanation=(
        "Gate: the list of GPU generations that FlashInfer compiles for. Guard: a condition in the header that "
        "leaves "
        "a kernel's body out for newer GPUs. Lamport: the way in which these kernels wait for the other GPUs. "
        "Until 0.6.16 `trtllm_allreduce.cuh` holds 13 guards `__CUDA_ARCH__ < 1200`. With the gate alone "
        "widened, the build succeeds, and all 480 instances of "
        "`lamport_style_one_shot_all_reduce_norm_kernel` are compiled to an empty body for compute "
        "capability 12.x. A call of `trtllm_custom_all_reduce` then succeeds and returns whatever was in "
        "the buffer: wrong tokens, no error. The host wrapper's pointer stride is wrong there as well for "
        "any world size but 16. The guards stand in that header alone: the fused kernels that sglang calls "
        "(`trtllm_allreduce_fusion`) are real code, compiled but never validated upstream on compute "
        "capability 12.x below 0.6.17. sglang's own gates keep compute capability 12.x off them "
        "too (0.5.5 to 0.5.7 excepted, which could crash there), so a patched FlashInfer alone changes "
        "nothing in it."
    ),
    remedy=(
        "Keep a copy of the edit, put the release's files back (fusion is then refused, which is correct), or "
        "move to FlashInfer "
        "0.6.17 or newer, which fixed gate, header and stride together. Move what was built out of the JIT "
        "cache, and restart what serves. Do not remove the guards by hand."
    ),
    references=(PR, SGLANG_PR),
    causes=(GATE,),
)
def fusion_unsafe_patch(look: Look) -> Iterator[Hit]:
    """Fire where the gate admits compute capability 12.x over a header that still guards against it."""
    for venv, fusion in judged(look, "unsafe-patch"):
        # Measured with all 13 guards of 0.6.2, built for 12.0: each of the 480 instances is empty.
        kernels = "480 of its kernels" if fusion.guards == GUARDS else "some of its kernels"
        old = version(venv) is None or below(version(venv), FIXED)
        fused = (
            f" The fused kernels that sglang calls are not empty, but nobody validated them here below {FIXED}."
        )
        yield Hit(
            f"{_opened(look, venv, fusion)}, but "
            f"{kernels} for them are empty: trtllm_custom_all_reduce then returns whatever was in the buffer, "
            f"without an error.{fused if old else ''} {in_use(look, venv)}",
            venv=venv.path,
            expected={"guards": 0},
            seen={"gate": fusion.gate, "guards": fusion.guards},
            basis=basis(look),
            remedy=back_to_release(look, venv),
        )


def _opened(look: Look, venv: Venv, fusion: Fusion) -> str:
    """Return whose doing it is that these GPUs come to kernels that are empty for them."""
    said = capability(look, "12.")
    these = said if basis(look) == "guessed" else f"these GPUs ({said})"
    whose = "unknown" if venv.flashinfer is None else origin(venv.flashinfer, fusion)
    if whose == "gate":
        gate = text.brief(fusion.gate_file, "The gate")
        return f"{gate} was edited to allow {package(venv)}'s all-reduce on {these}"
    if whose == "header":
        return (
            f"{HEADER.rpartition('/')[2]} of {package(venv)} is not the release's and leaves kernels out for "
            f"{these}; the gate admits them as it was released"
        )
    admits = "itself admits" if whose == "release" else "has a gate that admits"
    return f"{package(venv)} {admits} {these} to its all-reduce"


@rule(
    "fusion-patched",
    "fusion",
    "warning",
    summary="A local edit admits these GPUs to FlashInfer's TRT-LLM all-reduce; the header has no guard left.",
    explanation=(
        "Gate and header were both changed by hand, so the kernels are real code. Upstream never validated "
        "them in this release on these GPUs, the fused kernels that sglang calls included. Before 0.6.17 the host "
        "wrapper in `csrc/trtllm_allreduce.cu` also steps through memory wrongly: results of "
        "`trtllm_custom_all_reduce` are wrong unless 16 GPUs take part. An edit of gate and header leaves that in "
        "place. Where that file is known to be the release's, and the host has not 16 GPUs, the finding is an "
        "error, whether or not a caller of that function is known; where it was edited too, or is not known, "
        "it is a warning."
    ),
    remedy=(
        "Put the release's files back, or move to FlashInfer 0.6.17 or newer, which supports these GPUs. If the "
        "patch is to stay, check "
        "that it mends `csrc/trtllm_allreduce.cu` too (the pointer stride), and name its files under "
        "`expect.files`."
    ),
    references=(PR,),
    causes=(GATE,),
)
def fusion_patched(look: Look) -> Iterator[Hit]:
    """Fire where a local edit admits the GPUs and no guard is left."""
    for venv, fusion in judged(look, "patched"):
        grave, plain = _plain_results(look, venv)
        older = version(venv) is None or below(version(venv), FIXED)
        release = f" below {FIXED}" if older else " in this release"
        yield Hit(
            f"A local edit makes the gate of {package(venv)} admit {majors(fusion)}, with no guard left in "
            f"the header. {plain}The fused kernels that sglang calls were never validated{release} on "
            f"{capability(look)}. {in_use(look, venv)}",
            venv=venv.path,
            severity="error" if grave else None,
            expected="release",
            seen={"gate": fusion.gate, "guards": fusion.guards},
            basis=basis(look),
            remedy=(*((check_stride(venv),) if plain and not grave else ()), *back_to_release(look, venv)),
        )


def _plain_results(look: Look, venv: Venv) -> tuple[bool, str]:
    """Return whether the plain all-reduce surely gives wrong results here, and a sentence on it, or ""."""
    state = stride(venv.flashinfer) if venv.flashinfer is not None else "unknown"
    count = counted(look.facts.gpus)
    count = look.target.expect.gpus if count is None else count
    wrong = f"gives wrong results unless {STRIDE_GPUS} GPUs take part"
    if state == "wrong":
        grave = count not in (None, STRIDE_GPUS)
        here = f", and this host has {count}" if grave else ""
        return grave, f"trtllm_custom_all_reduce {wrong}{here}: {SOURCE} has the wrong pointer stride. "
    if state == "right" or not below(version(venv), FIXED):
        return False, ""
    known = f"{SOURCE} was edited too" if state == "edited" else f"whether {SOURCE} is the release's is not known"
    return False, f"Below {FIXED} trtllm_custom_all_reduce {wrong}; {known}: check its pointer stride. "


@rule(
    "fusion-gate-unreadable",
    "fusion",
    "warning",
    summary="FlashInfer's gate could not be read, so it is not known whether all-reduce fusion is allowed.",
    explanation=(
        "Gate: the list of GPU generations (majors: the 12 of compute capability 12.0) that FlashInfer compiles "
        "a module for. It is read from `gen_trtllm_comm_module` without running it. A file that is no longer "
        "Python (a bad patch), a list that is computed, or a file that may not be read leaves it "
        "unknown. So does an edit of `compilation_context.py`, which applies the list, or of the header with the "
        "guards, that cannot be followed, an edit of a module that may replace the gate, and a list of "
        "architectures by which the gate passes while code is built for other GPUs than those here."
    ),
    remedy="Look at the file; if it was patched, keep a copy and install the same version again.",
    references=(PR,),
    causes=(GATE, "expectation-unchecked/allreduce_fusion"),
)
def fusion_gate_unreadable(look: Look) -> Iterator[Hit]:
    """Fire where the file is there and its gate could not be read."""
    for venv, fusion in judged(look, "unreadable"):
        cause = fusion.error_file if fusion.error_file not in (None, fusion.gate_file) else None
        path = gate_path(venv) if cause is None else package_path(venv, cause)
        said = f"The gate of {package(venv)} could not be read from"
        if cause is not None and cause.endswith(SOURCES):
            said = f"Whether {package(venv)}'s all-reduce fits these GPUs could not be told, because of"
        elif cause is not None:
            said = f"The gate of {package(venv)} could not be told, because of"
        if cause == ARCH_LIST:
            yield _for_others(look, venv, fusion)
            continue
        yield Hit(
            f"{said} {text.brief(path, 'its files')}: {text.brief(fusion.gate_error)}.",
            venv=venv.path,
            seen=fusion.gate_error,
            basis="resolved",
            remedy=(
                *((f"{_look_at(cause)} {text.quote(path)}",) if path else ()),
                *((text.keep(path),) if path else ()),
                text.reinstall(venv, venv.flashinfer),
                text.RESTART,
            ),
        )


def _for_others(look: Look, venv: Venv, fusion: Fusion) -> Hit:
    """Return what a list of architectures does to a gate that it passes by another GPU than those here."""
    return Hit(
        f"The gate of {package(venv)} admits {majors(fusion)}; with {text.brief(fusion.gate_error)}, so that its "
        f"all-reduce fusion is not refused, and finds no code for {capability(look)}.",
        venv=venv.path,
        seen=fusion.gate_error,
        basis="resolved",
        remedy=(
            f"grep -rn {ARCH_LIST} {text.quote(posixpath.join(venv.path, 'bin/activate'))} /etc/systemd/system",
            f"Name this host's GPUs alone in {ARCH_LIST}, or unset it: the fusion is then refused, as is right.",
            text.RESTART,
        ),
    )


RULES = (fusion_refused, fusion_unsafe_patch, fusion_patched, fusion_gate_unreadable)
