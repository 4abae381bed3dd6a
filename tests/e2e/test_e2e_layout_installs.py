"""Layouts of other releases and other Pythons, installs without RECORD, and what Python does at its start."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from layouts import (
    CHECKOUT,
    REFUSED,
    STOCK,
    Layout,
    Told,
    checkout,
    editable,
    entering,
    fired,
    linked,
    look_at,
    said,
    stock,
)
from support import wheels
from support.fetch import Package, cache_folder, is_here, packages
from support.interpreters import interpreter, move
from support.workshop import Built, Workshop

from fleetcheck.demo.tree import Environment

LAYOUTS: dict[str, Layout] = {}
layout = entering(LAYOUTS)
RELEASES: dict[str, tuple[str, Layout]] = {}
DEBIAN = Path("/usr/bin/python3")
UNVERIFIED = {
    **REFUSED, "csrc_state": "unknown", "verified": False, "csrc_basis": None, "modified": (),
    "install": "unknown",
}  # fmt: skip
NOT_LISTED = {**UNVERIFIED, "install": "wheel", "csrc_error": "no RECORD lists its files"}


def release(version: str, *rules: str, **expected: object) -> None:
    """Enter a release as installed."""
    made: dict[str, Layout] = {}

    def make(shop: Workshop, built: Built, path: str) -> Environment:
        return stock(shop, built, path, version)

    make.__name__ = version
    whole = {"version": version, "csrc_state": "complete", "csrc_basis": "recorded", "install": "wheel"}
    entering(made)(*rules, **{**whole, "verified": True, "modified": (), **expected})(make)
    RELEASES[expected.pop("name", version)] = (version, made[version])  # type: ignore[index]


AT_ROOT = {"csrc_dir": "P/data/csrc", "csrc_real": "P/data/csrc"}
UNGATED = {**AT_ROOT, "gate": None, "guards": None}
release("0.6.0", "fusion-refused", gate=(9, 10), gate_file="jit/comm.py", guards=13, verdict="refused", **AT_ROOT)
release(
    "0.7.1", verified="partly",
    gate=(9, 10, 12), gate_file="jit/comm.py", guards=0, verdict="supported", pcie_ipc=True, **AT_ROOT,
)  # fmt: skip
release(
    "0.3.1", "fusion-refused",
    gate=(9, 10), gate_file="comm/trtllm_ar.py", guards=13, verdict="refused", pcie_ipc=None, **AT_ROOT,
)  # fmt: skip
release(
    "0.2.14", "fusion-unsafe-patch",
    gate=None, gate_state="no-gate", gate_file="comm/trtllm_ar.py", guards=13, verdict="unsafe-patch", **AT_ROOT,
)  # fmt: skip
release("0.2.5", gate=None, gate_state="absent", gate_file=None, guards=None, verdict="absent", **AT_ROOT)
LARGE = 50_000_000
NAMES = {"0.6.0": "l1", "0.7.1": "l3", "0.3.1": "l4", "0.2.14": "l5", "0.2.5": "l6"}


def here(package: Package) -> bool:
    """Whether a release is one to look at in any case: it was fetched, and is not among the largest."""
    return package.size < LARGE and is_here(package, cache_folder())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a release that was fetched; with ``--all-packages`` each, the one with 276 MB of sources too."""
    if "installed" in metafunc.fixturenames:
        pinned = {package.version: package for package in packages() if package.name == "flashinfer-python"}
        every = metafunc.config.getoption("--all-packages")
        wanted = [version for version in NAMES if every or here(pinned[version])]
        none = pytest.param("", marks=pytest.mark.skip("no release of flashinfer-python was fetched: make fetch"))
        names = [f"{NAMES[version]}-stock-{version}" for version in wanted]
        metafunc.parametrize("installed", wanted or [none], ids=names or ["none"], scope="module")


def test_a_release_as_installed(installed: str, workspace: Path) -> None:
    version, wanted = RELEASES[installed]
    folder = workspace / f"release-{version}"
    told = look_at(folder, {version: wanted}, (version,))
    said(told, version, wanted)
    fired(told, version, wanted)
    assert told.executed == []
    shutil.rmtree(folder)


@layout("fusion-refused", "expectation-unchecked", **UNVERIFIED, csrc_error="no RECORD lists its files")
def wheel_without_record(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    (made.site / "flashinfer_python-0.6.2.dist-info/RECORD").unlink()
    return made


@layout("fusion-refused", "expectation-unchecked", **NOT_LISTED)
def wheel_with_an_empty_record(shop: Workshop, built: Built, path: str) -> Environment:
    made = wheel_without_record(shop, built, path)
    (made.site / "flashinfer_python-0.6.2.dist-info/RECORD").write_text("")
    return made


@layout("fusion-refused", "expectation-unchecked", **NOT_LISTED)
def wheel_with_a_record_of_others(shop: Workshop, built: Built, path: str) -> Environment:
    made = wheel_without_record(shop, built, path)
    (made.site / "flashinfer_python-0.6.2.dist-info/RECORD").write_text('other/a.py,sha256=x,1\n"odd,,\n,,,,\n')
    return made


@layout("fusion-refused", "csrc-incomplete", **{**UNVERIFIED, "csrc_state": "incomplete", "csrc_basis": "names"})
def wheel_without_record_and_a_source_gone(shop: Workshop, built: Built, path: str) -> Environment:
    made = wheel_without_record(shop, built, path)
    (made.flashinfer / "data/csrc/trtllm_allreduce_fusion.cu").unlink()
    return made


@layout(
    "fusion-refused", "csrc-outside-venv", "csrc-incomplete",
    **{**REFUSED, "csrc_state": "incomplete", "csrc_basis": "recorded", "csrc_missing": ("norm.cu",)},
)  # fmt: skip
def links_of_uv_into_a_cache_that_lost_a_source(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    (linked(built, made, "lost") / "data/csrc/norm.cu").unlink()
    return made


@layout("fusion-refused", "csrc-outside-venv", "package-modified", **REFUSED, modified=("data/csrc/norm.cu",))
def links_of_uv_into_a_cache_that_was_edited(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    same_size(linked(built, made, "edited") / "data/csrc/norm.cu")
    return made


@layout("fusion-refused", "csrc-outside-venv", **{**CHECKOUT, "csrc_state": "complete", "csrc_basis": "names"})
def checkout_on_the_path(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    repo = checkout(shop, built, path, data=True)
    (made.site / "flashinfer-dev.pth").write_text(f"{repo}\n")
    return made


def same_size(path: Path) -> None:
    """Change one letter of a file without its size, in this environment alone; its date stays."""
    text = path.read_text()
    at = next(number for number, sign in enumerate(text) if number > 200 and sign.isalpha())
    info = path.stat()
    path.unlink()
    path.write_text(text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :])
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


@layout("fusion-refused", "package-modified", **REFUSED, modified=("data/csrc/batch_decode.cu",))
def another_source_edited(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    same_size(made.flashinfer / "data/csrc/batch_decode.cu")
    return made


@layout(
    "fusion-refused", "package-modified", **REFUSED, modified=("data/include/flashinfer/attention/decode.cuh",)
)
def a_header_edited(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    header = made.flashinfer / "data/include/flashinfer/attention/decode.cuh"
    header.unlink()
    header.write_text("// not the file of the release\n")
    return made


@layout(
    "fusion-gate-unreadable", "package-modified",
    **{**STOCK, "gate": (9, 10), "verdict": "unreadable", "error_file": "compilation_context.py"},
)  # fmt: skip
def what_applies_the_gate_edited(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    wheels.edit(made.flashinfer / "compilation_context.py", "supported_major_versions", "majors")
    return made


@layout(
    "fusion-refused", "csrc-startup", **REFUSED, basis="guessed",
    start_files=(("S/fix.pth", "1", "FLASHINFER_CSRC_DIR"),),
)  # fmt: skip
def csrc_set_by_a_pth_file(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    line = "import sys; exec('def late(): import flashinfer.jit.env as e; e.FLASHINFER_CSRC_DIR = 1')\n"
    (made.site / "fix.pth").write_text(line)
    return made


def customized(shop: Workshop, built: Built, path: str, text: str, version: str = "0.6.2") -> Environment:
    """Make an environment whose ``sitecustomize`` runs, as it does where the standard library has none."""
    made = stock(shop, built, path, version)
    move(made.real, interpreter(shop.folder / "bases" / made.real.name))
    (made.site / "sitecustomize.py").write_text(text)
    return made


@layout(
    "fusion-refused", "csrc-startup", **REFUSED, basis="guessed",
    start_files=(("S/_patch_flash.py", "3", "flashinfer"), ("S/_patch_flash.py", "4", "FLASHINFER_CSRC_DIR")),
)  # fmt: skip
def csrc_set_by_a_module_of_sitecustomize(shop: Workshop, built: Built, path: str) -> Environment:
    made = customized(shop, built, path, "# flashinfer is patched below\nimport _patch_flash as patch\n")
    (made.site / "_patch_flash.py").write_text(
        "def late():\n    # of flashinfer\n    import flashinfer.jit.env as env\n    env.FLASHINFER_CSRC_DIR = 1\n"
    )
    return made


@layout("fusion-refused", "csrc-shadowed", "csrc-startup", "csrc-outside-venv", **CHECKOUT, csrc_state="complete")
def another_put_first_by_sitecustomize(shop: Workshop, built: Built, path: str) -> Environment:
    repo = checkout(shop, built, path, data=True)
    return customized(shop, built, path, f"import sys\nsys.path.insert(0, {str(repo)!r})\n", "0.6.18")


@layout("fusion-refused", **REFUSED, start_files=(), hidden=None)
def sitecustomize_of_the_standard_library_in_front(shop: Workshop, built: Built, path: str) -> Environment:
    """Debian's layout: the environment's own never runs, so that nothing of it counts."""
    made = stock(shop, built, path)
    move(made.real, interpreter(shop.folder / "bases" / made.real.name, "# a handler of crashes\n"))
    repo = checkout(shop, built, path, data=True)
    (made.site / "sitecustomize.py").write_text(f"import sys\nsys.path.insert(0, {str(repo)!r})\n")
    return made


@layout("fusion-refused", "csrc-outside-venv", **{**CHECKOUT, "install": "editable", "csrc_state": "complete"})
def editable_by_a_module_of_its_own(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    repo = checkout(shop, built, path, data=True)
    (made.site / "_flashinfer_editable.pth").write_text("import _flashinfer_editable\n")
    (made.site / "_flashinfer_editable.py").write_text(
        f"# flashinfer\nimport sys\nsys.path.append({str(repo)!r})\n"
    )
    editable(made, ["_flashinfer_editable.pth,,", "_flashinfer_editable.py,,"])
    return made


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_said_of_it(told: Told, name: str) -> None:
    said(told, name, LAYOUTS[name])


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_fires_on_it(told: Told, name: str) -> None:
    fired(told, name, LAYOUTS[name])


def test_what_was_hidden_is_told(told: Told) -> None:
    name = "another-put-first-by-sitecustomize"
    found = told.venvs[name].flashinfer
    assert found is not None and found.hidden is not None
    assert (found.hidden.by, found.hidden.path.startswith(f"/opt/{name}/lib")) == ("start-up", True)
    assert str(found.root).startswith("/root/src-")
    assert (found.recorded_version, found.distributions) == (None, ())


def debian() -> str | None:
    """Return the name of the system's interpreter where it is Debian's, which has dist-packages of its own."""
    if not DEBIAN.exists():
        return None
    code = "import site, sys; print(sys.prefix, sys.version_info.minor, *site.getsitepackages())"
    said = subprocess.run(
        [str(DEBIAN), "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    name = f"python3.{said[1]}"
    return name if said[0] == "/usr" and f"/usr/local/lib/{name}/dist-packages" in said else None


@pytest.mark.skipif(debian() is None, reason="needs Debian's own Python, which has dist-packages")
def test_dist_packages_of_the_system_python(workspace: Path) -> None:
    """Debian's interpreter, whose prefix is moved below the host's folder by a copy of it beside its library."""
    name = str(debian())

    def system(built: Built) -> None:
        binary = built.tree.folder("/usr/bin") / name
        shutil.copy(DEBIAN.resolve(), binary)
        (binary.parent / "python3").symlink_to(name)
        (built.tree.folder("/usr/lib") / name).symlink_to(f"/usr/lib/{name}")
        site = built.tree.folder(f"/usr/local/lib/{name}/dist-packages")
        scripts = built.tree.folder("/usr/local/bin")
        wheels.install(workspace / "debian/unpacked-0.6.2", site, scripts)

    def nothing(shop: Workshop, built: Built, path: str) -> Environment:
        return shop.environment(built, None, f"/opt{path}")

    wanted = Layout(
        nothing, frozenset({"fusion-refused"}), expected={**REFUSED, **AT_ROOT, "csrc_basis": "recorded"}
    )
    told = look_at(workspace / "debian", {"system": wanted}, ("0.6.2",), also=system, places={"system": "/usr"})
    said(told, "system", wanted)
    fired(told, "system", wanted)
    found = told.venvs["system"].flashinfer
    assert found is not None
    assert found.csrc_dir == f"/usr/local/lib/{name}/dist-packages/flashinfer/data/csrc"
