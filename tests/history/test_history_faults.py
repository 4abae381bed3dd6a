"""What becomes of the history where the disk is full, the folder read-only, the file held, damaged or too new."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import nights, runs

from fleetcheck.history import errors
from fleetcheck.history.errors import HistoryError
from fleetcheck.history.past import Past
from fleetcheck.history.schema import VERSION
from fleetcheck.history.store import History
from fleetcheck.run import HostResult

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small tmpfs")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "history.db"
    with History.open(made) as history:
        nights.store(history, nights.run(1, [nights.machine("a")]))
    return made


@contextlib.contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@AS_ROOT
def test_a_full_disk_loses_no_earlier_run(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "size=1m") as small:
        path = small / "history.db"
        with History.open(path) as history:
            nights.store(history, nights.run(1, [nights.machine("a")]))
            number = history.begin(nights.run(2, []).run, source="fleet.yaml")
            room = os.statvfs(small)
            (small / "filler").write_bytes(b"x" * (room.f_bavail * room.f_frsize))
            venvs = tuple(runs.venv(f"/opt/{os.urandom(3000).hex()}") for _ in range(60))
            with pytest.raises(HistoryError, match=r"the disk is full; nothing of this run was stored"):
                history.store(number, nights.run(2, [nights.machine("a", venvs=venvs)]))
            (small / "filler").unlink()
            history.check()
            assert [run.id for run in Past(history).runs(9) if run.state == "done"] == ["run-1"]
            history.store(number, nights.run(2, [nights.machine("a")]))
            assert Past(history).find("latest").id == "run-2"


@AS_ROOT
def test_a_read_only_folder_can_be_read_and_says_that_it_cannot_be_written(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "fixed", "size=4m") as fixed:
        path = fixed / "history.db"
        with History.open(path) as history:
            nights.store(history, nights.run(1, [nights.machine("a")]))
        subprocess.run(["mount", "-o", "remount,ro", str(fixed)], check=True)
        with History.read(path) as history:
            assert Past(history).find("latest").id == "run-1"
        with pytest.raises(HistoryError, match=r"cannot be written.*--db"):
            History.open(path)
        with pytest.raises(HistoryError, match=r"cannot be written.*--db"):
            History.open(fixed / "new" / "history.db")


def test_a_file_that_is_held_is_waited_for_and_then_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetcheck.history.store.BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with History.open(path) as history:
        with pytest.raises(HistoryError, match=r"another program has held it for more than 10 s.*fuser"):
            history.begin(nights.run(2, []).run, source="fleet.yaml")
        holder.execute("ROLLBACK")
        nights.store(history, nights.run(2, [nights.machine("a")]))
    holder.close()
    assert errors.BUSY_SECONDS == 10


def test_readers_do_not_wait_for_a_writer(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with History.read(path) as history:
        assert Past(history).find("latest").id == "run-1"
    holder.close()


@pytest.mark.parametrize("content", [b"\0\x01 long enough to be looked at" * 40, b"SQLite format 3\0"])
def test_a_file_that_is_none_says_to_move_it_away(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(content)
    for way in (History.open, History.read):
        with pytest.raises(HistoryError, match=rf"damaged.*mv {path} {path}.damaged"):
            way(path).check()
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "content",
    ["hosts: {gpu1: {}}\n", '{"schema": "fleetcheck/run/1"}', "# Fl\u00fcgel\n" + "x" * 4088 + "\u00e9\n" * 99],
)
def test_a_text_is_no_history_and_is_never_to_be_moved(tmp_path: Path, content: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(content, encoding="utf-8")
    for way in (History.open, History.read):
        with pytest.raises(
            HistoryError, match=r"it is a text file, no history of fleetcheck.*Name.*--db"
        ) as caught:
            way(path)
        assert not {"mv", "damaged", "Move"} & set(str(caught.value).split())
    assert path.read_text(encoding="utf-8") == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [0, 2, 70])
def test_the_database_of_another_program_is_left_alone(tmp_path: Path, number: int) -> None:
    path = tmp_path / "places.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executescript(f"CREATE TABLE run (x); PRAGMA user_version = {number}")
    content = path.read_bytes()
    for way in (History.open, History.read):
        with pytest.raises(HistoryError, match=r"it is another program's database.*Name.*--db"):
            way(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_is_no_history_to_read_and_one_to_write(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    path.touch()
    with pytest.raises(HistoryError, match="there is none yet"):
        History.read(path)
    assert path.stat().st_size == 0
    with History.open(path) as history:
        nights.store(history, nights.run(1, [nights.machine("a")]))
    with History.read(path) as history:
        assert Past(history).find("latest").id == "run-1"


def test_damage_within_is_found(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with History.open(path) as history:
        for number in range(30):
            host = nights.machine("a", venvs=(runs.venv(f"/opt/{os.urandom(400).hex()}"),))
            nights.store(history, nights.run(number, [host]))
    with path.open("r+b") as stream:
        stream.seek(5 * 4096)
        stream.write(os.urandom(8 * 4096))
    with pytest.raises(HistoryError, match="damaged"), History.read(path) as history:
        history.check()


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    newer.close()
    for way in (History.open, History.read):
        with pytest.raises(HistoryError, match=r"a newer fleetcheck wrote it.*Upgrade"):
            way(path)


def test_a_folder_and_nothing_are_told(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="there is none yet"):
        History.read(tmp_path / "none.db")
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match=r"cannot be written: (Not a directory|File exists)"):
        History.open(tmp_path / "file" / "history.db")
    for way in (History.open, History.read):
        with pytest.raises(HistoryError, match=r"it is a folder.*--db"):
            way(tmp_path)


def dies(path: Path, statement: int) -> bool:
    """Store runs in a child that is killed at a statement of SQL; return whether it was (and not done before)."""
    child = os.fork()
    if child == 0:
        left = statement

        def trace(_: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        with History.open(path) as history:
            history.connection.set_trace_callback(trace)
            for number in range(2):
                made = nights.run(number, fleet(f"{statement}.{number}"))
                info = made.run.model_copy(update={"id": f"{statement}-{number}"})
                nights.store(history, made.model_copy(update={"run": info}))
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def fleet(driver: str) -> list[HostResult]:
    return [nights.machine(f"gpu{n}", gpus=runs.gpus(driver=driver)) for n in range(8)]


def test_kill_at_fifty_moments_loses_nothing_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    cut = 0
    for turn, statement in enumerate(random.Random(7).sample(range(1, 140), 50)):
        killed = dies(path, statement)
        with History.open(path) as history:
            history.check()
            made = nights.run(turn, fleet("1"))
            nights.store(history, made)
            told = history.cut()
            history.cut_told()
            assert history.cut() == []
            past = Past(history)
            done = {run.id for run in past.runs(1000) if run.state == "done"}
            begun = {run.id for run in past.runs(1000)}
            assert {f"run-{number}" for number in range(turn + 1)} <= done
            own = {f"{statement}-{number}" for number in range(2)} & begun
            assert {one.id for one in told} == own - done
            assert killed or len(own & done) == 2
            assert all(len(past.looks(past.find(name).seq)) == 8 for name in own & done)
            cut += len(told)
    assert cut > 20


def test_a_run_that_lives_is_not_called_cut(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    holding = (
        "import sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path; from support import nights\n"
        "from fleetcheck.history.store import History\n"
        "history = History.open(Path(sys.argv[1])); history.begin(nights.run(7, []).run, source='f')\n"
        "print('begun', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(path), str(Path(__file__).parents[1])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        with History.open(path) as history:
            history.begin(nights.run(8, []).run, source="f")
            assert history.cut() == []
        os.kill(child.pid, signal.SIGKILL)
    with History.open(path) as history:
        history.begin(nights.run(9, []).run, source="f")
        assert [one.id for one in history.cut()] == ["run-7", "run-8"]


def test_runs_side_by_side_are_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    children = []
    for one in range(4):
        child = os.fork()
        if child == 0:
            for number in range(5):
                with History.open(path) as history:
                    made = nights.run(number, fleet(f"{one}.{number}"))
                    info = made.run.model_copy(update={"id": f"{one}-{number}"})
                    nights.store(history, made.model_copy(update={"run": info}))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    with History.open(path) as history:
        history.check()
        past = Past(history)
        assert {run.id for run in past.runs(99)} == {f"{one}-{number}" for one in range(4) for number in range(5)}
        assert {run.state for run in past.runs(99)} == {"done"}
        assert all(len(past.looks(run.seq)) == 8 for run in past.runs(99))
        history.begin(nights.run(99, []).run, source="f")
        assert history.cut() == []
