"""The far end: whatever ends a look, the agent ends, and all that it started, behind every login shell."""

from __future__ import annotations

import contextlib
import os
import pwd
import tempfile
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from support import faults
from support.faults import Listener
from support.sshd import NEEDS_SSHD, SSHD, Sshd, wait_until

from fleetcheck.agent.evidence import Evidence
from fleetcheck.agent.frame import Collector
from fleetcheck.demo.tree import HostTree
from fleetcheck.inventory.model import Target, VenvItem
from fleetcheck.remote.reach import Reach
from fleetcheck.remote.settings import Limits, Settings

pytestmark = pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD)

DEAF = "trap '' TERM HUP INT QUIT\nwhile :; do sleep 1; done\n"
"""A shell script that heeds no polite signal."""
AMPLE = Limits(connect=60, banner=60, auth=60, channel=60, host=300, smi=200)
CHEAP = {"agent", "system", "venvs"}
SHELLS = ("bash", "dash", "fish", "tcsh")
End = Literal["abort", "cut", "limit"]


@dataclass
class Host:
    """A daemon whose sessions carry a mark in their environment, and a host on which everything hangs."""

    sshd: Sshd
    mark: str
    root: Path

    def marked(self) -> list[str]:
        """Return what still runs of any session, also what has left it: the command lines."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return found

    def target(self, **keys: object) -> Target:
        venvs = (VenvItem(path="/opt/env"), VenvItem(path="/opt/dead"))
        return self.sshd.target("host", sysroot=str(self.root), venvs=venvs, **keys)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can read; pytest's own cannot be."""
    with tempfile.TemporaryDirectory(prefix="fleetcheck-far-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def host(folder: Path) -> Iterator[Host]:
    """nvidia-smi, an activate script and an interpreter that never end."""
    tree = HostTree(folder / "host", "far")
    tree.nvidia_smi("#!/bin/sh\n" + DEAF)
    tree.write("/opt/env/bin/activate", DEAF)
    tree.write("/opt/env/pyvenv.cfg", "home = /usr/bin\n")
    tree.write("/opt/env/bin/python", "#!/bin/sh\n" + DEAF, 0o755)
    tree.write("/opt/dead/bin/python", "#!/bin/sh\n" + DEAF, 0o755)
    tree.write("/opt/dead/pyvenv.cfg", "home = /usr/bin\n")
    mark = f"FLEETCHECK_TEST={uuid.uuid4().hex}"
    accounts = {entry.pw_name for entry in pwd.getpwall()} if os.geteuid() == 0 else set()
    users = sorted(accounts & {f"fleetcheck-{shell}" for shell in SHELLS})
    with Sshd(users=users, environment=dict([mark.split("=")])) as sshd:
        yield Host(sshd, mark, tree.root)


def account(shell: str | None) -> dict[str, str]:
    """Return the keys of the user with this login shell; None is the current user."""
    if shell is None:
        return {}
    if os.geteuid() != 0:
        pytest.skip("needs root, for another user's session")
    try:
        pwd.getpwnam(f"fleetcheck-{shell}")
    except KeyError:
        pytest.skip(f"needs the user fleetcheck-{shell}")
    return {"user": f"fleetcheck-{shell}"}


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event for the moment at which the cheap parts are here; what is still under way is lost with the way."""
    event, feed = threading.Event(), Collector.feed

    def fed(self: Collector, data: bytes) -> None:
        feed(self, data)
        if self.parts.keys() >= CHEAP:
            event.set()

    monkeypatch.setattr(Collector, "feed", fed)
    return event


@pytest.mark.parametrize("shell", [None, *SHELLS])
@pytest.mark.parametrize("end", ["abort", "cut", "limit"])
def test_nothing_is_left(
    shell: str | None, end: End, host: Host, tmp_path: Path, arrived: threading.Event
) -> None:
    keys = account(shell)
    limits = Limits(connect=60, banner=60, auth=60, channel=60, host=6, smi=200) if end == "limit" else AMPLE
    with (
        Listener(faults.relay(host.sshd.port)) as network,
        contextlib.closing(Reach(Settings(ssh_config="none", limits=limits))) as reach,
        ThreadPoolExecutor(1) as pool,
    ):
        known = tmp_path / "known_hosts"
        known.write_text(host.sshd.known_hosts_lines(network.port))
        target = host.target(port=network.port, known_hosts=str(known), **keys)
        looked = pool.submit(reach.look, target)
        # nvidia-smi comes last: the environments hang before it, each in a job of its own.
        assert wait_until(lambda: sum("/opt/" in command for command in host.marked()) >= 2), host.marked()
        assert arrived.wait(20)
        if end == "abort":
            reach.abort()
        elif end == "cut":
            network.hang_up()
        evidence = looked.result(60)
        # The agent stops a little before the host's limit; on a busy machine ours may come first.
        expected = {"abort": {"interrupted"}, "cut": {"lost"}, "limit": {"agent-limit", "host-limit"}}
        assert evidence.outcome == ("probe-error" if end == "cut" else "timeout")
        assert evidence.detail in expected[end]
        assert evidence.parts.keys() >= CHEAP
    assert wait_until(lambda: not host.marked()), host.marked()
    assert host.sshd.wait_idle()


@pytest.mark.parametrize("end", ["abort", "cut", "limit"])
def test_nvidia_smi_that_heeds_no_signal(end: End, host: Host, tmp_path: Path) -> None:
    limits = Limits(connect=60, banner=60, auth=60, channel=60, host=300, smi=2) if end == "limit" else AMPLE
    with (
        Listener(faults.relay(host.sshd.port)) as network,
        contextlib.closing(Reach(Settings(ssh_config="none", limits=limits))) as reach,
        ThreadPoolExecutor(1) as pool,
    ):
        known = tmp_path / "known_hosts"
        known.write_text(host.sshd.known_hosts_lines(network.port))
        target = host.sshd.target(
            "host", port=network.port, known_hosts=str(known), sysroot=str(host.root), venvs=()
        )
        looked = pool.submit(reach.look, target)
        assert wait_until(lambda: any("nvidia-smi" in command for command in host.marked())), host.marked()
        if end == "abort":
            reach.abort()
        elif end == "cut":
            network.hang_up()
        evidence = looked.result(60)
        if end == "limit":
            assert evidence.outcome == "checked"
            assert evidence.parts["smi"]["query"]["call"]["timed_out"]
    assert wait_until(lambda: not host.marked()), host.marked()


def test_controller_that_was_killed(host: Host) -> None:
    """No good-bye from our side: the kernel closes the connection, and the far end notices."""
    answers: list[Evidence] = []
    with contextlib.closing(Reach(Settings(ssh_config="none", limits=AMPLE))) as reach:
        thread = threading.Thread(target=lambda: answers.append(reach.look(host.target())))
        thread.start()
        assert wait_until(lambda: any("/opt/" in command for command in host.marked()))
        for pid in host.sshd.sessions():
            with contextlib.suppress(OSError):
                if b"sshd" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, 9)
        thread.join(30)
    assert [(answer.outcome, answer.detail) for answer in answers] == [("probe-error", "lost")]
    assert wait_until(lambda: not host.marked()), host.marked()
