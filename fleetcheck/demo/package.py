"""A stand-in for an installed FlashInfer: the files that an audit reads, written for the demo.

In: a version and the edits that somebody made by hand after installing it. Out: a package and its dist-info with
a true RECORD in a ``site-packages`` folder. It holds no kernel and cannot run; the tests use the real wheels.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HEADER = "flashinfer/data/include/flashinfer/comm/trtllm_allreduce.cuh"
GATE = "supported_major_versions=[9, 10]"
WIDENED_GATE = "supported_major_versions=[9, 10, 12]"
CSRC = '"data" / "csrc"'
GUARDED_KERNELS = 13
SOURCES = (
    "batch_decode", "batch_prefill", "norm", "rope", "sampling", "trtllm_allreduce", "trtllm_allreduce_fusion",
    "trtllm_moe_allreduce_fusion", "trtllm_mnnvl_allreduce", "vllm_custom_all_reduce",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Release:
    """How one release stands to compute capability 12.x: its gate, and whether its header is guarded."""

    version: str
    gate: str
    guarded: bool


STOCK_0_6_2 = Release("0.6.2", GATE, guarded=True)
STOCK_0_6_18 = Release("0.6.18", WIDENED_GATE, guarded=False)  # admitted since 0.6.17: flashinfer#3903


def install(release: Release, site: Path) -> None:
    """Write the package and its dist-info into ``site``."""
    files = _files(release)
    info = f"flashinfer_python-{release.version}.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.4\nName: flashinfer-python\nVersion: {release.version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/INSTALLER"] = "pip\n"
    files[f"{info}/top_level.txt"] = "flashinfer\n"
    files[f"{info}/RECORD"] = record(files) + f"{info}/RECORD,,\n"
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def record(files: Mapping[str, str]) -> str:
    """Return the rows of RECORD for ``files`` (path to text): path, sha256 in urlsafe base64, size in bytes."""
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text.encode())}\n")
    return "".join(rows)


def edit(path: Path, old: str, new: str) -> None:
    """Replace ``old`` in an installed file, as a hand would, leaving RECORD as it is.

    Raises:
        ValueError: the file does not hold ``old``.
    """
    text = path.read_text()
    if old not in text:
        raise ValueError(f"{path} does not hold {old!r}")
    path.write_text(text.replace(old, new))


def _files(release: Release) -> dict[str, str]:
    files = {
        "flashinfer/__init__.py": "from .version import __version__ as __version__\nfrom . import jit as jit\n",
        "flashinfer/version.py": "from ._build_meta import __version__ as __version__\n",
        "flashinfer/_build_meta.py": f'__version__ = "{release.version}"\n',
        "flashinfer/compilation_context.py": _COMPILATION_CONTEXT,
        "flashinfer/jit/__init__.py": "from . import env as env\n",
        "flashinfer/jit/core.py": _CORE,
        "flashinfer/jit/env.py": _ENV,
        "flashinfer/jit/comm.py": _COMM.replace("GATE", release.gate),
        "flashinfer/comm/__init__.py": "from .trtllm_ar import allreduce as allreduce\n",
        "flashinfer/comm/trtllm_ar.py": "from ..jit.comm import gen_trtllm_comm_module\n\n\n"
        "def allreduce():\n    return gen_trtllm_comm_module()\n",
        HEADER: _header(guarded=release.guarded),
        HEADER.replace("allreduce", "allreduce_fusion"): _header(guarded=False),
    }
    for name in SOURCES:
        files[f"flashinfer/data/csrc/{name}.cu"] = f"// stand-in for {name}: no kernel\n"
    return files


def _header(*, guarded: bool) -> str:
    limit = " && (__CUDA_ARCH__ < 1200)" if guarded else ""
    kernel = (
        "__global__ void kernel_{number}() {{\n"
        "#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900){limit})\n"
        "  body_{number}();\n"
        "#endif\n}}\n"
    )
    kernels = (kernel.format(number=number, limit=limit) for number in range(GUARDED_KERNELS))
    return "#pragma once\n" + "\n".join(kernels)


_COMPILATION_CONTEXT = """\
class CompilationContext:
    TARGET_CUDA_ARCHS = set()

    def get_nvcc_flags_list(self, supported_major_versions=None):
        raise RuntimeError("a stand-in compiles nothing")
"""

_CORE = """\
from ..compilation_context import CompilationContext

current_compilation_context = CompilationContext()


def gen_jit_spec(name, sources, extra_cuda_cflags=None):
    return name, sources, extra_cuda_cflags
"""

_ENV = """\
import os
import pathlib

from ..compilation_context import CompilationContext
from ..version import __version__ as flashinfer_version

FLASHINFER_BASE_DIR: pathlib.Path = pathlib.Path(
    os.getenv("FLASHINFER_WORKSPACE_BASE", pathlib.Path.home().as_posix())
)
FLASHINFER_CACHE_DIR: pathlib.Path = FLASHINFER_BASE_DIR / ".cache" / "flashinfer"
_package_root: pathlib.Path = pathlib.Path(__file__).resolve().parents[1]


def _get_workspace_dir_name() -> pathlib.Path:
    archs = sorted(CompilationContext().TARGET_CUDA_ARCHS)
    return FLASHINFER_CACHE_DIR / flashinfer_version / "_".join(f"{major}{minor}" for major, minor in archs)


FLASHINFER_WORKSPACE_DIR: pathlib.Path = _get_workspace_dir_name()
FLASHINFER_JIT_DIR: pathlib.Path = FLASHINFER_WORKSPACE_DIR / "cached_ops"
FLASHINFER_GEN_SRC_DIR: pathlib.Path = FLASHINFER_WORKSPACE_DIR / "generated"
FLASHINFER_DATA: pathlib.Path = _package_root / "data"
FLASHINFER_INCLUDE_DIR: pathlib.Path = _package_root / "data" / "include"
FLASHINFER_CSRC_DIR: pathlib.Path = _package_root / "data" / "csrc"
"""

_COMM = """\
from . import env as jit_env
from .core import current_compilation_context, gen_jit_spec


def gen_trtllm_mnnvl_comm_module():
    return gen_jit_spec("trtllm_mnnvl_comm", [jit_env.FLASHINFER_CSRC_DIR / "trtllm_mnnvl_allreduce.cu"])


def gen_trtllm_comm_module():
    nvcc_flags = current_compilation_context.get_nvcc_flags_list(GATE)
    return gen_jit_spec(
        "trtllm_comm",
        [
            jit_env.FLASHINFER_CSRC_DIR / "trtllm_allreduce.cu",
            jit_env.FLASHINFER_CSRC_DIR / "trtllm_allreduce_fusion.cu",
            jit_env.FLASHINFER_CSRC_DIR / "trtllm_moe_allreduce_fusion.cu",
        ],
        extra_cuda_cflags=nvcc_flags,
    )


def gen_vllm_comm_module():
    return gen_jit_spec("vllm_comm", [jit_env.FLASHINFER_CSRC_DIR / "vllm_custom_all_reduce.cu"])
"""
