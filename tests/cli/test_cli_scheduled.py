"""A schedule that nothing would run, or that nobody would hear of: with the real crontab and real processes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.crontab import borrowed
from support.program import call

from fleetcheck.schedule import crontab, running
from fleetcheck.schedule.running import BOOTED, DAEMONS, PLACES

CRON_RUNS = bool(running._processes(running.PROC)[0] & set(DAEMONS))


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text("hosts: {me: {connection: local}}\n")
    return path


@pytest.fixture
def scheduled(tmp_path: Path, inventory: Path) -> Iterator[Path]:
    """A crontab that holds a schedule."""
    with borrowed():
        done = call(tmp_path, "schedule", "-i", inventory, "--install")
        assert done.returncode == 0, done.stderr
        yield inventory


def examined(home: Path, inventory: Path, **more: str) -> tuple[int, list[dict[str, Any]]]:
    done = call(home, "doctor", "-i", inventory, "--ssh-config", "none", "--format", "json", **more)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)["checks"]


def of(checks: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = (one for one in checks if one["check"] == name)
    return found


def edited(change: str, what: str = "") -> None:
    listed = crontab.read()
    assert what in listed
    crontab.write(listed.replace(what, change) if what else change + listed)


def test_where_none_is_installed_nothing_is_judged(tmp_path: Path, inventory: Path) -> None:
    with borrowed():
        code, checks = examined(tmp_path, inventory)
    assert code == 0, checks
    assert of(checks, "schedule")["said"].startswith("none is installed")
    assert not [one for one in checks if one["check"] == "mail"]


@pytest.mark.skipif(CRON_RUNS, reason="cron is running here")
def test_without_a_daemon_nothing_would_run_it(tmp_path: Path, scheduled: Path) -> None:
    code, checks = examined(tmp_path, scheduled)
    found = of(checks, "schedule")
    assert (code, found["ok"]) == (1, False)
    assert found["said"].startswith("audit in the crontab; no cron is running")
    assert "systemctl enable --now cron" in found["do"]
    again = call(tmp_path, "schedule", "-i", scheduled, "--install")
    assert again.returncode == 0
    assert again.stdout.startswith("Nothing to do")
    assert "warning: schedule: audit in the crontab; no cron is running" in again.stderr


@pytest.mark.skipif(CRON_RUNS, reason="cron is running here")
def test_a_daemon_that_runs_is_seen(tmp_path: Path, scheduled: Path) -> None:
    program = tmp_path / "cron"
    shutil.copy(shutil.which("sleep") or "", program)  # /proc names a process by its program
    with subprocess.Popen([program, "600"]) as process:
        try:
            found = of(examined(tmp_path, scheduled)[1], "schedule")
        finally:
            process.kill()
    assert (found["ok"], found["said"]) == (True, "audit in the crontab; cron is running")


def test_where_processes_are_hidden_nothing_is_claimed(tmp_path: Path) -> None:
    """As under hidepid, where the processes of others are not there."""
    (tmp_path / "4711").mkdir()
    (tmp_path / "4711" / "comm").write_text("python3\n")
    if any(running.GENERATED.glob("cron-*.timer")):
        pytest.skip("systemd-cron is here")
    found = running.daemon("audit", tmp_path)
    assert not found.fault
    assert "cannot be seen" in found.said
    assert not running.daemon("audit", tmp_path / "none").fault


@pytest.mark.skipif(shutil.which("sendmail", path=PLACES) is not None, reason="sendmail is here")
def test_without_sendmail_nobody_gets_the_report(tmp_path: Path, scheduled: Path) -> None:
    found = of(examined(tmp_path, scheduled)[1], "mail")
    assert not found["ok"]
    assert "there is no sendmail" in found["said"]
    assert "MAILTO" in found["do"]
    assert "--output table:FILE" in found["do"]
    report = tmp_path / "a report.txt"
    done = call(tmp_path, "schedule", "-i", scheduled, "--install", "--", "--output", f"table:{report}")
    assert done.returncode == 0
    found = of(examined(tmp_path, scheduled)[1], "mail")
    assert (found["ok"], found["said"]) == (True, f"audit: the report is written to {report}")


def test_mail_that_is_off_is_named(tmp_path: Path, scheduled: Path) -> None:
    edited('MAILTO=""\n')
    found = of(examined(tmp_path, scheduled)[1], "mail")
    assert not found["ok"]
    assert 'MAILTO=""' in found["said"]


def test_a_line_that_was_pasted_counts(tmp_path: Path, inventory: Path) -> None:
    with borrowed():
        crontab.write(call(tmp_path, "schedule", "-i", inventory).stdout)
        assert of(examined(tmp_path, inventory)[1], "schedule")["said"].startswith("a line in the crontab; ")
        crontab.write("# " + crontab.read())
        assert of(examined(tmp_path, inventory)[1], "schedule")["said"].startswith("none is installed")


def test_who_gets_the_mail(tmp_path: Path) -> None:
    sendmail = tmp_path / "sendmail"
    sendmail.write_text("#!/bin/sh\n")
    sendmail.chmod(0o755)
    text = "MAILTO = 'ops@lab.example'\n# fleetcheck audit: begin (x)\n1 3 * * * true\n# fleetcheck audit: end\n"
    (line,) = crontab.installed(text)
    said = f"audit: cron mails the report to ops@lab.example through {sendmail}"
    assert running.mail(line, str(tmp_path)) == running.Check("mail", said)
    (line,) = crontab.installed("MAILTO=\n" + text.partition("\n")[2])
    assert running.mail(line, str(tmp_path)).fault


@pytest.mark.skipif(BOOTED.exists(), reason="systemd is running here")
def test_a_timer_without_systemd_would_never_start(tmp_path: Path, inventory: Path) -> None:
    config = tmp_path / "config"
    folder = config / "systemd" / "user"
    done = call(tmp_path, "schedule", "-i", inventory, "--systemd", "--folder", folder, "--install")
    assert done.returncode == 0, done.stderr
    with borrowed():
        code, checks = examined(tmp_path, inventory, XDG_CONFIG_HOME=str(config))
    found = of(checks, "schedule")
    assert (code, found["ok"]) == (1, False)
    assert found["said"].startswith("fleetcheck-audit.timer: systemd does not run here")
