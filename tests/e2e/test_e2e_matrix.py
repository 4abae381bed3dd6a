"""Every pinned release as installed, audited over a real sshd: what it says of itself is read right.

The table of ``data/matrix.yaml`` is the expectation; the gates of all modules are read a second time from the
whole files, by their syntax tree.
"""

from __future__ import annotations

import ast
import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import wheels
from support.audits import record, target
from support.fetch import Package, cache_folder, is_here, packages
from support.sshd import Sshd
from support.standins import stand_in
from support.straced import trace
from support.trees import snapshot
from support.workshop import VENV, Built, Workshop

from fleetcheck.agent.evidence import Request
from fleetcheck.demo.tree import Environment
from fleetcheck.facts.records import Framework, Venv
from fleetcheck.remote.settings import NO_CONFIG, Limits, Settings

TABLE = yaml.safe_load((Path(__file__).parent / "data/matrix.yaml").read_text())
ROOT = f"{VENV}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/flashinfer"
EVERY = (7, 8, 9, 10, 11, 12)
BESIDE = "0.6.2"
WORKSPACE = {
    "FLASHINFER_WORKSPACE_DIR": "W",
    "FLASHINFER_JIT_DIR": "W/cached_ops",
    "FLASHINFER_GEN_SRC_DIR": "W/generated",
}


@cache
def here(package: Package) -> bool:
    """Whether a pinned package lies in the cache, whole."""
    return is_here(package, cache_folder())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a release that was fetched; with ``--all-packages`` one a release that is pinned."""
    names = {"package": ("flashinfer-python",), "framework": ("sglang", "vllm"), "opened": ("sglang", "vllm")}
    for fixture, wanted_names in names.items():
        if fixture in metafunc.fixturenames:
            pinned = [package for package in packages() if package.name in wanted_names]
            if fixture == "opened":
                pinned = [package for package in pinned if "opened" in TABLE[package.name][package.version]]
            every = metafunc.config.getoption("--all-packages")
            wanted = (
                pinned if every else [package for package in pinned if package.set == "small" and here(package)]
            )
            ids = [p.version if len(wanted_names) == 1 else f"{p.name}-{p.version}" for p in wanted]
            metafunc.parametrize(fixture, wanted, ids=ids, scope="module")


def unpacked(package: Package, folder: Path) -> Path:
    """Unpack what an audit looks at of a pinned package."""
    wheel = wheels.fetched(package.name, package.version)
    return wheels.unpack(wheel, folder, wheels.decides)


def stock(workspace: Path, package: Package) -> tuple[Workshop, Built, Environment]:
    """Make a host with CUDA 12.9 and one environment that holds this release of FlashInfer."""
    folder = workspace / f"matrix-{package.version}"
    folder.mkdir()
    shop = Workshop(folder, {package.version: unpacked(package, folder / "unpacked")})
    built, made = shop.stock("stock", package.version)
    built.tree.write(
        "/usr/local/cuda/version.json", '{"cuda": {"version": "12.9.1"}, "cuda_nvcc": {"version": "12.9.86"}}'
    )
    built.tree.write("/usr/local/cuda/bin/nvcc", "", 0o755)
    return shop, built, made


def audited(built: Built, sshd: Sshd, folder: Path) -> tuple[Venv, list[str]]:
    """Audit the one environment of a host; return what is said of it, and the rules above ``info``."""
    settings = Settings(limits=Limits(smi=30.0), ssh_config=NO_CONFIG)
    run = record((target(sshd, "stock", built),), settings, folder / "evidence.jsonl")
    assert run.hosts[0].outcome == "checked", run.hosts[0].message
    (found,) = run.hosts[0].venvs
    return found, [finding.rule for finding in run.findings if finding.severity != "info"]


@pytest.fixture(scope="module")
def matrix(package: Package, workspace: Path, sshd: Sshd) -> tuple[Venv, Environment, list[str]]:
    """What an audit says of the environment that holds this release, the environment, and the rules that fired."""
    shop, built, made = stock(workspace, package)
    venv, rules = audited(built, sshd, shop.folder)
    untouched(shop, built)
    return venv, made, rules


def untouched(shop: Workshop, built: Built) -> None:
    """See that a look at the host writes nothing, opens no GPU and no socket, and imports no package."""
    seen = trace(Request(sysroot=str(built.tree.root), venvs=(VENV,), smi_limit=10.0), shop.folder / "strace.log")
    assert seen.states == ["ran"]
    assert seen.written == []
    assert seen.matching(r'"/dev/nvidia|socket\(AF_INET|connect\(') == []
    # To hash a file it is opened with O_NONBLOCK, which no importer does.
    opened = seen.matching(r"(torch|flashinfer|sglang|vllm)/(__pycache__/__init__|__init__\.py)")
    assert [line for line in opened if "O_NONBLOCK" not in line] == []
    assert list(shop.markers.iterdir()) == []


def test_the_real_import_writes_to_its_own_folder_alone(package: Package, workspace: Path) -> None:
    folder = workspace / f"deep-{package.version}"
    folder.mkdir()
    shop = Workshop(folder, {package.version: unpacked(package, folder / "unpacked")})
    built, made = shop.stock("stock", package.version)
    shutil.rmtree(made.site / "torch")
    stand_in(made.site)
    before, scratch, home = snapshot(built.tree.root), folder / "scratch", folder / "home"
    scratch.mkdir()
    home.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(scratch)}
    request = Request(sysroot=str(built.tree.root), venvs=(VENV,), deep=True, smi_limit=10.0)
    seen = trace(request, folder / "strace.log", environ)
    said = seen.parts["deep/0"]["imported"]
    assert (said["error"], said["csrc_dir"]) == (None, f"{ROOT}/data/csrc")
    assert "flashinfer_jit.log" in " ".join(line for line in seen.written if f'"{scratch}/fleetcheck-' in line)
    assert (seen.changed_outside(scratch), seen.connections, seen.devices) == ([], [], [])
    assert (list(scratch.iterdir()), list(home.iterdir())) == ([], [])
    assert snapshot(built.tree.root) == before
    assert seen.parts["end"]["errors"] == []


@pytest.fixture
def expected(package: Package) -> dict[str, Any]:
    row: dict[str, Any] = TABLE["flashinfer"][package.version]
    return row


LARGE = ("0.7.1", "0.7.4")
"""Releases with more sources than an audit has the time to hash."""


def test_version_and_csrc(
    matrix: tuple[Venv, Environment, list[str]], package: Package, expected: dict[str, Any]
) -> None:
    venv, made, rules = matrix
    found = venv.flashinfer
    assert found is not None
    assert found.version == found.recorded_version == package.version
    assert found.csrc_state == "complete"
    assert found.csrc_dir == found.csrc_default == f"{ROOT}/data/csrc"
    verified = "partly" if package.version in LARGE else True
    assert (found.modified, found.env_error, found.install, found.verified) == ((), None, "wheel", verified)
    assert found.pcie_ipc is (
        None if package.version in ("0.2.5", "0.2.14", "0.3.1") else expected.get("pcie_ipc", False)
    )
    if "csrc" in expected:
        assert sum(path.is_file() for path in (made.flashinfer / "data/csrc").rglob("*")) == expected["csrc"]
    told = ["fusion-unsafe-patch"] if expected["verdict"] == "unsafe-patch" else []
    # 0.4.x alone does not try /usr/local/cuda, and this login's PATH has no nvcc (flashinfer#1919).
    assert rules == told + (["nvcc-missing"] if package.version == "0.4.1" else [])


def test_every_constant(
    matrix: tuple[Venv, Environment, list[str]], package: Package, expected: dict[str, Any], sshd: Sshd
) -> None:
    found = matrix[0].flashinfer
    assert found is not None
    workspace = expected["workspace"]

    def real(text: str) -> str:
        first, slash, rest = text.partition("/")
        if first == "W":
            return real(workspace + slash + rest)
        rest = rest.replace("flashinfer/V/", f"flashinfer/{package.version}/")
        return {"B": str(sshd.home), "P": ROOT}[first] + slash + rest

    wanted = {**WORKSPACE, **expected["constants"]}
    assert found.constants == {
        name: tuple(map(real, value)) if isinstance(value, list) else real(value) for name, value in wanted.items()
    }


def test_gate_and_guards(matrix: tuple[Venv, Environment, list[str]], expected: dict[str, Any]) -> None:
    fusion = matrix[0].fusion
    assert fusion is not None
    assert fusion.gate == (tuple(expected["gate"]) if expected["gate"] else None)
    assert fusion.gate_state == expected.get("gate_state", "read")
    assert fusion.gate_file == expected.get("gate_file", "jit/comm.py" if expected["gate"] else None)
    assert (fusion.guards, fusion.verdict) == (expected["guards"], expected["verdict"])
    for function, gate in expected.get("gates", {}).items():
        assert fusion.gates[function] == (tuple(gate) if gate else None), function


def listed(root: Path) -> Iterator[tuple[str, set[int]]]:
    """Yield every ``gen_*`` function below jit/ and comm/ that lists majors itself, with all that it lists."""
    for path in [*root.glob("jit/**/*.py"), *root.glob("comm/**/*.py")]:
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name.startswith("gen_"):
                values = [
                    node.value
                    for node in ast.walk(function)
                    if isinstance(node, ast.keyword) and node.arg == "supported_major_versions"
                ]
                if values and all(isinstance(value, ast.List) for value in values):
                    yield function.name, {major for value in values for major in ast.literal_eval(value)}


def test_the_modules_that_are_closed_to_these_gpus(
    matrix: tuple[Venv, Environment, list[str]], package: Package
) -> None:
    venv, made, _ = matrix
    fusion = venv.fusion
    assert fusion is not None
    assert fusion.closed is not None
    again = dict(listed(made.flashinfer))
    assert bool(again) is (package.version not in ("0.2.5", "0.2.14"))
    assert {name: set(fusion.gates[name] or ()) for name in again} == again
    assert {name for name, majors in again.items() if 12 not in majors} <= set(fusion.closed)
    assert all(12 not in (fusion.gates[name] or (12,)) for name in fusion.closed)


def serving(framework: Package, workspace: Path, name: str) -> tuple[Workshop, Built, Environment]:
    """Make a host with this release of a framework beside FlashInfer 0.6.2."""
    folder = workspace / f"{name}-{framework.name}-{framework.version}"
    folder.mkdir()
    beside = next(package for package in packages() if package.version == BESIDE)
    shop = Workshop(
        folder,
        {BESIDE: unpacked(beside, folder / "unpacked"), framework.name: unpacked(framework, folder / "framework")},
    )
    built, made = shop.stock("stock", BESIDE)
    wheels.install(shop.unpacked[framework.name], made.site, made.bin)
    return shop, built, made


@pytest.fixture(scope="module")
def caller(framework: Package, workspace: Path, sshd: Sshd) -> tuple[Framework, Venv, list[str]]:
    """What an audit says of this release of sglang or vLLM beside FlashInfer 0.6.2, and the rules that fired."""
    shop, built, _ = serving(framework, workspace, "matrix")
    venv, rules = audited(built, sshd, shop.folder)
    untouched(shop, built)
    assert venv.fusion is not None
    (found,) = venv.fusion.callers
    return found, venv, rules


def calls(found: Framework, row: dict[str, Any]) -> None:
    """See that each named way to a call is told with the majors that the row gives it."""
    seen = {gate.function: gate.majors for gate in found.gates if gate.kind != "auto-enable"}
    for function, majors in row["calls"].items():
        assert seen[function] == (EVERY if majors == "every" else tuple(majors)), function
    assert [gate.error for gate in found.gates if gate.error] == []
    assert found.admits == (EVERY if row["admits"] == "every" else tuple(row["admits"]))
    assert found.auto_enables == tuple(row["auto"])


def test_the_gates_of_a_framework(caller: tuple[Framework, Venv, list[str]], framework: Package) -> None:
    found, venv, rules = caller
    row = TABLE[framework.name][framework.version]
    assert (found.name, found.version) == (framework.name, framework.version)
    assert (found.modified, found.verified) == ((), True)
    assert "framework-patched" not in rules
    assert found.pins["flashinfer-python"] == row["pin"]
    calls(found, row)
    assert {gate.file for gate in found.gates} >= set(row.get("files", ()))
    assert found.pcie_ipc is row.get("pcie_ipc", False)
    assert found.falls_back is row.get("opened", {}).get("falls_back", False)
    assert venv.fusion is not None
    assert venv.fusion.effective == row["effective"]


def test_a_framework_that_was_opened_by_hand(opened: Package, workspace: Path, sshd: Sshd) -> None:
    row = TABLE[opened.name][opened.version]["opened"]
    shop, built, made = serving(opened, workspace, "opened")
    for file, (old, new) in row["edit"].items():
        wheels.edit(made.site / opened.name / file, old, new, count=1)
    venv, rules = audited(built, sshd, shop.folder)
    assert venv.fusion is not None
    (found,) = venv.fusion.callers
    assert found.modified == tuple(sorted(row["edit"]))
    calls(found, row)
    assert venv.fusion.effective == row["effective"]
    assert "framework-patched" in rules
