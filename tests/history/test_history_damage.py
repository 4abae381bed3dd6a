"""Files that others made, links, damaged rows: told in one line, and nothing of another's is taken."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from support import nights

from fleetcheck.history import notice
from fleetcheck.history.ages import ago
from fleetcheck.history.diff import compare, of_past
from fleetcheck.history.errors import HistoryError
from fleetcheck.history.past import Past
from fleetcheck.history.store import History
from fleetcheck.history.text import render


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "history.db"
    with History.open(made) as history:
        for number in range(3):
            nights.store(
                history, nights.run(number, [nights.machine("a", verdict="ok", address=f"192.0.2.{number}")])
            )
    return made


def damaged(path: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()


def test_an_empty_file_that_is_given_becomes_ours_alone(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    path.touch(0o644)
    path.chmod(0o644)
    with History.open(path) as history:
        nights.store(history, nights.run(1, [nights.machine("a")]))
        assert [oct(mode(one)) for one in sorted(tmp_path.iterdir())] == ["0o600"] * len(list(tmp_path.iterdir()))


def test_a_mode_that_was_given_to_a_history_stays(path: Path) -> None:
    path.chmod(0o640)
    with History.open(path):
        assert mode(path) == 0o640


def test_a_link_that_leads_to_no_file_yet(tmp_path: Path) -> None:
    folder, link = tmp_path / "disk", tmp_path / "link.db"
    link.symlink_to(folder / "h.db")
    with pytest.raises(HistoryError, match=r"it is a link to .*/disk/h\.db, whose folder is not there"):
        History.open(link)
    assert not folder.exists()
    folder.mkdir()
    with History.open(link) as history:
        nights.store(history, nights.run(1, [nights.machine("a")]))
    assert (link.is_symlink(), mode(folder / "h.db")) == (True, 0o600)
    with History.read(link) as history:
        assert Past(history).find("latest").id == "run-1"


def test_a_link_to_itself(tmp_path: Path) -> None:
    link = tmp_path / "h.db"
    link.symlink_to("h.db")
    with pytest.raises(HistoryError, match="a link that leads nowhere"):
        History.open(link)


def test_an_empty_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.gpkg"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA application_id = 1196444487")
    content = path.read_bytes()
    assert content
    for way in (History.open, History.read):
        with pytest.raises(HistoryError, match=r"it is another program's database.*Name.*--db"):
            way(path)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (content, [path])


@pytest.mark.parametrize("started", ["garbage\x1b[31m", "", "2030-01-01", "2030-01-01T00:00:00", b"\0"])
def test_a_run_whose_time_is_none_is_still_compared(path: Path, started: object) -> None:
    damaged(path, "UPDATE run SET started = ? WHERE id = 'run-1'", started)
    now = nights.FIRST + timedelta(hours=9)
    with History.open(path) as history:
        past = Past(history)
        before, after = past.find("run-1"), past.find("run-2")
        changes = compare(past, before, of_past(past.looks(after.seq)), past.info(after))
        first, *_ = render(changes, now).splitlines()
        assert first.startswith("No change since run run-1, at ")
        assert "is no time: its row in the history is damaged" in first
        assert first.isprintable()
        assert history.prune(timedelta(seconds=1)) == 0
        nights.store(history, nights.run(7, []))
        nights.store(history, nights.run(8, []))
        assert history.prune(timedelta(hours=2)) >= 1
    assert ago("2030-01-01T00:00:00Z", now) == "9 h ago"


def test_a_notice_whose_time_is_none_speaks() -> None:
    last = notice.Notice(1, "garbage")
    spoken = notice.reason(last, nights.FIRST, changed=False, cut=False, complete=True, well=True, remind=None)
    assert spoken == "weekly"


@pytest.mark.parametrize("body", [b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01", b""])
def test_a_text_that_cannot_be_unpacked_is_one_line(path: Path, body: bytes) -> None:
    damaged(path, "UPDATE blob SET body = ?", body)
    with History.read(path) as history:
        past = Past(history)
        entry = past.find("latest")
        with pytest.raises(
            HistoryError, match=rf"^history {path}: what is stored of host 'a' in run 'run-2' is damaged \(.*\)$"
        ):
            past.run(entry)


def test_the_head_of_a_run_that_is_damaged_is_one_line(path: Path) -> None:
    damaged(path, "UPDATE run SET info = '{'")
    with History.read(path) as history:
        past = Past(history)
        with pytest.raises(HistoryError, match=r"^history .*what is stored of run 'run-2' is damaged \(.*\)$"):
            past.info(past.find("latest"))


def test_a_device_or_a_pipe_in_the_place_of_the_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    for place in (pipe, Path(os.devnull)):
        before = mode(place)
        for way in (History.open, History.read):
            with pytest.raises(HistoryError, match="it is no regular file"):
                way(place)
        assert mode(place) == before
