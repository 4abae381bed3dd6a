"""What FlashInfer cannot do without: gone by hand it is told of, and no release lacks what it never had."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from agent_host import Host, look
from support import wheels
from support.fetch import Package, cache_folder, is_here, packages

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program.cuts import rest_of
from fleetcheck.agent.program.needs import included, modules, places
from fleetcheck.facts import guards, releases, rests
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import Venv

INCLUDE = "data/include/flashinfer"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a release that was fetched; with ``--all-packages`` one a release that is pinned."""
    if "package" in metafunc.fixturenames:
        pinned = [package for package in packages() if package.name == "flashinfer-python"]
        if not metafunc.config.getoption("--all-packages"):
            pinned = [one for one in pinned if one.set == "small" and is_here(one, cache_folder())]
        metafunc.parametrize("package", pinned, ids=[one.version for one in pinned], scope="module")


@pytest.fixture(scope="module")
def release(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release as far as an audit looks at it."""
    wheel = wheels.fetched(package.name, package.version)
    return wheels.unpack(wheel, tmp_path_factory.mktemp("release") / package.version, only=wheels.decides)


def editable(site: Path, repo: Path) -> None:
    """Turn an installed wheel into a source tree with the links of a build, and an entry of the path to it."""
    repo.mkdir()
    (site / "flashinfer").rename(repo / "flashinfer")
    data = repo / "flashinfer/data"
    for name in ("csrc", "include", "cutlass", "spdlog", "cccl"):
        if (data / name).is_dir():
            place = repo / (name if name in ("csrc", "include") else f"3rdparty/{name}")
            place.parent.mkdir(exist_ok=True)
            (data / name).rename(place)
            (data / name).symlink_to(place)
    (site / "__editable__.flashinfer.pth").write_text(f"{repo}\n")
    (info,) = site.glob("flashinfer_python-*.dist-info")
    (info / "RECORD").unlink()
    (info / "RECORD").write_text("__editable__.flashinfer.pth,,\n")
    (info / "direct_url.json").write_text('{"url": "file:///repo", "dir_info": {"editable": true}}')


def installed(folder: Path, release: Path, kind: str) -> tuple[Host, Path]:
    """Install a release; return the host and the package."""
    host = Host(folder / "root")
    site = host.venv("/opt/ml", files={})
    wheels.install(release, site, host.at("/opt/ml/bin"))
    (info,) = site.glob("flashinfer_python-*.dist-info")
    if kind == "no RECORD":
        (info / "RECORD").unlink()
    if kind == "editable":
        editable(site, host.at("/repo"))
        return host, host.at("/repo") / "flashinfer"
    return host, site / "flashinfer"


def told(host: Host, capability: str = "12.0") -> Venv:
    """Look at the host's one environment."""
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",)))
    assert answer.parts["end"]["errors"] == []
    (venv,) = host_facts(answer.parts, capability).venvs
    assert venv.flashinfer is not None and venv.fusion is not None
    return venv


KINDS = ("wheel", "no RECORD", "editable")


def test_no_untouched_release_lacks_anything(tmp_path: Path, release: Path, package: Package) -> None:
    seen = {}
    for kind in KINDS:
        host, _ = installed(tmp_path / kind, release, kind)
        for capability in ("9.0", "12.0"):
            venv = told(host, capability)
            assert venv.flashinfer is not None and venv.fusion is not None
            assert (venv.flashinfer.absent, venv.flashinfer.modified) == ((), ()), kind
            # Of a source tree of 0.2.5 the names that would vouch for it are not told.
            unknown = kind == "no RECORD" or (kind == "editable" and package.version == "0.2.5")
            assert venv.flashinfer.csrc_state == ("unknown" if unknown else "complete"), kind
            seen[kind, capability] = (venv.fusion.verdict, venv.fusion.guards, venv.fusion.gate_error)
    for (_, capability), said in seen.items():
        assert said == seen["wheel", capability], seen


GONE: dict[str, tuple[str, ...]] = {
    "cutlass": ("data/cutlass",),
    "spdlog": ("data/spdlog",),
    "cccl": ("data/cccl",),
    "a part of cccl": ("data/cccl/libcudacxx",),
    "a part of cutlass": ("data/cutlass/tools",),
    "a part of spdlog": ("data/spdlog/include/spdlog/common.h",),
    "one header": (f"{INCLUDE}/utils.cuh",),
    "the log header": (f"{INCLUDE}/logging.h",),
    "an include of csrc": ("data/csrc/tvm_ffi_utils.h",),
    "a fused header": (f"{INCLUDE}/comm/trtllm_allreduce_fusion.cuh",),
    "a module": ("utils.py",),
    "the version": ("version.py",),
    "a package": ("gemm/__init__.py",),
    "the gate's base": ("compilation_context.py",),
}
TOLD_AS = {
    "a part of cccl": "data/cccl/libcudacxx/include/cuda/std/atomic",
    "a part of cutlass": "data/cutlass/tools/util/include/cutlass/util/packed_stride.hpp",
}
# Of the vendored folders' inside only RECORD knows more than what is included.
BY_RECORD = ("a part of cccl", "a part of cutlass", "a part of spdlog")


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = wheels.fetched("flashinfer-python", "0.6.18")
    return wheels.unpack(wheel, tmp_path_factory.mktemp("newest") / "0.6.18", only=wheels.decides)


@pytest.mark.parametrize(
    ("what", "kind"), [(what, kind) for what in GONE for kind in KINDS if kind == "wheel" or what not in BY_RECORD]
)
def test_what_is_gone_by_hand_is_told(tmp_path: Path, newest: Path, what: str, kind: str) -> None:
    host, package = installed(tmp_path, newest, kind)
    for name in GONE[what]:
        place = (package / name).resolve()
        if place.is_dir():
            shutil.rmtree(place)
            if kind == "editable":
                place.mkdir()  # as a submodule that was never fetched
        else:
            place.unlink()
    venv = told(host)
    assert venv.flashinfer is not None and venv.fusion is not None
    name = TOLD_AS.get(what, GONE[what][0])
    assert name in venv.flashinfer.absent, venv.flashinfer.absent
    assert (venv.fusion.verdict, venv.fusion.error_file) == ("unknown", name), venv.fusion.gate_error
    if name.startswith("data/") and kind != "no RECORD":
        assert venv.flashinfer.csrc_state == "incomplete"


def test_all_but_one_folder_of_the_headers_is_gone(tmp_path: Path, newest: Path) -> None:
    host, package = installed(tmp_path, newest, "wheel")
    for place in (package / INCLUDE).iterdir():
        if place.name != "comm":
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    venv = told(host)
    assert venv.flashinfer is not None and venv.fusion is not None
    assert {f"{INCLUDE}/{name}" for name in ("utils.cuh", "exception.h", "vec_dtypes.cuh", "logging.h")} <= set(
        venv.flashinfer.absent
    )
    assert venv.flashinfer.csrc_state == "incomplete"
    assert venv.fusion.verdict == "unknown"


def test_a_header_that_is_not_included_is_gone(tmp_path: Path, newest: Path) -> None:
    host, package = installed(tmp_path, newest, "wheel")
    (package / INCLUDE / "attention/decode.cuh").unlink()
    venv = told(host)
    assert venv.flashinfer is not None and venv.fusion is not None
    assert (venv.flashinfer.absent, venv.fusion.verdict) == ((), "supported")
    gone = [file.path for file in venv.flashinfer.files if file.record == "missing"]
    assert [path.rpartition("/")[2] for path in gone] == ["decode.cuh"]


SYNC = "cudaGridDependencySynchronize();"
EMPTIED = {
    "a plain kernel": (guards.HEADER, SYNC, f"return; {SYNC}"),
    "a fused kernel": (guards.FUSED, SYNC, f"return; {SYNC}"),
    "a launcher": (rests.LAUNCHERS[1], "#include", "#error no\n#include"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", EMPTIED)
def test_an_emptied_kernel_is_seen_with_a_record_and_without(
    tmp_path: Path, newest: Path, what: str, kind: str
) -> None:
    host, package = installed(tmp_path, newest, kind)
    name, old, new = EMPTIED[what]
    wheels.edit((package / name).resolve(), old, new)
    fusion = told(host).fusion
    assert fusion is not None
    assert (fusion.verdict, fusion.error_file) == ("unreadable", name), fusion.gate_error


def test_what_is_left_of_each_file_is_a_release_s(release: Path) -> None:
    seen = 0
    for name, known in rests.RESTS.items():
        if (release / "flashinfer" / name).is_file():
            text = (release / "flashinfer" / name).read_text()
            assert hashlib.sha256(rest_of(text, "__CUDA_ARCH").encode()).hexdigest() in known, name
            closed = releases.FUSED_CLOSED if name == guards.FUSED else 0
            assert guards.doubt(text, closed=closed) is None or name.endswith(".cu"), name
            seen += 1
    assert seen in (0, 5)  # 0.2.5 has none of them


@pytest.mark.parametrize(
    ("by", "quoted", "name", "wanted"),
    [
        ("data/csrc/a.cu", True, "b.h", ["data/csrc/b.h", "data/csrc/b.h", "data/include/b.h"]),
        ("data/include/flashinfer/comm/a.cuh", True, "../b.h", ["data/include/flashinfer/b.h"]),
        ("data/csrc/a.cu", True, "../../../../etc/passwd", []),
        ("data/csrc/a.cu", False, "flashinfer/../../../../etc/passwd", []),
        ("data/csrc/a.cu", True, "/etc/passwd", []),
        ("data/csrc/a.cu", True, "dlpack/dlpack.h", []),
        ("data/csrc/a.cu", False, "cuda.h", []),
        ("data/csrc/a.cu", False, "spdlog/spdlog.h", ["data/spdlog/include/spdlog/spdlog.h"]),
    ],
)
def test_where_an_included_file_lies(by: str, quoted: bool, name: str, wanted: list[str]) -> None:
    assert places(by, quoted, name) == wanted


def test_what_is_included_and_imported() -> None:
    text = (
        b'#include <a.h>\n # include "b.h"  // "c.h"\n// #include "d.h"\nint include;\n#include NAME\n#include\n'
    )
    assert list(included(text)) == [(False, "a.h"), (True, "b.h")]
    text = b"from .a import x\nfrom ..b.c import y\n    from .d import z\nfrom . import e\nfrom ...f import g\n"
    assert list(modules("jit/core.py", text)) == ["jit/a", "b/c"]
