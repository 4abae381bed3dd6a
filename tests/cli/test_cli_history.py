"""``history``, ``diff`` and ``show --run`` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import nights, runs
from support.program import call, look, recording

from fleetcheck.history.store import History


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "h.db"
    with History.open(path) as history:
        nights.store(history, nights.run(1, [nights.machine("gpu1"), nights.machine("gpu2")]))
        nights.store(history, nights.run(2, [nights.machine("gpu1"), nights.machine("gpu2")]))
        bad = nights.machine("gpu1", "findings")
        nights.store(history, nights.run(3, [bad, nights.machine("gpu2")], [runs.finding("gpu1")]))
        nights.store(history, nights.run(4, [nights.machine("gpu1", "unreachable", message="refused")]))
    return path


def test_runs_are_listed_the_newest_first(tmp_path: Path, db: Path) -> None:
    done = call(tmp_path, "history", "--db", db)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["RUN", "run-4", "run-3", "run-2", "run-1"]
    listed = json.loads(call(tmp_path, "history", "--db", db, "--format", "json", "-n", "1").stdout)["runs"]
    assert [(one["id"], one["not_checked"], one["state"]) for one in listed] == [("run-4", 1, "done")]


def test_a_host_is_told_over_time(tmp_path: Path, db: Path) -> None:
    done = call(tmp_path, "history", "gpu1", "--db", db)
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if not line.startswith(" ")] == [
        "unreachable   2030-01-01T04:00:00.000Z  (1 look, run run-4)",
        "findings      2030-01-01T03:00:00.000Z  (1 look, run run-3)",
        "ok            2030-01-01T01:00:00.000Z to 2030-01-01T02:00:00.000Z  (2 looks, run run-1)",
    ]
    assert "    + error csrc-missing: csrc-missing says so" in done.stdout.splitlines()
    last = json.loads(call(tmp_path, "history", "gpu1", "--db", db, "-n", "1", "--format", "json").stdout)
    assert [one["verdict"] for one in last["spans"]] == ["unreachable"]
    none = call(tmp_path, "history", "gpu3", "--db", db)
    assert (none.returncode, none.stdout) == (2, "")
    assert none.stderr == "gpu3: the history has no such host; did you mean gpu2, gpu1?\n"


def test_the_file_is_checked_and_old_runs_forgotten(tmp_path: Path, db: Path) -> None:
    assert call(tmp_path, "history", "--check", "--db", db).stdout == f"{db}: sound\n"
    assert call(tmp_path, "history", "--keep", "1h", "--db", db).stdout == f"{db}: 1 run forgotten\n"
    assert call(tmp_path, "history", "--keep", "x", "--db", db).returncode == 2
    short = call(tmp_path, "history", "--keep", "0d", "--db", db)
    assert (short.returncode, short.stdout) == (2, "")
    assert "'0d' is too short: the shortest duration is 1s; to forget every run, remove " in short.stderr
    assert f"{db}, and h.db-wal and h.db-shm beside it" in short.stderr
    usual = f"{tmp_path}/.local/state/fleetcheck/history.db, and history.db-wal and "
    assert usual in call(tmp_path, "history", "--keep", "0d").stderr
    assert usual in call(tmp_path, "audit", "--keep", "0h").stderr
    remind = call(tmp_path, "audit", "--cron", "--remind", "0d").stderr
    assert "the shortest duration is 1s" in remind
    assert "remove" not in remind
    none = call(tmp_path, "history")
    assert (none.returncode, none.stdout) == (2, "")
    assert "there is none yet" in none.stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ([], 1, "not checked   gpu1: unreachable; last seen findings"),
        (["run-3"], 1, "not checked   gpu1: unreachable"),
        (["run-1", "run-2"], 0, "No change since run run-1"),
        (["latest~3", "latest~1"], 1, "worse         gpu1: ok -> findings"),
    ],
)
def test_runs_are_compared(tmp_path: Path, db: Path, args: list[str], code: int, says: str) -> None:
    done = call(tmp_path, "diff", *args, "--db", db)
    assert (done.returncode, done.stderr) == (code, "")
    assert says in done.stdout
    document = json.loads(call(tmp_path, "diff", *args, "--db", db, "--format", "json").stdout)
    assert document["schema"] == "fleetcheck/diff/1"
    assert bool(document["hosts"]) == bool(code)


def test_what_cannot_be_compared(tmp_path: Path, db: Path) -> None:
    for args, says in ((["run-3", "run-1"], "name the earlier run first"), (["x"], "no one run 'x'"),
                       (["a", "b", "c"], "Two runs")):  # fmt: skip
        done = call(tmp_path, "diff", *args, "--db", db)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr


def test_a_host_is_shown_as_it_was(tmp_path: Path, db: Path) -> None:
    then = call(tmp_path, "show", "gpu1", "--run", "run-3", "--db", db, "--format", "json")
    assert then.returncode == 1
    document = json.loads(then.stdout)
    assert document["run"]["id"] == "run-3"
    assert [item["rule"] for item in document["findings"]] == ["csrc-missing"]
    assert call(tmp_path, "show", "gpu1", "--run", "latest", "--db", db).returncode == 3
    absent = call(tmp_path, "show", "gpu22", "--run", "latest", "--db", db)
    assert (absent.returncode, absent.stdout) == (2, "")
    assert absent.stderr == "gpu22: the run has no such host; did you mean gpu1?\n"
    assert call(tmp_path, "show", "gpu1", "--db", db).returncode == 2


@pytest.mark.parametrize("words", [("--run", "latest"), ("latest",)], ids=["option", "argument"])
def test_the_latest_of_a_host_is_the_run_that_had_it(tmp_path: Path, db: Path, words: tuple[str, ...]) -> None:
    """The latest run was of another host: the newest that has this one is shown, and named."""
    done = call(tmp_path, "show", "gpu2", *words, "--db", db, "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["run"]["id"] == "run-3"
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "fleetcheck: gpu2 was not part of the latest run, run-4; run-3, 2030-01-01T03:00:00.000Z: "
    )
    other = call(tmp_path, "show", "gpu2", "--run", "run-4", "--db", db)
    assert (other.returncode, other.stdout) == (2, "")
    said = "gpu2: the run has no such host; it was looked at last in run-3, begun 2030-01-01T03:00:00.000Z\n"
    assert other.stderr == said


def test_a_run_is_a_file_or_one_of_the_history_wherever_it_is_asked_for(tmp_path: Path, db: Path) -> None:
    file, evidence = tmp_path / "run.json", recording(tmp_path / "look.jsonl", [look("gpu1"), look("gpu2")])
    file.write_text(call(tmp_path, "report", "run-2", "--db", db, "--format", "json").stdout)
    for command in (("show", "gpu1"), ("baseline", "gpu1"), ("compare", "gpu1", "gpu2")):
        for run in (("run-2", "--db", db), (file,), (evidence,)):
            done = call(tmp_path, *command, "--run", *run)
            assert done.returncode in (0, 1), (command, run, done.stderr)
            assert done.stdout
    helps = {
        " ".join(call(tmp_path, command, "--help").stdout.partition("--run RUN")[2].partition("--db")[0].split())
        for command in ("show", "baseline", "compare")
    }
    assert len(helps) == 1
    assert "a file of json, jsonl or evidence, or a run of the history" in helps.pop()


@pytest.mark.parametrize("command", [("report",), ("show", "gpu1")])
def test_a_stored_run_is_shown_again(tmp_path: Path, db: Path, command: tuple[str, ...]) -> None:
    done = call(tmp_path, *command, "run-3", "--db", db, "--format", "json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["run"]["id"], document["hosts"][0]["name"]) == ("run-3", "gpu1")
    assert [one["rule"] for one in document["findings"]] == ["csrc-missing"]
    assert done.stderr.startswith("fleetcheck: run-3, 2030-01-01T03:00:00.000Z: from the history")
    assert "neither processes" in done.stderr
    latest = call(tmp_path, "report", "latest", "--db", db)
    assert (latest.returncode, latest.stdout.splitlines()[0]) == (
        3, "1 host: 0 ok, 0 failing, 1 not checked (1 unreachable); findings: none",
    )  # fmt: skip


def test_the_history_of_the_state_folder_is_asked_without_db(tmp_path: Path) -> None:
    with History.open(tmp_path / "state" / "fleetcheck" / "history.db") as history:
        nights.store(history, nights.run(1, [nights.machine("gpu1")]))
    lent = {"XDG_STATE_HOME": str(tmp_path / "state")}
    assert call(tmp_path, "report", "latest", **lent).stdout.startswith("1 host: 1 ok")
    (tmp_path / "latest").write_text("{}")  # a file of that name comes first
    assert call(tmp_path, "report", "latest", **lent).stderr.startswith("latest: not a run")
    nowhere = call(tmp_path, "report", "nope", **lent)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert nowhere.stderr.startswith("nope: there is no such file, and the history has no one run 'nope'")


def test_without_a_history_the_latest_run_is_told_as_such(tmp_path: Path) -> None:
    done = call(tmp_path, "report", "latest")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is none yet; fleetcheck audit writes it" in done.stderr
    assert call(tmp_path, "report", "gone").stderr == "gone: cannot be read: No such file or directory\n"


def test_hosts_of_a_stored_run_are_compared_and_make_a_baseline(tmp_path: Path, db: Path) -> None:
    same = call(tmp_path, "compare", "gpu1", "gpu2", "--run", "latest~2", "--db", db)
    assert same.returncode == 0, same.stderr
    made = call(tmp_path, "baseline", "gpu1", "--run", "run-1", "--db", db)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("# Expectations that gpu1 met in run run-1.")
    alone = call(tmp_path, "baseline", "gpu1", "--db", db)
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "--db belongs to --run" in alone.stderr


def test_hosts_in_maintenance_are_counted_apart(tmp_path: Path) -> None:
    with History.open(tmp_path / "h.db") as history:
        nights.store(history, nights.run(1, [nights.machine("gpu1"), nights.machine("gpu2")]))
        nights.store(
            history, nights.run(2, [nights.machine("gpu1", "timeout"), nights.machine("gpu2", "skipped")])
        )
    lines = call(tmp_path, "history", "--db", tmp_path / "h.db").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["RUN", "run-2", "run-1"]
    assert lines[0].split()[3:9] == ["HOSTS", "OK", "FINDINGS", "NOT", "CHECKED", "MAINTENANCE"]
    assert [line.split()[3:8] for line in lines[1:]] == [["2", "0", "0", "1", "1"], ["2", "2", "0", "0", "0"]]
    listed = json.loads(call(tmp_path, "history", "--db", tmp_path / "h.db", "--format", "json").stdout)["runs"]
    assert [(one["not_checked"], one["maintenance"]) for one in listed] == [(2, 1), (0, 0)]
