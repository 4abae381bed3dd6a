"""What an edit by hand leaves of the verdict on the fusion: real releases, looked at as on a host.

A verdict that lets a GPU pass is kept only where what is compiled for it is known.
"""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
from agent_host import Host, look
from support import wheels

from fleetcheck.agent.evidence import Request
from fleetcheck.facts import deciders, guards, releases
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import Venv
from fleetcheck.facts.wrapper import SOURCE

GATE = ("jit/comm.py", "supported_major_versions=[9, 10]", "supported_major_versions=[9, 10, 12]")
LIFTED = (guards.HEADER, " && (__CUDA_ARCH__ < 1200)", "")
GUARD = "#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))"
PLAIN = "#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900))"
FIRST = "#include <cooperative_groups.h>"
FLAGS = "        extra_cuda_cflags=nvcc_flags"
LIST = '            jit_env.FLASHINFER_CSRC_DIR / "{0}.cu",\n'
CSRC = 'FLASHINFER_CSRC_DIR: pathlib.Path = _package_root / "data" / "csrc"'
INCLUDE = 'FLASHINFER_INCLUDE_DIR: pathlib.Path = _package_root / "data" / "include"'
FLAGS_ARE = "    nvcc_flags = current_compilation_context"
TARGETS = "current_compilation_context.TARGET_CUDA_ARCHS"
LAUNCHER = "data/csrc/trtllm_allreduce_fusion.cu"
INCLUDED = '#include "tvm_ffi_utils.h"'
INCLUDES = "data/include/flashinfer"
UTILS = f"{INCLUDES}/utils.cuh"
Edit = tuple[str, str, str]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The two releases, as far as an audit looks at them."""
    folder = tmp_path_factory.mktemp("releases")
    return {
        version: wheels.unpack(wheels.fetched("flashinfer-python", version), folder / version, only=wheels.decides)
        for version in ("0.6.2", "0.6.18")
    }


def judged(tmp_path: Path, release: Path, *edits: Edit, capability: str = "12.0") -> Venv:
    """Install a release on a host, edit it, and return the environment as it is judged for a GPU."""
    host = Host(tmp_path / "root")
    site = host.venv("/opt/ml", files={})
    wheels.install(release, site, host.at("/opt/ml/bin"))
    for name, old, new in edits:
        wheels.edit(site / "flashinfer" / name, old, new)
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",)))
    assert answer.parts["end"]["errors"] == []
    (venv,) = host_facts(answer.parts, capability).venvs
    assert venv.state == "ok"
    return venv


EDITS: dict[str, tuple[str, tuple[Edit, ...], str, str | None]] = {
    "nothing": ("0.6.18", (), "supported", None),
    "a comment in env.py": ("0.6.18", (("jit/env.py", CSRC, f"# ours\n{CSRC}"),), "supported", None),
    "env.py moves the sources": (
        "0.6.18", (("jit/env.py", CSRC, CSRC.replace('_package_root / "data" /', "_package_root /")),),
        "unknown", "jit/env.py",
    ),
    "env.py moves the headers": (
        "0.6.18", (("jit/env.py", INCLUDE, INCLUDE.replace("_package_root", 'pathlib.Path("/srv")')),),
        "unknown", "jit/env.py",
    ),
    "env.py computes the sources": ("0.6.18", (("jit/env.py", CSRC, f"{CSRC} / x()"),), "unknown", "jit/env.py"),
    "env.py is broken": ("0.6.18", (("jit/env.py", CSRC, f"{CSRC})"),), "unknown", "jit/env.py"),
    "env.py of a release that refuses": (
        "0.6.2", (("jit/env.py", CSRC, CSRC.replace('"csrc"', '"own"')),), "refused", None,
    ),
    "env.py moves what a gate alone admits": (
        "0.6.2", (GATE, ("jit/env.py", CSRC, CSRC.replace('"csrc"', '"own"'))), "unsafe-patch", None,
    ),
    "a source is left out": (
        "0.6.18", (("jit/comm.py", LIST.format("trtllm_allreduce_fusion"), ""),), "unreadable", "jit/comm.py",
    ),
    "a source is filtered": (
        "0.6.18", (("jit/comm.py", f"        ],\n{FLAGS}", f"        ][:2],\n{FLAGS}"),),
        "unreadable", "jit/comm.py",
    ),
    "another function of that file": (
        "0.6.18", (("jit/comm.py", '"vllm_custom_all_reduce.cu"', '"ours.cu"'),), "supported", None,
    ),
    "a gate alone": ("0.6.2", (GATE,), "unsafe-patch", None),
    "gate and guards": ("0.6.2", (GATE, LIFTED), "patched", None),
    "gate, guards and a comment": (
        "0.6.2", (GATE, LIFTED, (guards.HEADER, FIRST, f"// ours\n{FIRST}  // once")), "patched", None,
    ),
    "guards turned into code": (
        "0.6.2", (GATE, (guards.HEADER, GUARD, f"{PLAIN}\n  if constexpr (__CUDA_ARCH__ < 1200)")),
        "unreadable", guards.HEADER,
    ),
    "guards turned into code by another name": (
        "0.6.2", (GATE, LIFTED, (guards.HEADER, "cudaGridDependencySynchronize();",
                                 "if constexpr (kNew) return;\n  cudaGridDependencySynchronize();")),
        "unreadable", guards.HEADER,
    ),
    "guards and code": (
        "0.6.2", (GATE, (guards.HEADER, FIRST, f"{FIRST}\nint ours;")), "unsafe-patch", None,
    ),
    "a guard in the fused kernels": (
        "0.6.18",
        ((guards.FUSED, PLAIN, GUARD),),
        "unreadable", guards.FUSED,
    ),
    "a return that a comment calls a guard": (
        "0.6.2", (GATE, LIFTED, (guards.HEADER, PLAIN, f"{PLAIN}\n  return;  // was a __CUDA_ARCH__ guard")),
        "unreadable", guards.HEADER,
    ),
    "another branch that a comment explains": (
        "0.6.2", (GATE, LIFTED, (guards.HEADER, PLAIN, f"{PLAIN}\n#else  // !__CUDA_ARCH__")),
        "unreadable", guards.HEADER,
    ),
    "conditions that nothing meets": (
        "0.6.2", (GATE, LIFTED, (guards.HEADER, PLAIN, PLAIN.replace("900))", "900) && 0)"))),
        "unreadable", guards.HEADER,
    ),
    "a comment that ends the condition's line": (
        "0.6.2", (GATE, (guards.HEADER, GUARD, f"{PLAIN}  // && (__CUDA_ARCH__ < 1200)")), "patched", None,
    ),
    "a condition on two lines": (
        "0.6.18", ((guards.HEADER, PLAIN, PLAIN.replace(" && ", " && \\\n    ")),), "supported", None,
    ),
    "a fused kernel that returns": (
        "0.6.18", ((guards.FUSED, "cudaGridDependencySynchronize();", "return;"),), "unreadable", guards.FUSED,
    ),
    "fused kernels whose conditions nothing meets": (
        "0.6.18", ((guards.FUSED, PLAIN, PLAIN.replace(">= 900", "< 800")),), "unreadable", guards.FUSED,
    ),
    "a launcher that refuses": (
        "0.6.18", ((LAUNCHER, INCLUDED, f"#if __CUDA_ARCH__ >= 1200\n#error no\n#endif\n{INCLUDED}"),),
        "unreadable", LAUNCHER,
    ),
    "a comment in a launcher": ("0.6.18", ((LAUNCHER, INCLUDED, f"// ours\n{INCLUDED}"),), "supported", None),
    "a launcher of a release that refuses": (
        "0.6.2", ((LAUNCHER, INCLUDED, f"int ours;\n{INCLUDED}"),), "refused", None,
    ),
    "the wrapper of the plain kernels in a patch": (
        "0.6.2", (GATE, LIFTED, (SOURCE, INCLUDED, f"int ours;\n{INCLUDED}")), "patched", None,
    ),
    "a header that all include": (
        "0.6.18", ((UTILS, "#include <cuda_bf16.h>", "#define ours\n#include <cuda_bf16.h>"),),
        "unreadable", UTILS,
    ),
    "a header that they do not include": (
        "0.6.18", ((f"{INCLUDES}/norm.cuh", "#include", "#define ours\n#include"),), "supported", None,
    ),
    "targets that are added before the gate": (
        "0.6.2", (("jit/comm.py", FLAGS_ARE, f'    {TARGETS}.add((9, "0a"))\n{FLAGS_ARE}'),),
        "unreadable", "jit/comm.py",
    ),
    "targets that are set before the gate": (
        "0.6.2", (("jit/comm.py", FLAGS_ARE, f'    {TARGETS} = {{(9, "0a")}}\n{FLAGS_ARE}'),),
        "unreadable", "jit/comm.py",
    ),
    "a line of the fused kernels": ("0.6.18", ((guards.FUSED, FIRST, f"{FIRST}\n"),), "supported", None),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_a_verdict_that_lets_pass_is_kept_where_it_is_known(
    tmp_path: Path, unpacked: dict[str, Path], what: str
) -> None:
    version, edits, verdict, file = EDITS[what]
    fusion = judged(tmp_path, unpacked[version], *edits).fusion
    assert fusion is not None
    assert (fusion.verdict, fusion.error_file) == (verdict, file), fusion.gate_error
    assert bool(fusion.gate_error) == (file is not None)


def test_a_start_up_file_that_sets_the_sources(tmp_path: Path, unpacked: dict[str, Path]) -> None:
    release = unpacked["0.6.18"]
    host = Host(tmp_path / "root")
    site = host.venv("/opt/ml", files={})
    wheels.install(release, site, host.at("/opt/ml/bin"))
    (site / "late.pth").write_text("import late_start\n")
    (site / "late_start.py").write_text("import flashinfer.jit.env as e\n\ne.FLASHINFER_CSRC_DIR = x\n")
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",)))
    (venv,) = host_facts(answer.parts, "12.0").venvs
    assert venv.fusion is not None
    assert (venv.fusion.verdict, venv.fusion.error_file) == ("unknown", None)
    assert "late_start.py, which runs at every start, names FLASHINFER_CSRC_DIR" in (venv.fusion.gate_error or "")


@pytest.mark.parametrize("version", ["0.6.2", "0.6.18"])
def test_the_header_of_a_release_is_known(version: str) -> None:
    with ZipFile(wheels.fetched("flashinfer-python", version)) as wheel:
        text = wheel.read(f"flashinfer/{guards.HEADER}").decode()
        fused = wheel.read(f"flashinfer/{guards.FUSED}").decode()
    assert guards.doubt(fused, closed=releases.FUSED_CLOSED) is None
    assert guards.count(fused) == 0
    assert deciders.HEADERS == (guards.HEADER, guards.FUSED)
    assert guards.doubt(text, releases.HEADER_CONDITIONS) is None
