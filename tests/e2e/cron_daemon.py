"""The installed line under Debian's real cron daemon, once. Takes up to two minutes: cron wakes once a minute.

Not collected by its name; ``make test-matrix`` names it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.crontab import borrowed
from support.loopback import LoopbackFleet
from support.program import call
from support.sshd import NEEDS_SSHD, SSHD, wait_until

NEEDS_CRON = "needs root and Debian's cron (package cron)"
TICKS = 150.0


@pytest.fixture
def daemon() -> Iterator[None]:
    """Run a cron daemon, unless one runs already."""
    program = shutil.which("cron", path="/usr/sbin:/usr/bin")
    if program is None or os.geteuid() != 0:
        pytest.skip(NEEDS_CRON)
    process = subprocess.Popen([program, "-f"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with borrowed():
            yield
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        process.wait()


@pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD)
@pytest.mark.usefixtures("daemon")
def test_the_installed_line_runs_under_cron(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    log = tmp_path / "100%.log"
    with LoopbackFleet(tmp_path / "fleet") as fleet:
        done = call(
            tmp_path, "schedule", "-i", fleet.inventory(2), "--install", "--at", "* * * * *", "--name", "daemon",
            "--", "--ssh-config", fleet.config, "--log", log, "--output", f"table:{tmp_path}/last.txt",
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert wait_until(lambda: log.exists() and log.read_text().count("exit code") >= 1, TICKS)
        gone = call(tmp_path, "schedule", "--remove", "--name", "daemon")
        assert gone.returncode == 0
    text = log.read_text()
    assert "says: first" in text
    assert "exit code 0" in text
    assert "2 hosts: 2 ok" in (tmp_path / "last.txt").read_text()
    listed = call(tmp_path, "history", "--format", "json", "--db", tmp_path / ".local/state/fleetcheck/history.db")
    assert '"cron": true' in listed.stdout
