"""Rules on the compilers that FlashInfer's JIT would start, and on what torch and they were made for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from packaging.version import Version

from fleetcheck.facts.in_force import serves_from
from fleetcheck.facts.records import Toolchain, Venv
from fleetcheck.facts.toolchain import parsed
from fleetcheck.rules import text
from fleetcheck.rules.caches import aside
from fleetcheck.rules.rule import Hit, Look, rule

CPP_EXT = "https://github.com/flashinfer-ai/flashinfer/blob/v0.6.18/flashinfer/jit/cpp_ext.py"
NVCC_12 = "https://github.com/flashinfer-ai/flashinfer/issues/3633"
ARCH = "https://github.com/flashinfer-ai/flashinfer/blob/v0.6.18/flashinfer/compilation_context.py"
ERROR_35 = "https://github.com/flashinfer-ai/flashinfer/issues/5145"
TORCH = "https://pytorch.org/blog/pytorch-2-7/"
LEAST: Final = {"9.0": "12.0", "10.0": "12.8", "10.3": "12.9", "12.0": "12.8", "12.1": "12.9"}
"""The first CUDA release whose nvcc compiles for a compute capability with the letter that FlashInfer asks for."""
TORCH_LEAST: Final = {"9": "11.8", "10": "12.8", "12": "12.8"}


def chains(look: Look, venv: Venv) -> Iterator[tuple[Toolchain, str | None]]:
    """Yield the toolchains that count: those of the processes that serve, else that of the login (None)."""
    seen: list[Toolchain] = []
    for process in look.facts.processes or ():
        if process.toolchain is not None and serves_from(process, venv) and process.toolchain not in seen:
            seen.append(process.toolchain)
            yield process.toolchain, f"process {process.pid}"
    if not seen and venv.toolchain is not None:
        yield venv.toolchain, None


def whose(process: str | None) -> str:
    """Return for whom a toolchain was looked up."""
    return process or "the login"


def least(version: str | None, capability: str) -> str | None:
    """Return the oldest CUDA release with which this FlashInfer compiles for a compute capability."""
    release, first = parsed(version), LEAST.get(capability)
    if release is None or first is None:
        return None
    # 0.6.7 asks for compute_120f, which 12.9 brought; 0.7.1 takes 120a where it finds 12.8 (flashinfer#3633).
    family = capability.startswith("12.") and Version("0.6.7") <= release < Version("0.7.1")
    return "12.9" if family else first


@rule(
    "nvcc-missing",
    "toolchain",
    "error",
    summary="FlashInfer's own search for nvcc leads to no compiler.",
    explanation=(
        "FlashInfer takes CUDA_HOME, then CUDA_PATH, then the folder above the nvcc of PATH, then "
        "/usr/local/cuda, "
        "and calls bin/nvcc there. It does not look further where the first of them is wrong. Modules that are "
        "compiled already go on working, and the next one fails. Judged by the login alone, it is a warning: a "
        "server may be started with other variables. Where prebuilt modules are installed, it is a note: "
        "many a server then compiles nothing."
    ),
    remedy="Set CUDA_HOME, where the server is started, to a toolkit that has bin/nvcc.",
    references=(CPP_EXT, "https://github.com/vllm-project/vllm/issues/36077"),
    causes=("nvcc-too-old", "cuda-mismatch"),
)
def nvcc_missing(look: Look) -> Iterator[Hit]:
    """Fire where the compiler that would be called was looked for and is not there."""
    for venv, found in look.installed():
        for chain, process in chains(look, venv):
            if chain.found is not False:
                continue
            why = f"; {text.brief(chain.problem)}" if chain.problem else ""
            source = f" by {chain.named_by}" if chain.named_by not in (None, "default") else ""
            judged = (
                f" (judged{source} of {process})"
                if process is not None
                else f" (judged{source or ' by the environment'} of the login; a server may set CUDA_HOME)"
            )
            yield Hit(
                f"{text.name(found)} of {text.brief(venv.path)} would compile with "
                f"{text.brief(chain.nvcc_path, 'nvcc')}, which does not exist{judged}{why}. Kernels that are not "
                "compiled yet would fail.",
                venv=venv.path,
                severity="info" if found.prebuilt else "warning" if process is None else None,
                expected=chain.nvcc_path or "nvcc",
                seen="absent",
                basis="resolved" if process is None else "running",
                remedy=(
                    "ls -d /usr/local/cuda*/bin/nvcc",
                    "Set CUDA_HOME to the folder above bin/nvcc where the server is started.",
                    text.RESTART,
                ),
            )


@rule(
    "nvcc-too-old",
    "toolchain",
    "error",
    summary="The nvcc that FlashInfer would call is too old for a GPU of this host.",
    explanation=(
        "For compute capability 12.0 nvcc 12.8 is the first that compiles. FlashInfer 0.6.7 to 0.7.0 ask for "
        "`compute_120f`, which takes 12.9: with an older one the detection of the GPUs swallows the error, no GPU "
        "is left, and the message speaks of a requirement of sm75. From 0.7.1 on 12.8 is enough."
    ),
    remedy="Install a newer toolkit beside the old one and point CUDA_HOME to it.",
    references=(NVCC_12, "https://github.com/flashinfer-ai/flashinfer/issues/3675"),
)
def nvcc_too_old(look: Look) -> Iterator[Hit]:
    """Fire where version of FlashInfer, of nvcc, and capability are known and do not go together."""
    for venv, found in look.installed():
        for chain, process in chains(look, venv):
            nvcc = parsed(chain.nvcc)
            for capability in look.facts.gpus.compute_capability:
                wanted = least(found.version, capability)
                if nvcc is None or wanted is None or nvcc >= Version(wanted):
                    continue
                yield Hit(
                    f"{text.name(found)} needs nvcc {wanted} for compute capability {capability}, and "
                    f"{whose(process)} has {text.brief(chain.nvcc)} in {text.brief(chain.cuda_home)}.",
                    venv=venv.path,
                    severity="warning" if process is None else None,
                    expected=f">={wanted}",
                    seen=chain.nvcc,
                    basis="resolved" if process is None else "running",
                    remedy=(
                        f"{text.quote(f'{chain.cuda_home}/bin/nvcc')} --version",
                        f"Install CUDA {wanted} or newer, and set CUDA_HOME to it where the server is started.",
                        text.RESTART,
                    ),
                )


def covers(entry: str, capability: str) -> bool:
    """Return whether code for an entry of the list runs on a GPU."""
    match = re.fullmatch(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", entry)
    if match is None:
        return False
    major, minor = capability.split(".")
    if match.group(4):
        return (int(match.group(1)), int(match.group(2))) <= (int(major), int(minor))
    if match.group(1) != major:
        return False
    return match.group(2) == minor if match.group(3) == "a" else int(match.group(2)) <= int(minor)


@rule(
    "arch-list-excludes-gpu",
    "toolchain",
    "error",
    summary="The list of architectures in the environment leaves out a GPU of this host.",
    explanation=(
        "FLASHINFER_CUDA_ARCH_LIST (TORCH_CUDA_ARCH_LIST up to 0.3.1) replaces the detection. FlashInfer's gates "
        "ask only whether one architecture of the list is admitted, so that a module builds, and fails on the GPU "
        "that was left out with `no kernel image`. Separate entries by spaces, not commas."
    ),
    remedy="Unset the variable where the server is started, or name every GPU of the host in it.",
    references=(ARCH,),
)
def arch_list_excludes_gpu(look: Look) -> Iterator[Hit]:
    """Fire where a list is set and has no entry for a GPU."""
    for venv, found in look.installed():
        for chain, process in chains(look, venv):
            if not chain.arch_list:
                continue
            entries = re.split(r"[;\s]+" if "TORCH" in (chain.arch_list_from or "") else " ", chain.arch_list)
            missing = [
                capability
                for capability in look.facts.gpus.compute_capability
                if not any(covers(entry, capability) for entry in entries if entry)
            ]
            if missing:
                yield Hit(
                    f"{chain.arch_list_from} of {whose(process)} is {text.brief(chain.arch_list)!r} and "
                    f"leaves out "
                    f"compute capability {', '.join(missing)}, for which {text.name(found)} then builds nothing.",
                    venv=venv.path,
                    expected=list(look.facts.gpus.compute_capability),
                    seen=chain.arch_list,
                    basis="resolved" if process is None else "running",
                    remedy=(f"Unset {chain.arch_list_from} where the server is started.", text.RESTART),
                )


@rule(
    "cuda-mismatch",
    "toolchain",
    "warning",
    summary="FlashInfer would compile with another major release of CUDA than torch was built with.",
    explanation=(
        "A module that nvcc 13 built links libcudart.so.13. Loaded into a process whose torch brings CUDA 12, it "
        "fails with cudaErrorInsufficientDriver (35), or loads a second CUDA runtime."
    ),
    remedy="Set CUDA_HOME to a toolkit of torch's own major release, and move the built modules away.",
    references=(ERROR_35,),
)
def cuda_mismatch(look: Look) -> Iterator[Hit]:
    """Fire where both releases are known and their majors differ."""
    for venv, found in look.installed():
        torch = parsed(venv.torch.cuda) if venv.torch is not None else None
        for chain, process in chains(look, venv):
            nvcc = parsed(chain.nvcc)
            if torch is None or nvcc is None or torch.major == nvcc.major or venv.torch is None:
                continue
            yield Hit(
                f"{text.name(found)} of {text.brief(venv.path)} would compile with CUDA {text.brief(chain.nvcc)} "
                f"for {whose(process)}, and its torch is built with {text.brief(venv.torch.cuda)}.",
                venv=venv.path,
                expected=venv.torch.cuda,
                seen=chain.nvcc,
                basis="resolved" if process is None else "running",
                remedy=(
                    f"Set CUDA_HOME to a toolkit of CUDA {torch.major} where the server is started.",
                    *aside(look, venv, found, ".old"),
                    text.RESTART,
                ),
            )


@rule(
    "torch-lacks-arch",
    "toolchain",
    "error",
    summary="The installed torch is built with a CUDA release that does not know a GPU of this host.",
    explanation=(
        "Builds of torch with CUDA below 12.8 hold no code for compute capability 10.x and 12.x, and those below "
        "11.8 none for 9.0: the first kernel fails with `no kernel image is available`."
    ),
    remedy=(
        "Make a new environment beside this one, with a build of torch for a newer CUDA release and what needs it."
    ),
    references=(TORCH,),
)
def torch_lacks_arch(look: Look) -> Iterator[Hit]:
    """Fire where torch's release is known and older than the GPU's first."""
    for venv in look.facts.venvs:
        cuda = parsed(venv.torch.cuda) if venv.state == "ok" and venv.torch is not None else None
        for capability in look.facts.gpus.compute_capability:
            wanted = TORCH_LEAST.get(capability.partition(".")[0])
            if cuda is None or wanted is None or cuda >= Version(wanted) or venv.torch is None:
                continue
            yield Hit(
                f"torch {text.brief(venv.torch.version, 'of an unknown version')} of {text.brief(venv.path)} is "
                f"built with CUDA {text.brief(venv.torch.cuda)}, and compute capability {capability} needs "
                f"{wanted}.",
                venv=venv.path,
                expected=f">={wanted}",
                seen=venv.torch.cuda,
                basis="recorded",
                remedy=(
                    f"{text.python(venv)} -m pip list",
                    f"Install a build of torch with CUDA {wanted} or newer in a new environment beside this one.",
                    text.RESTART,
                ),
            )


RULES = (nvcc_missing, nvcc_too_old, arch_list_excludes_gpu, cuda_mismatch, torch_lacks_arch)
