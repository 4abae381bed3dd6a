"""Every way in which FlashInfer comes into an environment, or is left in it: each has its own right answer.

All environments are on one host, made of real files and looked at by the real agent through a local shell.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agent.agent_host import look
from support import wheels
from support.workshop import GATE, RTX, WIDE_GATE, Built, Workshop

from fleetcheck.agent.evidence import Request
from fleetcheck.demo.tree import Environment
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import Venv
from fleetcheck.inventory.model import Target, VenvItem
from fleetcheck.rules.finding import Finding
from fleetcheck.rules.judge import judge_host

CSRC = "data/csrc"
SOURCE_TREE = ("flashinfer", "csrc", "include")


@dataclass(frozen=True)
class Layout:
    """How an environment is made, what must be said of it, and the rules that fire, notes included."""

    make: Callable[[Workshop, Built, str], Environment]
    rules: frozenset[str]
    state: str = "ok"
    expected: dict[str, Any] = field(default_factory=dict)


LAYOUTS: dict[str, Layout] = {}
Maker = Callable[[Workshop, Built, str], Environment]


def layout(*rules: str, state: str = "ok", **expected: Any) -> Callable[[Maker], Maker]:
    """Enter a maker into LAYOUTS under its own name. ``expected`` are fields of FlashInfer and of its fusion."""

    def enter(make: Maker) -> Maker:
        LAYOUTS[make.__name__.replace("_", "-")] = Layout(make, frozenset(rules), state, expected)
        return make

    return enter


STOCK: dict[str, Any] = {
    "version": "0.6.2",
    "csrc_state": "complete",
    "install": "wheel",
    "verified": True,
    "guards": 13,
}
REFUSED: dict[str, Any] = {**STOCK, "gate": (9, 10), "verdict": "refused", "effective": "off"}
SUPPORTED: dict[str, Any] = {
    **STOCK,
    "version": "0.6.18",
    "gate": (9, 10, 12),
    "verdict": "supported",
    "guards": 0,
}


def stock(shop: Workshop, built: Built, path: str, version: str = "0.6.2") -> Environment:
    return shop.environment(built, version, path)


@layout("fusion-refused", **REFUSED)
def l1_stock_wheel(shop: Workshop, built: Built, path: str) -> Environment:
    return stock(shop, built, path)


@layout(
    "fusion-unsafe-patch",
    "package-modified",
    **{**REFUSED, "gate": (9, 10, 12), "verdict": "unsafe-patch", "effective": "unknown"},
)
def l2_gate_only_patch(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    wheels.edit(made.flashinfer / "jit/comm.py", GATE, WIDE_GATE, count=1)
    return made


@layout(**SUPPORTED)
def l3_stock_0_6_18(shop: Workshop, built: Built, path: str) -> Environment:
    return stock(shop, built, path, "0.6.18")


@layout(
    version="0.1.6", csrc_dir=None, csrc_state="unknown", gate_state="absent", verdict="absent", effective="off"
)
def l7_before_jit(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    rows = ["flashinfer/__init__.py,,"]
    (made.site / "flashinfer").mkdir()
    (made.site / "flashinfer/__init__.py").write_text("")
    for name in ("_kernels", "_decode_kernels", "_prefill_kernels"):
        (made.site / f"flashinfer/{name}.cpython-312-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    metadata(made, "flashinfer", "0.1.6", rows)
    return made


def metadata(made: Environment, name: str, version: str, rows: list[str]) -> Path:
    """Write what pip records of a distribution."""
    info = made.site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")
    (info / "INSTALLER").write_text("pip\n")
    return info


def checkout(shop: Workshop, built: Built, path: str, *, data: bool) -> Path:
    """Make a source tree of FlashInfer, with the links of a build below ``flashinfer/data`` or without."""
    repo = built.tree.folder(f"/root/src{path.replace('/', '-')}")
    package = shop.unpacked["0.6.2"] / "flashinfer"
    shutil.copytree(package / "jit", repo / "flashinfer/jit")
    shutil.copytree(package / "comm", repo / "flashinfer/comm")
    for name in ("__init__.py", "version.py", "_build_meta.py"):
        shutil.copy(package / name, repo / "flashinfer")
    shutil.copytree(package / "data/csrc", repo / "csrc")
    shutil.copytree(package / "data/include/flashinfer/comm", repo / "include/flashinfer/comm")
    if data:
        (repo / "flashinfer/data").mkdir()
        for name in ("csrc", "include"):
            (repo / "flashinfer/data" / name).symlink_to(f"../../{name}")
    return repo


EDITABLE: dict[str, Any] = {
    "version": "0.6.2",
    "install": "editable",
    "verified": False,
    "csrc_state": "complete",
    "verdict": "refused",
}


@layout("fusion-refused", "csrc-outside-venv", **EDITABLE)
def l8_editable_by_finder(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    repo = checkout(shop, built, path, data=True)
    finder = "__editable___flashinfer_python_0_6_2_finder"
    (made.site / f"{finder}.py").write_text(
        "import sys\nfrom importlib.util import spec_from_file_location\n\n\nclass Finder:\n    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n        if name == 'flashinfer':\n"
        f"            return spec_from_file_location(name, {str(repo / 'flashinfer/__init__.py')!r})\n\n\n"
        "def install():\n    sys.meta_path.append(Finder)\n"
    )
    (made.site / "__editable__.flashinfer_python-0.6.2.pth").write_text(f"import {finder}; {finder}.install()\n")
    editable(made, [f"{finder}.py,,", "__editable__.flashinfer_python-0.6.2.pth,,"])
    return made


@layout("fusion-refused", "csrc-outside-venv", **EDITABLE)
def l8_editable_by_path(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    repo = checkout(shop, built, path, data=True)
    (made.site / "__editable__.flashinfer_python-0.6.2.pth").write_text(f"{repo}\n")
    editable(made, ["__editable__.flashinfer_python-0.6.2.pth,,"])
    return made


def editable(made: Environment, rows: list[str]) -> None:
    info = metadata(made, "flashinfer-python", "0.6.2", rows)
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///root/src", "dir_info": {"editable": True}}))


CHECKOUT: dict[str, Any] = {"version": "0.6.2", "install": "source", "verified": False, "verdict": "refused"}


@layout("csrc-missing", "fusion-refused", **{**CHECKOUT, "csrc_state": "missing"})
def l9_bare_checkout(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    repo = checkout(shop, built, path, data=False)
    (made.site / "checkout.pth").write_text(f"{repo}\n")
    return made


@layout("csrc-missing", "fusion-refused", **{**CHECKOUT, "csrc_state": "empty"})
def l9_bare_checkout_after_an_import(shop: Workshop, built: Built, path: str) -> Environment:
    made = l9_bare_checkout(shop, built, path)
    built.tree.folder(f"/root/src{path.replace('/', '-')}/flashinfer/data/csrc")
    return made


@layout("fusion-refused", "csrc-decoy", **REFUSED)
def l10_wrong_path_victim(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    (made.flashinfer / "csrc").mkdir()
    shutil.copy(made.flashinfer / "data/csrc/trtllm_allreduce.cu", made.flashinfer / "csrc")
    return made


@layout("flashinfer-remnant", state="remnant")
def l11_remnant(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    (made.site / "flashinfer/data/csrc").mkdir(parents=True)
    return made


@layout(
    "flashinfer-mixed",
    "package-modified",
    "fusion-refused",
    version="0.6.18",
    gate=(9, 10),
    verdict="refused",
    csrc_state="complete",
)
def l12_half_upgrade(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path, "0.6.18")
    shutil.copytree(
        shop.unpacked["0.6.2"] / "flashinfer_python-0.6.2.dist-info",
        made.site / "flashinfer_python-0.6.2.dist-info",
    )
    newer = made.site / "flashinfer_python-0.6.18.dist-info/RECORD"
    newer.touch()
    old = made.flashinfer / "jit/comm.py"
    old.unlink()
    shutil.copy(shop.unpacked["0.6.2"] / "flashinfer/jit/comm.py", old)
    return made


@layout(
    "basis-disagrees",
    "fusion-refused",
    version="0.6.2",
    recorded_version="0.6.18",
    csrc_state="complete",
    verdict="refused",
)
def l12_metadata_alone_upgraded(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    info = made.site / "flashinfer_python-0.6.2.dist-info"
    text = (info / "METADATA").read_text().replace("Version: 0.6.2", "Version: 0.6.18", 1)
    info.rename(made.site / "flashinfer_python-0.6.18.dist-info")
    (made.site / "flashinfer_python-0.6.18.dist-info/METADATA").unlink()
    (made.site / "flashinfer_python-0.6.18.dist-info/METADATA").write_text(text)
    return made


@layout("fusion-refused", "csrc-outside-venv", **REFUSED)
def l13_links_of_uv(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    cache = built.tree.folder("/root/.cache/uv/archive-v0/x")
    (made.site / "flashinfer").rename(cache / "flashinfer")
    for file in (cache / "flashinfer").rglob("*"):
        link = made.flashinfer / file.relative_to(cache / "flashinfer")
        if file.is_file():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
    installer = made.site / "flashinfer_python-0.6.2.dist-info/INSTALLER"
    installer.unlink()
    installer.write_text("uv")
    return made


def companion(made: Environment, name: str, version: str) -> Path:
    """Install a companion package with its binaries."""
    package = made.site / name.replace("-", "_")
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "_build_meta.py").write_text(f'__version__ = "{version}"\n')
    metadata(made, name, version, [])
    return package


@layout("fusion-refused", "cubins-lack-arch", **REFUSED, cubins={"100": 2})
def l14_companions_that_fit(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    cubins = companion(made, "flashinfer-cubin", "0.6.2") / "cubins/fmha"
    cubins.mkdir(parents=True)
    for name in ("fmhaSm100aKernel_Q.cubin", "fmha_sm100f_V.cubin"):
        (cubins / name).write_bytes(b"\x7fELF")
    companion(made, "flashinfer-jit-cache", "0.6.2+cu130")
    return made


@layout("fusion-refused", "companion-mismatch", **REFUSED)
def l14_companion_of_another_release(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    companion(made, "flashinfer-jit-cache", "0.6.1+cu130")
    return made


@layout(
    "fusion-unsafe-patch",
    "package-modified",
    "fusion-prebuilt-wins",
    **{**STOCK, "gate": (9, 10, 12), "verdict": "unsafe-patch"},
)
def l14_jit_cache_before_a_patch(shop: Workshop, built: Built, path: str) -> Environment:
    made = l2_gate_only_patch(shop, built, path)
    module = companion(made, "flashinfer-jit-cache", "0.6.2+cu130") / "jit_cache/trtllm_comm"
    module.mkdir(parents=True)
    (module / "trtllm_comm.so").write_bytes(b"\x7fELF")
    return made


@layout(
    "fusion-gate-unreadable",
    "package-modified",
    **{**STOCK, "gate": None, "gate_state": "unreadable", "verdict": "unreadable"},
)
def l15_syntax_error(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    wheels.edit(made.flashinfer / "jit/comm.py", GATE, GATE.replace("]", ")"), count=1)
    return made


@layout(
    "fusion-gate-unreadable",
    "package-modified",
    **{**STOCK, "gate": None, "gate_state": "unreadable", "verdict": "unreadable"},
)
def l15_list_behind_a_name(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    wheels.edit(made.flashinfer / "jit/comm.py", GATE, "supported_major_versions=MAJORS", count=1)
    return made


@layout("fusion-refused", "env-edited", "csrc-unexpected", "csrc-missing", **{**REFUSED, "csrc_state": "missing"})
def l15_env_edited(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    wheels.edit(
        made.flashinfer / "jit/env.py", '_package_root / "data" / "csrc"', '_package_root / "csrc"', count=1
    )
    return made


@layout("fusion-refused", **REFUSED, prebuilt=("P/data/aot/norm",))
def aot_wheel(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    (made.flashinfer / "data/aot/norm").mkdir(parents=True)
    (made.flashinfer / "data/aot/norm/norm.so").write_bytes(b"\x7fELF")
    return made


@layout("fusion-refused", "csrc-shadowed", **REFUSED)
def behind_pythonpath(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    repo = checkout(shop, built, path, data=True)
    with (made.bin / "activate").open("a") as script:
        script.write(f"\nPYTHONPATH={repo}:/nowhere\nexport PYTHONPATH\n")
    return made


@layout("fusion-refused", **REFUSED)
def conda_prefix(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    (made.real / "conda-meta").mkdir()
    return made


@layout("fusion-refused", **REFUSED)
def environment_behind_a_link(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, f"/data{path}")
    link = built.tree.place(path)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(made.real)
    return made


@dataclass(frozen=True)
class Told:
    """What was said of all environments of the one host."""

    venvs: dict[str, Venv]
    findings: tuple[Finding, ...]
    executed: list[str]


@pytest.fixture(scope="module")
def told(workspace: Path) -> Told:
    folder = workspace / "layouts"
    folder.mkdir()
    versions = ("0.6.2", "0.6.18")
    fetched = {version: wheels.fetched("flashinfer-python", version) for version in versions}
    unpacked = {v: wheels.unpack(wheel, folder / f"unpacked-{v}", wheels.decides) for v, wheel in fetched.items()}
    shop = Workshop(folder, unpacked)
    built = shop.host("host")
    built.tree.write("/usr/local/cuda/version.json", '{"cuda_nvcc": {"version": "12.9.86"}}')
    built.tree.write("/usr/local/cuda/bin/nvcc", "", 0o755)
    paths = {name: f"/opt/{name}" for name in LAYOUTS}
    for name, one in LAYOUTS.items():
        one.make(shop, built, paths[name])
    request = Request(venvs=tuple(paths.values()), sysroot=str(built.tree.root), smi_limit=10.0)
    answer = look(request, bound=300.0)
    assert answer.collector.ended
    facts = host_facts(answer.parts)
    target = Target(name="host", venvs=tuple(VenvItem(path=path) for path in paths.values()), expect=RTX)
    by_path = {venv.path: venv for venv in facts.venvs}
    return Told(
        {name: by_path[path] for name, path in paths.items()},
        judge_host(target, facts),
        sorted(path.name for path in shop.markers.iterdir()),
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_said_of_it(told: Told, name: str) -> None:
    venv, wanted = told.venvs[name], LAYOUTS[name]
    assert venv.state == wanted.state, venv.error
    for key, value in wanted.expected.items():
        record: Any = venv.flashinfer if hasattr(venv.flashinfer, key) else venv.fusion
        root = venv.flashinfer.root if venv.flashinfer is not None else None
        seen = getattr(record, key)
        if key == "prebuilt":
            seen = tuple(one.replace(str(root), "P") for one in seen)
        assert seen == value, key


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_fires_on_it(told: Told, name: str) -> None:
    path = told.venvs[name].path
    assert {finding.rule for finding in told.findings if finding.venv == path} == LAYOUTS[name].rules


def test_nothing_of_them_was_executed(told: Told) -> None:
    assert told.executed == []
