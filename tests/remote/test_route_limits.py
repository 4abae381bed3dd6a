"""Local programs within limits: what hangs, floods or leaves children behind is ended, and says so."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

import pytest
from support.sshd import wait_until

from fleetcheck.inventory.model import Target
from fleetcheck.remote import sshconfig
from fleetcheck.remote.bounded import LimitError, Runner
from fleetcheck.remote.route import Resolver, RouteError
from fleetcheck.remote.settings import Settings


def alive(pid: int) -> bool:
    """Return whether a process lives; one that is dead and not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_both_streams_and_the_status_come_back() -> None:
    output = Runner(30, 1000).run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (output.status, output.stdout, output.stderr, output.complete) == (3, "out\n", "err\n", True)


def test_standard_input_is_empty() -> None:
    assert Runner(30, 1000).run(["cat"]).stdout == ""


def test_what_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(LimitError, match="no answer within 3 s"):  # time enough for the shell to start
        Runner(3, 1000).run(["sh", "-c", f"sleep 600 & echo $! > {pid}; trap '' TERM; wait"])
    assert wait_until(lambda: not alive(int(pid.read_text())))


def test_a_program_that_closes_its_streams_and_stays_is_ended() -> None:
    with pytest.raises(LimitError, match="no answer"):
        Runner(0.5, 1000).run(["sh", "-c", "exec >&- 2>&-; sleep 600"])


def test_a_child_in_the_background_that_holds_stderr_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    output = Runner(60, 1000).run(["sh", "-c", f"sleep 600 >&- & echo $! > {pid}; echo done"])
    assert output.stdout == "done\n"
    os.kill(int(pid.read_text()), 9)


def test_a_flood_is_ended_and_a_long_stderr_is_cut() -> None:
    with pytest.raises(LimitError, match="of output"):
        Runner(60, 100 << 10).run(["sh", "-c", "while :; do echo flood; done"])
    output = Runner(60, 100 << 10).run(
        [sys.executable, "-c", "import sys; sys.stderr.write('x' * 500000); print(1)"]
    )
    assert output.stdout == "1\n"
    assert len(output.stderr) <= 100 << 10
    assert not output.complete


def test_close_ends_what_runs_and_refuses_more(tmp_path: Path) -> None:
    runner, failures = Runner(600, 1000), []
    started = tmp_path / "started"

    def run() -> None:
        try:
            runner.run(["sh", "-c", f"echo $$ > {started}.new; mv {started}.new {started}; sleep 600"])
        except LimitError as error:
            failures.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    assert wait_until(started.exists)
    runner.close()
    thread.join(30)
    assert failures == ["the run has ended"]
    assert not alive(int(started.read_text()))
    with pytest.raises(LimitError):
        runner.run(["true"])


needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh (package openssh-client)")


@needs_ssh
def test_a_match_exec_that_hangs_costs_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sshconfig, "SSH_SECONDS", 3.0)
    config, pid = tmp_path / "config", tmp_path / "pid"
    config.write_text(f'Match exec "echo $$ > {pid}; exec sleep 600"\n User root\n')
    with pytest.raises(RouteError, match=r"gpu1: `ssh -G` failed: no answer within 3 s"):
        Resolver(Settings(ssh_config=str(config))).route(Target(name="gpu1"))
    assert wait_until(lambda: not alive(int(pid.read_text())))


def test_an_ssh_that_says_nothing_of_use(tmp_path: Path) -> None:
    for number, script in enumerate(("exit 0", "echo hostname gpu1", "exit 7", "kill -9 $$")):
        ssh = tmp_path / f"ssh{number}"
        ssh.write_text(f"#!/bin/sh\n{script}\n")
        ssh.chmod(0o755)
        with pytest.raises(
            RouteError, match=r"gpu1: (`ssh -G` does not say|ssh cannot resolve it: it gives no reason)"
        ):
            Resolver(Settings(ssh_config="none"), ssh=str(ssh)).route(Target(name="gpu1"))


def test_an_ssh_that_cannot_be_started(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_bytes(b"\x7fELF, but not really")
    ssh.chmod(0o755)
    with pytest.raises(RouteError, match=r"gpu1: `ssh -G` failed: .*Exec format error"):
        Resolver(Settings(ssh_config="none"), ssh=str(ssh)).route(Target(name="gpu1"))


def zombies() -> set[str]:
    """Return the dead children of this process that nobody has waited for."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == os.getpid():
            found.add(path.parent.name)
    return found


def test_no_process_is_left_unreaped() -> None:
    before, runner = zombies(), Runner(0.3, 1000)
    runner.run(["true"])
    with pytest.raises(LimitError):
        runner.run(["sleep", "600"])
    assert zombies() <= before
