"""The crontab: what is put in is taken out again, and nothing else is touched."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcheck.errors import InputError
from fleetcheck.history.past import Entry
from fleetcheck.schedule import checks, crontab, systemd
from fleetcheck.schedule.job import Job

ODD = "a b'c\"d%e$f\\g`h;é"


def job(*words: str, name: str = "audit", folder: str = "/", limit: float = 1800) -> Job:
    return Job(name, ("/usr/bin/printf", *words), folder, (("LANG", "C.UTF-8"),), limit)


@given(text=st.lists(st.sampled_from(["# mine", "0 1 * * * true", "", "MAILTO=me"]), max_size=6))
@settings(max_examples=60, deadline=None)
def test_what_is_put_in_is_taken_out(text: list[str]) -> None:
    before = "".join(f"{line}\n" for line in text)
    one = crontab.with_block(before, "audit", crontab.block(job("x"), None))
    two = crontab.with_block(one, "other", crontab.block(job("y", name="other"), None))
    assert crontab.with_block(two, "audit", crontab.block(job("x"), None)) == two
    changed = crontab.with_block(two, "audit", crontab.block(job("z"), "@daily"))
    assert changed.count("@daily") == 1
    without = crontab.with_block(changed, "audit", "")
    assert crontab.with_block(without, "other", "") == before
    assert crontab.with_block(before, "audit", "") == before


def test_the_line_means_the_same_words_to_cron() -> None:
    line = crontab.line(job("%s|", ODD, "x"), "1 2 * * *")
    assert "%" not in line.replace("\\%", "")
    command = line.split(None, 5)[5].replace("\\%", "%")  # as cron does
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == f"{ODD}|x|"


@pytest.mark.parametrize(
    "when", ["", "1 2 3", "1 2 * * * rm", "* * * * *\n* * * * *", "@never", "$(date) 1 1 1 1"]
)
def test_a_time_that_is_none_is_refused(when: str) -> None:
    if when:
        with pytest.raises(InputError, match="is not a time of cron"):
            crontab.line(job(), when)
    assert crontab.line(job(), None).endswith("/usr/bin/printf")


TIMES = [
    "0 3 * * *", "007\t23 31 12 *", "*/5 * * * *", "0-59/7,3 8-18 * * mon-fri", "0 0 1 jan,JUL *", "0 0 * * 7",
    "@daily", "@reboot", "0 0 29 2 *", "0 0 31 2 1", "*/99 * * * *", "0 0 30 feb,mar *", "0 0 * * 5-7",
    "1,2-5/2,*/7 * * * *",
]  # fmt: skip
NO_TIMES = [
    "0 25 * * *", "60 * * * *", "0 0 0 * *", "0 0 32 * *", "0 0 * 13 *", "0 0 * * 8", "5/10 * * * *",
    "*/0 * * * *", "0-60 * * * *", "0 0 * * monday", "0 0 * mon *", "1, * * * *", ",1 * * * *", "1--5 * * * *",
    "5a * * * *", "-1 * * * *", "0 0 * foo *", "@Daily", "@every", "99999999999 * * * *", "1-5/ * * * *",
    "0 0 1 dec-13 *",
]  # fmt: skip
NEVER = ["0 0 31 2 *", "0 0 31 4,jun */2", "50-10 * * * *", "0 0 * * sat-sun"]
"""Cron takes them and never comes to them."""


@pytest.mark.parametrize("when", TIMES)
def test_a_time_that_cron_runs(when: str) -> None:
    assert crontab.line(job(), when).startswith(f"{when} cd ")


@pytest.mark.parametrize("when", NO_TIMES + NEVER)
def test_a_time_that_cron_would_not_run(when: str) -> None:
    with pytest.raises(InputError, match="is not a time of cron"):
        crontab.line(job(), when)


@pytest.mark.skipif(shutil.which("crontab") is None, reason="needs a crontab program (package cron)")
def test_the_real_cron_takes_and_refuses_the_same_times(tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text("0 3 * * * true\n")
    if subprocess.run(["crontab", "-n", str(file)], capture_output=True, check=False).returncode:
        pytest.skip("this crontab program cannot check a file (Debian's has -n)")
    taken = {}
    for when in TIMES + NO_TIMES + NEVER:
        file.write_text(f"{when} true\n")
        taken[when] = not subprocess.run(["crontab", "-n", str(file)], capture_output=True, check=False).returncode
    assert [when for when, well in taken.items() if well] == TIMES + NEVER


def test_one_run_is_not_the_last_1_runs() -> None:
    start, end = "2026-03-01T03:00:00.000Z", "2026-03-01T03:01:00.000Z"
    entry = Entry(1, "a", start, end, "1", "f.yaml", "f.yaml", True, "done", 1, 1, 0)
    assert checks.run_limit([entry], 1800).said.startswith("the last run took ")
    assert checks.run_limit([entry, entry], 1800).said.startswith("the longest of the last 2 runs took ")


def test_a_crontab_of_another_encoding_is_kept_byte_by_byte(tmp_path: Path) -> None:
    latin = b"# Sauvegarde \xe0 minuit\n"
    kept = crontab.backup(tmp_path / "b", latin.decode("utf-8", "surrogateescape"), "1")
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (latin, 0o600)


def test_what_no_line_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match="line break"):
        job("a\nb")
    with pytest.raises(InputError, match="is not a name"):
        job(name="a b")
    with pytest.raises(InputError, match="more than 990 bytes"):
        crontab.line(job("x" * 1000), None)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_units_pass_systemds_own_check(tmp_path: Path) -> None:
    made = systemd.units(job(ODD, folder=str(tmp_path)), "Mon..Fri 03:17", system=True)
    said = systemd.put(tmp_path, made, tmp_path / "backups", "1")
    assert said == [f"wrote {tmp_path / name}" for name in made]
    files = [str(tmp_path / name) for name in made]
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "fleetcheck" in line]) == (0, [])
    service = made["fleetcheck-audit.service"]
    assert "TimeoutStartSec=1920\n" in service
    assert "SuccessExitStatus=1 3 4 75\n" in service
    assert shlex.quote(ODD) not in service
    with pytest.raises(InputError, match="is not a time of systemd"):
        systemd.units(job(), "17 3 * * *", system=True)


def test_units_that_are_put_are_taken_back(tmp_path: Path) -> None:
    other = tmp_path / "fleetcheck-other.service"
    other.write_text("mine\n")
    made = systemd.units(job("1"), None, system=False)
    systemd.put(tmp_path, made, tmp_path / "b", "1")
    assert systemd.put(tmp_path, made, tmp_path / "b", "2") == []
    changed = systemd.put(tmp_path, systemd.units(job("2"), None, system=False), tmp_path / "b", "3")
    assert changed[0] == f"kept the earlier fleetcheck-audit.service as {tmp_path}/b/fleetcheck-audit.service-3"
    systemd.take(tmp_path, "audit", tmp_path / "b", "4")
    assert systemd.take(tmp_path, "audit", tmp_path / "b", "5") == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b", "fleetcheck-other.service"]
    with pytest.raises(Exception, match="fleetcheck did not write it"):
        systemd.take(tmp_path, "other", tmp_path / "b", "6")
