"""The history's file: what goes in comes out, what is equal is stored once, and what is old goes."""

from __future__ import annotations

import sqlite3
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from support import nights, runs

from fleetcheck.errors import InputError
from fleetcheck.history.past import Past
from fleetcheck.history.schema import MIGRATIONS, VERSION
from fleetcheck.history.store import History


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "history.db"


def count(history: History, table: str) -> int:
    (found,) = history.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found)


def test_a_run_comes_back_as_it_was_but_for_what_is_volatile(path: Path) -> None:
    whole = runs.every_kind()
    head = whole.run.model_copy(update={"select": ("csrc",), "fail_on": "warning"})
    whole = whole.model_copy(update={"run": head})
    with History.open(path) as history:
        nights.store(history, whole)
        past = Past(history)
        again = past.run(past.find("latest"))
    same = {"attempts": 0, "seconds": 0.0}
    assert [host.model_copy(update=same) for host in again.hosts] == [
        host.model_copy(update=same) for host in whole.hosts
    ]
    assert sorted(map(str, again.findings)) == sorted(map(str, whole.findings))
    assert again.summary == whole.summary
    assert again.run == whole.run


def test_what_is_volatile_is_not_stored(path: Path) -> None:
    warm = runs.gpus(2, processes=({"pid": 7},))
    warm = warm.model_copy(
        update={"devices": tuple(one.model_copy(update={"temperature": 71}) for one in warm.devices)}
    )
    with History.open(path) as history:
        nights.store(history, nights.run(1, [nights.machine("a", gpus=warm)]))
        look = Past(history).looks(1)[0]
        host, _ = look.load()
        states = count(history, "state")
        nights.store(history, nights.run(2, [nights.machine("a", gpus=runs.gpus(2))]))
        assert count(history, "state") == states
    assert host.gpus.processes == ()
    assert [one.temperature for one in host.gpus.devices] == [None, None]


def test_what_did_not_change_is_stored_once(path: Path) -> None:
    hosts = [nights.machine(f"gpu{number}") for number in range(5)]
    with History.open(path) as history:
        for number in range(10):
            nights.store(history, nights.run(number, hosts))
        first = (count(history, "state"), count(history, "blob"))
        assert count(history, "look") == 50
        changed = nights.machine("gpu0", gpus=runs.gpus(driver="600.1"))
        nights.store(history, nights.run(10, [changed, *hosts[1:]]))
        assert (count(history, "state"), count(history, "blob")) == (first[0] + 1, first[1] + 1)
        history.check()


def test_the_files_are_for_the_user_alone(path: Path) -> None:
    with History.open(path) as history:
        nights.store(history, nights.run(1, [nights.machine("a")]))
        files = list(path.parent.iterdir())
        assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}
        assert history.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_old_runs_go_and_with_them_what_only_they_knew(path: Path) -> None:
    with History.open(path) as history:
        for number in range(0, 240, 24):
            host = nights.machine("a", gpus=runs.gpus(driver=f"600.{number}"))
            extra = [nights.machine("old")] if number < 24 else []
            nights.store(history, nights.run(number, [host, *extra]))
        assert history.prune(timedelta(days=3), slack=timedelta(days=30)) == 0
        gone = history.prune(timedelta(days=3))
        past = Past(history)
        assert gone == 5
        assert [run.id for run in past.runs(99)] == ["run-216", "run-192", "run-168", "run-144", "run-120"]
        assert past.hosts() == ["a"]
        assert count(history, "state") == 5
        history.check()
        assert past.run(past.find("run-120")).hosts[0].gpus.driver == "600.120"


def test_a_clock_that_was_wrong_once_empties_no_history(path: Path) -> None:
    with History.open(path) as history:
        for number in range(5):
            nights.store(history, nights.run(number, [nights.machine("a")]))
        ahead = nights.FIRST + timedelta(days=4000)
        nights.store(history, nights.run(9, [nights.machine("a")], at=ahead))
        assert history.prune(timedelta(days=90)) == 0


def test_runs_are_found_by_name(path: Path) -> None:
    with History.open(path) as history:
        for number in (1, 2, 12):
            nights.store(history, nights.run(number, [nights.machine("a")]))
        history.begin(nights.run(13, []).run, source="fleet.yaml")
        past = Past(history)
        names = ("latest", "latest~0", "latest~1", "run-2", "run-12")
        assert [past.find(name).id for name in names] == ["run-12", "run-12", "run-2", "run-2", "run-12"]
        for name, says in (
            ("run-", "several"),
            ("run-13", "no one run"),
            ("latest~9", "no one run"),
            ("%", "no one"),
        ):
            with pytest.raises(InputError, match=says):
                past.find(name)


def test_a_file_of_the_previous_version_is_brought_up_to_date(path: Path) -> None:
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.executescript(MIGRATIONS[0] + "PRAGMA user_version = 1;")
    old.execute(
        "INSERT INTO run (id, started, version, inventory, state) VALUES ('r', '2029-01-01', '0', 'i', 'done')"
    )
    old.commit()
    old.close()
    with History.read(path) as history:  # also a command that only reads
        assert history.connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        past = Past(history)
        assert (past.find("r").source, past.find("r").cron) == ("", False)
    with History.open(path) as history:
        nights.store(history, nights.run(1, [nights.machine("a")]))
        assert [run.id for run in Past(history).runs(9)] == ["run-1", "r"]
        history.check()


def test_a_migration_that_fails_leaves_the_old_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.executescript(MIGRATIONS[0] + "PRAGMA user_version = 1; CREATE TABLE notice (x);")
    old.close()
    with pytest.raises(Exception, match="notice already exists"):
        History.open(path)
    again = sqlite3.connect(path)
    assert again.execute("PRAGMA user_version").fetchone() == (1,)
    assert "source" not in [row[1] for row in again.execute("PRAGMA table_info(run)")]
    again.close()
