"""The compiler that FlashInfer would call, by release and by the variables of who starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetcheck.agent.program.tools import gather_tools
from fleetcheck.agent.program.values import Root
from fleetcheck.facts.toolchain import resolved


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with two toolkits, one in PATH, and none at /usr/local/cuda."""
    for home, number in (("/usr/local/cuda-12.8", 12080), ("/opt/cuda-13.0", 13000)):
        nvcc = tmp_path / home.lstrip("/") / "bin/nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text("#!/bin/sh\nexit 9\n")
        nvcc.chmod(0o755)
        header = nvcc.parents[1] / "include/cuda.h"
        header.parent.mkdir()
        header.write_text(f"/* x */\n#define CUDA_VERSION {number}\n")
    (tmp_path / "opt/empty").mkdir()
    return tmp_path


def find(root: Path, version: str | None, **env: str) -> Any:
    tools = gather_tools(Root(str(root)), env, f"{root}/include")
    return resolved(tools, env, version)


KIT = {"CUDA_HOME": "/opt/cuda-13.0"}
NVCC = "/opt/cuda-13.0/bin/nvcc"
SEARCHES: list[tuple[str | None, dict[str, str], tuple[Any, ...]]] = [
    ("0.6.2", KIT, (NVCC, True, "13.0", "CUDA_HOME")),
    ("0.6.2", {"CUDA_HOME": "/opt/cuda-13.0/"}, ("/opt/cuda-13.0//bin/nvcc", True, "13.0", "CUDA_HOME")),
    ("0.6.2", {"CUDA_PATH": "/opt/cuda-13.0"}, (NVCC, True, "13.0", "CUDA_PATH")),
    ("0.6.2", {**KIT, "CUDA_HOME": "/opt/empty"}, ("/opt/empty/bin/nvcc", False, None, "CUDA_HOME")),
    ("0.6.2", {"PATH": "/x:/usr/local/cuda-12.8/bin"}, ("/usr/local/cuda-12.8/bin/nvcc", True, "12.8", "PATH")),
    ("0.6.2", {}, ("/usr/local/cuda/bin/nvcc", False, None, "default")),
    ("0.4.1", {}, (None, False, None, None)),
    ("0.3.1", {}, ("/usr/local/cuda/bin/nvcc", False, None, "default")),
    ("0.6.2", {"CUDA_HOME": "", "PATH": "/opt/cuda-13.0/bin"}, (NVCC, True, "13.0", "PATH")),
    ("0.6.2", {"FLASHINFER_NVCC": NVCC, "CUDA_HOME": "/opt/empty"}, (NVCC, True, "13.0", "FLASHINFER_NVCC")),
    ("0.6.2", {**KIT, "FLASHINFER_NVCC": "/gone/nvcc"}, ("/gone/nvcc", False, None, "FLASHINFER_NVCC")),
    ("0.6.2", {**KIT, "PYTORCH_NVCC": "/gone/nvcc"}, (NVCC, True, "13.0", "CUDA_HOME")),
    ("0.3.1", {**KIT, "PYTORCH_NVCC": "/gone/nvcc"}, ("/gone/nvcc", False, None, "PYTORCH_NVCC")),
    ("0.6.2", {"CUDA_HOME": ":/usr/local/x"}, (":/usr/local/x/bin/nvcc", False, None, "CUDA_HOME")),
    (None, KIT, (NVCC, True, "13.0", "CUDA_HOME")),
]


@pytest.mark.parametrize(("version", "env", "wanted"), SEARCHES)
def test_the_search(root: Path, version: str | None, env: dict[str, str], wanted: tuple[Any, ...]) -> None:
    chain = find(root, version, **env)
    assert (chain.nvcc_path, chain.found, chain.nvcc, chain.named_by) == wanted


def test_what_is_wrong_with_a_variable(root: Path) -> None:
    for value, problem in (
        (":/usr/local/cuda", "holds a colon"), ("cuda", "no absolute path"), ("/gone", "is not there"),
        ("/opt/cuda-13.0", None),
    ):  # fmt: skip
        said = find(root, "0.6.2", CUDA_HOME=value).problem
        assert (problem in said) if problem else said is None


def test_what_else_a_build_needs(root: Path) -> None:
    chain = find(root, "0.6.2", PATH="/bin")
    assert (chain.compiler, chain.ninja, chain.python_headers, chain.searched) == (None, None, False, True)
    for name in ("bin/ninja", "bin/clang++", "include/Python.h"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("")
        (root / name).chmod(0o755)
    chain = find(root, "0.6.2", PATH="/bin", CXX="clang++ -g")
    assert (chain.compiler, chain.ninja, chain.python_headers) == ("/bin/clang++", "/bin/ninja", True)


def test_lists_of_architectures_by_release(root: Path) -> None:
    env = {"FLASHINFER_CUDA_ARCH_LIST": "9.0a", "TORCH_CUDA_ARCH_LIST": "8.0"}
    lists = {version: find(root, version, **env).arch_list for version in ("0.2.5", "0.3.1", "0.7.4")}
    assert lists == {"0.2.5": "8.0", "0.3.1": "9.0a", "0.7.4": "9.0a"}
    assert find(root, "0.7.4").arch_list is None


def test_no_evidence_is_no_toolchain() -> None:
    assert resolved(None, {}, "0.6.2") is None
    assert resolved({"homes": []}, {}, "0.6.2") is None
