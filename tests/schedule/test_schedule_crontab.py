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
from fleetcheck.schedule import crontab, systemd
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
