"""The line that is installed, run as cron runs it: its environment, /bin/sh, no terminal, a real sshd."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support.loopback import LoopbackFleet
from support.program import SECONDS, call
from support.sshd import NEEDS_SSHD, SSHD

from fleetcheck.cli.cron import lock_path
from fleetcheck.judge import stamp

pytestmark = pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD)


@dataclass
class Night:
    """A fleet, and the line that would be in the crontab."""

    fleet: LoopbackFleet
    home: Path
    inventory: Path
    line: str

    @property
    def db(self) -> Path:
        return self.home / "h.db"

    def command(self, *more: str) -> str:
        """Return what cron hands to the shell: ``%`` unescaped, the time cut off."""
        return " ".join([self.line.replace("\\%", "%").split(None, 5)[5].strip(), *more])

    def environ(self) -> dict[str, str]:
        account = pwd.getpwuid(os.geteuid())
        return {
            "HOME": str(self.home), "LOGNAME": account.pw_name, "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin",
        }  # fmt: skip

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", self.command(*more)], env=self.environ(), cwd="/", stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=SECONDS, start_new_session=True,
        )  # fmt: skip

    def breaks(self) -> None:
        self.csrc().rename(self.csrc().with_name("elsewhere"))

    def mends(self) -> None:
        next(self.fleet.sysroot.rglob("data/elsewhere")).rename(self.csrc())

    def csrc(self) -> Path:
        return next(self.fleet.sysroot.rglob("flashinfer/data")) / "csrc"

    def aged(self, length: timedelta) -> None:
        """Make the last mail older, as if that time had passed."""
        with sqlite3.connect(self.db) as db:
            (printed,) = db.execute("SELECT printed FROM notice").fetchone()
            db.execute("UPDATE notice SET printed = ?", (stamp(datetime.fromisoformat(printed) - length),))
        db.close()


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    tmp_path.chmod(0o755)
    with LoopbackFleet(tmp_path / "fleet") as fleet:
        yield made(fleet, tmp_path, fleet.inventory(2))


def made(fleet: LoopbackFleet, home: Path, inventory: Path) -> Night:
    line = call(
        home, "schedule", "-i", inventory.name if inventory.parent == home else inventory, "--",
        "--ssh-config", fleet.config, "--db", home / "h.db", "--log", "100%.log",
    )  # fmt: skip
    assert (line.returncode, line.stderr) == (0, "")
    return Night(fleet, home, inventory, line.stdout)


def test_silent_while_nothing_changes_then_once_then_reminds_and_recovers(night: Night) -> None:
    first = night.run()
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("First run from cron of this inventory.")
    silent = night.run()
    assert (silent.returncode, silent.stdout, silent.stderr) == (0, "", "")

    night.breaks()
    told = night.run()
    assert (told.returncode, told.stderr) == (1, "")
    lines = told.stdout.splitlines()
    assert re.fullmatch(r"Changes since run \S+, \d+ s ago: of 2 hosts, 2 worse", lines[0])
    assert lines[1] == "worse         host[0000-0001]: ok -> findings"
    assert "\x1b" not in told.stdout
    again = night.run("--remind", "24h")
    assert (again.returncode, again.stdout, again.stderr) == (1, "", "")

    night.aged(timedelta(hours=23, minutes=45))  # a timer's random delay
    reminded = night.run("--remind", "24h")
    assert reminded.stdout.startswith(
        "Reminder: nothing changed (last mail 23 h ago), and this is still open: host[0000-0001] csrc-missing.\n"
    )
    assert "csrc-missing" in reminded.stdout
    assert night.run("--remind", "24h").stdout == ""

    night.mends()
    better = night.run()
    assert better.returncode == 0
    assert better.stdout.splitlines()[1] == "better        host[0000-0001]: findings -> ok"
    assert night.run().stdout == ""

    night.aged(timedelta(days=7))
    weekly = night.run("--remind", "24h")
    assert weekly.stdout == (
        "All is well: 2 ok, 0 failing, 0 not checked. This line comes once a week and shows that cron is "
        "alive (last mail 7 d ago).\n"
    )
    assert night.run().stdout == ""
    log = (night.home / "100%.log").read_text()
    assert log.count(" begins: 2 hosts of ") == 10
    assert "says: nothing" in log
    assert "says: weekly" in log


def test_what_a_run_by_hand_saw_is_still_told_by_cron(night: Night) -> None:
    night.run()
    night.breaks()
    args = ("audit", "-i", night.inventory, "--ssh-config", night.fleet.config, "--db", night.db)
    by_hand = call(night.home, *args, "--changed")
    assert by_hand.returncode == 1
    assert "2 worse" in by_hand.stdout
    assert "VERDICT" not in by_hand.stdout
    assert "2 worse" in night.run().stdout


def test_a_damaged_history_is_told_and_the_report_is_printed(night: Night) -> None:
    args = ("audit", "-i", night.inventory, "--ssh-config", night.fleet.config, "--db", night.db, "--changed")
    call(night.home, *args)
    with sqlite3.connect(night.db) as db:
        db.execute("UPDATE run SET started = 'garbage'")
    db.close()
    told = call(night.home, *args)
    assert (told.returncode, told.stderr.count("internal error")) == (0, 0)
    assert told.stdout.startswith("No change since run ")
    assert "at 'garbage', which is no time: its row in the history is damaged: 2 hosts" in told.stdout
    with sqlite3.connect(night.db) as db:
        db.execute("UPDATE blob SET body = x'00'")
    db.close()
    night.breaks()
    whole = call(night.home, *args)
    assert "is damaged (error: Error -" in whole.stderr
    assert "internal error" not in whole.stderr
    assert "VERDICT" in whole.stdout
    assert "csrc-missing" in whole.stdout


def test_the_clock_jumps_back(night: Night) -> None:
    night.run()
    night.aged(timedelta(days=-30))
    with sqlite3.connect(night.db) as db:
        db.execute("UPDATE run SET started = replace(started, '20', '21')")
    db.close()
    weekly = night.run()  # the last mail is to come: to wait for it would be a month of silence
    assert weekly.stdout.startswith("All is well: 2 ok")
    assert "the clock jumped back" in weekly.stdout
    assert night.run().stdout == ""


def test_a_changed_inventory(night: Night) -> None:
    night.inventory = night.inventory.rename(night.home / "fleet.yaml")
    night = made(night.fleet, night.home, night.inventory)
    night.run()
    text = night.inventory.read_text()
    night.inventory.write_text(text.replace("host0001", "gpu7"))
    told = night.run().stdout.splitlines()
    # Both names are of one machine, which was audited under two names: no host can be called renamed.
    assert told[1] == "first seen    gpu7: ok"
    night.inventory.write_text(text)
    assert night.run().stdout == ""


def test_a_host_that_is_not_checked_keeps_its_verdict(night: Night) -> None:
    inventory = night.fleet.inventory(1, {"other": {"address": "127.0.0.1", "port": night.fleet.sshd.port}})
    night = made(night.fleet, night.home, inventory)
    night.run()
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        text = inventory.read_text()
        inventory.write_text(text.replace(f"port: {night.fleet.sshd.port}", f"port: {held.getsockname()[1]}"))
        lost = night.run()
        assert lost.returncode == 3
        assert re.match(
            r"not checked   other: unreachable; last seen ok \d+ s ago \(", lost.stdout.splitlines()[1]
        )
        assert night.run().stdout == ""
        inventory.write_text(text)
    back = night.run().stdout.splitlines()
    assert back[1] == "checked again other: ok, not checked in between (unreachable)"


@pytest.fixture
def mute(night: Night) -> Iterator[tuple[Night, socket.socket]]:
    """A fleet whose last host accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(SECONDS)
        night.inventory.write_text(night.fleet.inventory(2, {
            "mute": {"address": "127.0.0.1", "port": door.getsockname()[1]}
        }).read_text())  # fmt: skip
        yield night, door


def begun(night: Night, door: socket.socket, *more: str) -> tuple[subprocess.Popen[str], socket.socket]:
    """Start a run and return when it waits for the mute host."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", "exec " + night.command(*more).split(" && ", 1)[1].removeprefix("LANG=C.UTF-8 ")],
        env=night.environ(), cwd=night.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    line, _ = door.accept()
    return process, line


def test_the_lock_and_a_run_that_is_killed(mute: tuple[Night, socket.socket]) -> None:
    night, door = mute
    process, line = begun(night, door)
    try:
        held = night.run()
        assert (held.returncode, held.stdout) == (75, "")
        holder = json.loads(lock_path(night.db, str(night.inventory)).with_suffix(".json").read_text())
        assert held.stderr == (
            f"fleetcheck: {night.inventory}: the run {holder['run']} (process {process.pid}) is under way since "
            f"{holder['started']}; this one did nothing\n"
        )
        # A run by hand does not wait for it, and does not call it cut.
        args = ("audit", "host0000", "-i", night.inventory, "--ssh-config", night.fleet.config, "--db", night.db)
        by_hand = call(night.home, *args)
        assert (by_hand.returncode, by_hand.stderr) == (0, "")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=SECONDS)
        line.close()
    night.inventory.write_text(night.fleet.inventory(2).read_text())
    after = night.run()
    assert after.returncode == 0
    assert f"The run {holder['run']} of {night.inventory}, begun " in after.stdout
    assert night.run().stdout == ""
    listed = call(night.home, "history", "--db", night.db, "--format", "json")
    states = [run["state"] for run in json.loads(listed.stdout)["runs"]]
    assert states == ["done", "done", "done", "cut"]


def test_the_limit_of_the_whole_run_ends_it(mute: tuple[Night, socket.socket]) -> None:
    night, _ = mute
    done = night.run("--limit", "run=4")
    assert done.returncode == 3
    assert "mute" in done.stdout
    night.run("--limit", "run=4")


def test_an_interrupted_run_is_stored_and_changes_nothing_that_it_did_not_see(
    mute: tuple[Night, socket.socket],
) -> None:
    night, door = mute
    assert night.run("--limit", "banner=1").returncode == 3
    door.accept()[0].close()
    process, line = begun(night, door)
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=SECONDS)
    line.close()
    assert (process.returncode, err) == (130, "")
    assert "mute" not in out.split("\n\n")[0]
    assert night.run("--limit", "banner=1").stdout == ""


def test_a_history_that_fails_does_not_silence_the_night(night: Night) -> None:
    night.db.mkdir()
    done = night.run()
    assert done.returncode == 2
    assert "VERDICT" in done.stdout
    assert "history" in done.stderr
    by_hand = ("audit", "-i", night.inventory, "--ssh-config", night.fleet.config)
    (night.home / ".local").write_text("")
    plain = call(night.home, *by_hand)
    assert plain.returncode == 0
    assert plain.stderr.endswith("--no-history does without\n")
    assert call(night.home, *by_hand, "--no-history").stderr == ""


def test_a_machine_format_stays_one_document(night: Night) -> None:
    done = night.run("--format", "json")
    assert json.loads(done.stdout)["summary"]["ok"] == 2
    assert night.run("--format", "json").stdout == ""


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--cron", "--changed"], "two ways to report"),
        (["--cron", "--no-history"], "leaves nothing"),
        (["--remind", "1d"], "belongs to --cron"),
        (["--cron", "--remind", "soon"], "is not a duration"),
        (["--changed", "--format", "csv"], "--changed prints text"),
    ],
)
def test_wrong_usage(tmp_path: Path, args: list[str], says: str) -> None:
    done = call(tmp_path, "audit", "-i", "gpu1", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
