"""The command, interrupted or out of time: it reports what was gathered and leaves nothing on any host."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import faults
from support.faults import Listener
from support.program import call, environ
from support.sshd import NEEDS_SSHD, SSHD, Sshd, free_port, wait_until

from fleetcheck.demo.tree import HostTree

pytestmark = pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD)

# A test runner that runs in the background hands down a SIGINT that is ignored.
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from fleetcheck.cli.main import main; main()"
)
HANGING = 12
AMPLE_SECONDS = 60
ENDLESS = ("--limit", "banner=600", "--limit", "host=1200", "--limit", "smi=900")


class Fleet:
    """One host that is well, twelve whose nvidia-smi never ends, a silent one, and one behind a silent gateway."""

    def __init__(self, folder: Path, sshd: Sshd, silent_port: int, mark: str) -> None:
        self.folder, self.sshd, self.mark = folder, sshd, mark
        tree = HostTree(folder / "hung", "hung")
        tree.nvidia_smi("#!/bin/sh\ntrap '' TERM HUP INT\nwhile :; do sleep 1; done\n")
        HostTree(folder / "well", "well")
        hosts: dict[str, dict[str, object]] = {"well": {"sysroot": str(folder / "well")}}
        hosts |= {f"hung{number:02}": {"sysroot": str(folder / "hung")} for number in range(HANGING)}
        hosts["silent"] = {"port": silent_port}
        hosts["behind"] = {"proxy_jump": f"127.0.0.1:{silent_port}"}
        common = {"address": "127.0.0.1", "port": sshd.port, "user": sshd.user, "venvs": ["/opt/none"]}
        common |= {"identity_file": str(sshd.key), "known_hosts": str(sshd.known_hosts)}
        self.inventory = folder / "inventory.yaml"
        self.inventory.write_text(yaml.safe_dump({"defaults": common, "hosts": hosts}, sort_keys=False))
        self.hosts = set(hosts)
        self.report, self.complaints = folder / "report", folder / "complaints"

    def marked(self) -> list[str]:
        """Return what still runs of any session: the command lines."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return found

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start the command; its report goes to the file ``report``, line by line, its complaints to another."""
        words = ["audit", "-i", str(self.inventory), "--ssh-config", "none", "--format", "jsonl", *options]
        environment = environ(self.folder)
        with self.report.open("wb") as out, self.complaints.open("wb") as err:
            command = [sys.executable, "-c", START, *words]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)

    def hangs(self) -> bool:
        """Return whether the good host is done and nvidia-smi runs on all others."""
        hung = sum("nvidia-smi" in command for command in self.marked()) >= HANGING
        return hung and '"name":"well"' in self.report.read_text()

    def ended(self) -> dict[str, Any]:
        """Return the hosts of the report, and the summary under an empty name; nothing was complained of."""
        assert self.complaints.read_text() == ""
        return hosts_of(self.report.read_text())


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    mark = uuid.uuid4().hex
    with Sshd(environment={"FLEETCHECK_TEST": mark}) as sshd, Listener(faults.silent) as server:
        yield Fleet(tmp_path, sshd, server.port, f"FLEETCHECK_TEST={mark}")


def hosts_of(output: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines[-1]["type"] == "summary"
    return {line["name"]: line for line in lines if line["type"] == "host"} | {"": lines[-1]}


@contextlib.contextmanager
def running(fleet: Fleet, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command; it is gone afterwards, whatever happens."""
    process = fleet.start(*options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_signal(sent: signal.Signals, fleet: Fleet) -> None:
    with running(fleet, *ENDLESS) as process:
        assert wait_until(fleet.hangs, AMPLE_SECONDS)
        process.send_signal(sent)
        assert process.wait(AMPLE_SECONDS) == 130
    hosts = fleet.ended()
    assert not hosts.pop("")["complete"]
    assert hosts.keys() == fleet.hosts
    assert hosts.pop("well")["outcome"] == "checked"
    assert {(host["outcome"], host["detail"]) for host in hosts.values()} == {("timeout", "interrupted")}
    assert hosts.pop("behind")["attempts"] == 1
    assert hosts.pop("silent")["stage"] == "banner"
    for host in hosts.values():
        assert (host["stage"], host["attempts"]) == ("probe", 1)
        assert host["message"] == "the run was interrupted while this host was looked at (stage probe)"
    assert wait_until(lambda: not fleet.marked()), fleet.marked()


def test_whose_turn_had_not_come_is_told_apart(fleet: Fleet) -> None:
    recording = fleet.folder / "e.gz"
    with running(fleet, "--workers", str(HANGING), "--output", f"evidence:{recording}", *ENDLESS) as process:
        assert wait_until(fleet.hangs, AMPLE_SECONDS)
        process.send_signal(signal.SIGINT)
        assert process.wait(AMPLE_SECONDS) == 130
    hosts = fleet.ended()
    told = {name: (host["stage"], host["attempts"]) for name, host in hosts.items() if name.startswith("hung")}
    assert set(told.values()) == {("probe", 1)}
    for name in ("silent", "behind"):
        host = hosts[name]
        assert (host["outcome"], host["detail"], host["stage"]) == ("timeout", "interrupted", "queue")
        assert (host["attempts"], host["message"]) == (0, "the run ended first")
    # What was cut off is in the recording too, so that a replay tells the same.
    again = call(fleet.folder, "replay", recording, "--format", "jsonl")
    assert (again.returncode, hosts_of(again.stdout)) == (130, hosts)


def test_limit_of_the_run(fleet: Fleet) -> None:
    with running(fleet, "--limit", "run=6", *ENDLESS) as process:
        assert process.wait(AMPLE_SECONDS) in (3, 4)
    hosts = fleet.ended()
    assert hosts.pop("")["complete"]
    assert hosts.keys() == fleet.hosts
    assert hosts.pop("well")["outcome"] == "checked"
    ends = {name: (host["outcome"], host["detail"]) for name, host in hosts.items()}
    assert ends.pop("silent") == ends.pop("behind") == ("timeout", "run-limit")
    # The agent knows the limit as well, and ends nvidia-smi in time where it comes to that.
    assert set(ends.values()) <= {("timeout", "run-limit"), ("timeout", "agent-limit"), ("checked", None)}
    assert wait_until(lambda: not fleet.marked()), fleet.marked()


def test_killed(fleet: Fleet) -> None:
    """Nobody can end the looks of a command that is killed; the hosts see to it themselves."""
    with running(fleet, *ENDLESS):
        assert wait_until(fleet.hangs, AMPLE_SECONDS)
    assert wait_until(lambda: not fleet.marked()), fleet.marked()


def test_one_host_that_is_down(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START, "audit", "-i", "-", "--ssh-config", "none", "--format", "jsonl"]
    text = yaml.safe_dump({"hosts": {"down": {"address": "127.0.0.1", "port": free_port(), "user": "audit"}}})
    ended = subprocess.run(
        command, input=text, env=environ(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (3, "")
    assert hosts_of(ended.stdout)["down"]["detail"] == "refused"
