"""Every pinned FlashInfer release as installed: csrc, gate and guards are read right, whatever its version."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version
from support import wheels
from support.audits import record, target
from support.fetch import Package, cache_folder, packages
from support.sshd import Sshd
from support.workshop import Workshop

from fleetcheck.facts.records import Venv
from fleetcheck.remote.settings import NO_CONFIG, Limits, Settings

NAME = "flashinfer-python"
ADMITTED_SINCE = Version("0.6.17")  # flashinfer#3903


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a release that was fetched; with ``--all-packages`` one a release that is pinned."""
    if "package" in metafunc.fixturenames:
        pinned = [package for package in packages() if package.name == NAME]
        every = metafunc.config.getoption("--all-packages")
        wanted = pinned if every else list(wheels.available(NAME))
        metafunc.parametrize("package", wanted, ids=[package.version for package in wanted], scope="module")


@pytest.fixture(scope="module")
def venv(package: Package, workspace: Path, sshd: Sshd) -> Venv:
    """What an audit says of the environment that holds this release."""
    folder = workspace / f"matrix-{package.version}"
    folder.mkdir()
    wheel = cache_folder() / package.filename
    shop = Workshop(folder, {package.version: wheels.unpack(wheel, folder / "unpacked")})
    built, _ = shop.stock("stock", package.version)
    settings = Settings(limits=Limits(smi=30.0), ssh_config=NO_CONFIG)
    run = record((target(sshd, "stock", built),), settings, folder / "evidence.jsonl")
    assert run.hosts[0].outcome == "checked", run.hosts[0].message
    assert [finding.rule for finding in run.findings if finding.severity != "info"] == []
    (found,) = run.hosts[0].venvs
    return found


def test_csrc_is_complete_and_where_the_release_keeps_it(venv: Venv, package: Package) -> None:
    assert venv.flashinfer is not None
    assert venv.flashinfer.version == package.version
    assert venv.flashinfer.csrc_state == "complete"
    assert venv.flashinfer.csrc_dir == venv.flashinfer.csrc_default
    assert venv.flashinfer.modified == ()


def test_the_gate_and_the_guards_are_those_of_the_release(venv: Venv, package: Package) -> None:
    assert venv.fusion is not None
    admitted = Version(package.version) >= ADMITTED_SINCE
    assert venv.fusion.gate == ((9, 10, 12) if admitted else (9, 10))
    assert venv.fusion.guards == (0 if admitted else 13)
    assert venv.fusion.verdict == ("supported" if admitted else "refused")
