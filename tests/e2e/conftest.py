"""One audit of all scenarios over a real sshd, shared by the end-to-end tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from layouts import Told, look_at
from support import trees, wheels
from support.audits import Audited, record, target
from support.scenarios import CASES, STRANGER, has_stranger
from support.sshd import NEEDS_SSHD, SSHD, Sshd
from support.workshop import Workshop

from fleetcheck.remote.settings import NO_CONFIG, Limits, Settings

VERSIONS = ("0.6.2", "0.6.18")


@pytest.fixture(scope="session")
def workspace() -> Iterator[Path]:
    """A folder that other accounts can read too, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="fleetcheck-e2e-"))
    folder.chmod(0o755)
    yield folder
    for made in folder.glob("*/hosts/*/opt/*"):
        made.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def unpacked(workspace: Path) -> dict[str, Path]:
    """The wheels that the scenarios use, unpacked once: version to folder."""
    found = {}
    for version in VERSIONS:
        wheel = wheels.fetched("flashinfer-python", version)
        found[version] = wheels.unpack(wheel, workspace / "unpacked" / version)
    return found


@pytest.fixture(scope="session")
def shop(workspace: Path, unpacked: dict[str, Path]) -> Workshop:
    """Where the hosts of the one audit are made."""
    folder = workspace / "shop"
    folder.mkdir()
    return Workshop(folder, unpacked)


@pytest.fixture(scope="session")
def sshd(shop: Workshop) -> Iterator[Sshd]:
    """A real sshd whose login folder and PYTHONPATH hold modules that must not be executed."""
    if SSHD is None:
        pytest.skip(NEEDS_SSHD)
    there = f'cd "{shop.traps}" && exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    users = (STRANGER,) if has_stranger() else ()
    with Sshd(
        options=[f"ForceCommand {there}"], users=users, environment={"PYTHONPATH": str(shop.traps)}
    ) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def audited(shop: Workshop, sshd: Sshd) -> Audited:
    """Build every scenario, audit them all in one run, and keep what is needed to judge it."""
    built = {name: case.build(shop, name) for name, case in CASES.items()}
    targets = tuple(target(sshd, name, host) for name, host in built.items())
    settings = Settings(limits=Limits(smi=10.0), workers=4, ssh_config=NO_CONFIG)
    evidence = shop.folder / "evidence.jsonl.gz"
    before = trees.snapshot(shop.folder / "hosts")
    run = record(targets, settings, evidence)
    sshd.wait_idle()
    return Audited(
        run=run,
        targets=targets,
        settings=settings,
        evidence=evidence,
        shop=shop,
        built=built,
        before=before,
        after=trees.snapshot(shop.folder / "hosts"),
        left_running=sshd.sessions(),
        executed=sorted(path.name for path in shop.markers.iterdir()),
    )


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, workspace: Path) -> Told:
    """What one look says of all the layouts of a module."""
    return look_at(workspace / request.module.__name__, request.module.LAYOUTS)
