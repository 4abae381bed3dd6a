"""The log file turns over, and one that cannot be written is told, not raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetcheck.cli.logfile import KEPT, MAX_BYTES, LogFile
from fleetcheck.errors import OutputError


def test_it_turns_over_and_keeps_some(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    for _ in range((KEPT + 2) * MAX_BYTES // 1000 + 10):
        log.say("x" * 980)
    log.close()
    assert log.failures == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["log", *(f"log.{n}" for n in range(1, KEPT + 1))]
    assert all(one.stat().st_size <= MAX_BYTES for one in tmp_path.iterdir())


def test_what_a_host_says_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    log.say("a\nb\x1b[2J")
    log.close()
    assert path.read_text().endswith("Z a\\nb\\x1b[2J\n")
    assert path.read_text().count("\n") == 1


def test_a_full_disk_is_noted_once() -> None:
    log = LogFile(Path("/dev/full"))
    log.say("one")
    log.say("two")
    log.close()
    assert log.failures == ["/dev/full: cannot be written: No space left on device"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file"):
        LogFile(tmp_path / "none" / "log")
