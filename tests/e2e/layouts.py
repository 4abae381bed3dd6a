"""Makes environments of every layout on one host and tells what an audit says of them.

All are made of real files and looked at by the real agent through a local shell.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.agent_host import look
from support import wheels
from support.workshop import RTX, Built, Workshop

from fleetcheck.agent.evidence import Request
from fleetcheck.demo.tree import Environment
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import HostFacts, Venv
from fleetcheck.inventory.model import Target, VenvItem
from fleetcheck.rules.finding import Finding
from fleetcheck.rules.judge import judge_host


@dataclass(frozen=True)
class Layout:
    """How an environment is made, what must be said of it, and the rules that fire, notes included."""

    make: Callable[[Workshop, Built, str], Environment]
    rules: frozenset[str]
    state: str = "ok"
    expected: dict[str, Any] = field(default_factory=dict)


Maker = Callable[[Workshop, Built, str], Environment]


def entering(layouts: dict[str, Layout]) -> Callable[..., Callable[[Maker], Maker]]:
    """Return a decorator that enters a maker into ``layouts`` under its own name.

    Its arguments are the rules that fire; ``expected`` are fields of FlashInfer and of its fusion.
    """

    def layout(*rules: str, state: str = "ok", **expected: Any) -> Callable[[Maker], Maker]:
        def enter(make: Maker) -> Maker:
            layouts[make.__name__.replace("_", "-")] = Layout(make, frozenset(rules), state, expected)
            return make

        return enter

    return layout


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


EDITABLE: dict[str, Any] = {
    "version": "0.6.2",
    "install": "editable",
    "verified": False,
    "csrc_state": "complete",
    "verdict": "refused",
}


CHECKOUT: dict[str, Any] = {"version": "0.6.2", "install": "source", "verified": False, "verdict": "refused"}


def stock(shop: Workshop, built: Built, path: str, version: str = "0.6.2") -> Environment:
    return shop.environment(built, version, path)


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
    shutil.copytree(package, repo / "flashinfer", ignore=shutil.ignore_patterns("data"))
    for name in ("csrc", "include"):
        shutil.copytree(package / "data" / name, repo / name)
    for name in ("cutlass", "spdlog"):
        shutil.copytree(package / "data" / name, repo / "3rdparty" / name)
    if data:
        (repo / "flashinfer/data").mkdir()
        for name in ("csrc", "include", "3rdparty/cutlass", "3rdparty/spdlog"):
            (repo / "flashinfer/data" / name.rpartition("/")[2]).symlink_to(f"../../{name}")
    return repo


def editable(made: Environment, rows: list[str]) -> None:
    info = metadata(made, "flashinfer-python", "0.6.2", rows)
    (info / "direct_url.json").write_text(json.dumps({"url": "file:///root/src", "dir_info": {"editable": True}}))


def companion(made: Environment, name: str, version: str) -> Path:
    """Install a companion package with its binaries."""
    package = made.site / name.replace("-", "_")
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "_build_meta.py").write_text(f'__version__ = "{version}"\n')
    metadata(made, name, version, [])
    return package


def linked(built: Built, made: Environment, name: str) -> Path:
    """Make a package a tree of links into a cache, as uv's link mode does; returns the package in the cache."""
    cache = built.tree.folder(f"/root/.cache/uv/archive-v0/{name}") / "flashinfer"
    made.flashinfer.rename(cache)
    for file in cache.rglob("*"):
        link = made.flashinfer / file.relative_to(cache)
        if file.is_file():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
    installer = made.site / "flashinfer_python-0.6.2.dist-info/INSTALLER"
    installer.unlink()
    installer.write_text("uv")
    return cache


@dataclass(frozen=True)
class Told:
    """What was said of all environments of the one host."""

    venvs: dict[str, Venv]
    findings: tuple[Finding, ...]
    executed: list[str]
    facts: HostFacts


def look_at(
    folder: Path,
    layouts: Mapping[str, Layout],
    versions: tuple[str, ...] = ("0.6.2", "0.6.18"),
    also: Callable[[Built], None] | None = None,
    places: Mapping[str, str] | None = None,
) -> Told:
    """Make the environments and look at them; ``also`` adds to the host, ``places`` are paths other than usual."""
    folder.mkdir()
    fetched = {version: wheels.fetched("flashinfer-python", version) for version in versions}
    unpacked = {v: wheels.unpack(wheel, folder / f"unpacked-{v}", wheels.decides) for v, wheel in fetched.items()}
    shop = Workshop(folder, unpacked)
    built = shop.host("host")
    built.tree.write("/usr/local/cuda/version.json", '{"cuda_nvcc": {"version": "12.9.86"}}')
    built.tree.write("/usr/local/cuda/bin/nvcc", "", 0o755)
    paths = {name: (places or {}).get(name, f"/opt/{name}") for name in layouts}
    for name, one in layouts.items():
        one.make(shop, built, paths[name])
    if also is not None:
        also(built)
    request = Request(venvs=tuple(paths.values()), sysroot=str(built.tree.root), smi_limit=10.0)
    answer = look(request, bound=300.0, env={**os.environ, "HOME": "/root"})
    assert answer.collector.ended
    assert answer.parts["end"]["errors"] == []
    facts = host_facts(answer.parts)
    target = Target(name="host", venvs=tuple(VenvItem(path=path) for path in paths.values()), expect=RTX)
    by_path = {venv.path: venv for venv in facts.venvs}
    return Told(
        {name: by_path[path] for name, path in paths.items()},
        judge_host(target, facts),
        sorted(path.name for path in shop.markers.iterdir()),
        facts,
    )


def said(told: Told, name: str, wanted: Layout) -> None:
    """See that what is said of an environment is what its layout expects."""
    venv = told.venvs[name]
    assert venv.state == wanted.state, venv.error
    for key, value in wanted.expected.items():
        record: Any = venv.flashinfer if hasattr(venv.flashinfer, key) else venv.fusion
        root = venv.flashinfer.root if venv.flashinfer is not None else None
        seen = getattr(record, key)
        if key in ("prebuilt", "csrc_dir", "csrc_real", "start_files", "hidden") and seen is not None:
            seen = shown(seen, str(root))
        assert seen == value, f"{key}: {seen!r}, not {value!r}"


def shown(value: Any, root: str) -> Any:
    """Return paths with ``P`` for the package's folder and ``S`` for the one around it."""
    if isinstance(value, tuple):
        return tuple(shown(one, root) for one in value)
    if isinstance(value, str):
        return value.replace(root, "P").replace(str(Path(root).parent), "S")
    return tuple(shown(str(one), root) for one in value.model_dump().values())


def fired(told: Told, name: str, wanted: Layout) -> None:
    """See that the rules that fire on an environment are those of its layout, notes included."""
    path = told.venvs[name].path
    seen = {finding.rule for finding in told.findings if finding.venv == path}
    assert seen == wanted.rules, f"fired: {sorted(seen - wanted.rules)}, quiet: {sorted(wanted.rules - seen)}"
