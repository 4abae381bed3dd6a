"""Replay and what it shares with audit: exit codes, files, colour, width, progress."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.program import call, environ, look, on_terminal, recording

from fleetcheck.agent.evidence import Evidence
from fleetcheck.cli.options import coloured
from fleetcheck.report import schema

GOOD, SHORT = look("good"), look("short", 7)
DEAD = Evidence("dead", "unreachable", "connect", "refused", "dead refused")
RESTS = Evidence("rests", "skipped", "queue", "maintenance", "reinstall")


@pytest.mark.parametrize(
    ("looks", "complete", "code"),
    [
        ([GOOD], True, 0), ([GOOD, RESTS], True, 0), ([GOOD, SHORT], True, 1), ([GOOD, DEAD], True, 3),
        ([SHORT, DEAD, GOOD], True, 4), ([GOOD], False, 130),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["table", "json"])
def test_exit_codes(tmp_path: Path, looks: list[Evidence], complete: bool, code: int, form: str) -> None:
    done = call(tmp_path, "replay", recording(tmp_path / "e", looks, complete=complete), "--format", form)
    assert (done.returncode, done.stderr) == (code, "")
    assert all(item.host in done.stdout for item in looks)


def test_fail_on_overrides_the_recording(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [SHORT])
    assert call(tmp_path, "replay", evidence).returncode == 1
    assert call(tmp_path, "replay", evidence, "--fail-on", "critical").returncode == 0


def test_a_run_by_some_rules_says_so_everywhere(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [GOOD, SHORT])
    chosen = ("--select", "csrc,gpu-name", "--ignore", "csrc-missing", "--fail-on", "warning")
    document = json.loads(call(tmp_path, "replay", evidence, *chosen, "--format", "json").stdout)
    told = {key: document["run"][key] for key in ("select", "ignore", "fail_on")}
    assert told == {"select": ["csrc", "gpu-name"], "ignore": ["csrc-missing"], "fail_on": "warning"}
    table = " ".join(call(tmp_path, "replay", evidence, *chosen).stdout.split())
    assert "Judged by csrc, gpu-name only (--select), without csrc-missing (--ignore);" in table
    assert "limited by --select" in call(tmp_path, "replay", evidence, *chosen, "--format", "nagios").stdout
    assert "**Limited:**" in call(tmp_path, "replay", evidence, *chosen, "--format", "markdown").stdout
    plain = json.loads(call(tmp_path, "replay", evidence, "--format", "json").stdout)["run"]
    assert (plain["select"], plain["ignore"], plain["fail_on"]) == ([], [], "error")


def test_json_on_stdout_is_the_document_and_nothing_else(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e.gz", [GOOD, SHORT, DEAD])
    done = call(tmp_path, "replay", evidence, "--format", "json", "--color", "always")
    document: Any = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(schema.shipped()))
    assert {host["name"]: host["verdict"] for host in document["hosts"]} == {
        "good": "ok", "short": "findings", "dead": "unreachable",
    }  # fmt: skip
    assert call(tmp_path, "replay", evidence, "--format", "json").stdout == done.stdout


def test_replay_imports_no_transport(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [GOOD])
    check = (
        "import sys; from fleetcheck.cli.main import run; code = run(sys.argv[1:]);"
        "print(code, [name for name in ('fabric', 'paramiko', 'fleetcheck.remote') if name in sys.modules])"
    )
    command = [sys.executable, "-c", check, "replay", str(evidence), "--quiet"]
    done = subprocess.run(command, env=environ(tmp_path), capture_output=True, text=True, check=True)
    assert done.stdout == "0 []\n"


def test_quiet_prints_nothing_and_writes_the_files(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [SHORT])
    done = call(tmp_path, "replay", evidence, "-q", "--output", "json:a.json", "--output", "table:a.txt")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert json.loads((tmp_path / "a.json").read_text())["hosts"][0]["name"] == "short"
    assert (tmp_path / "a.txt").read_text().startswith("1 host: 0 ok, 1 failing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.txt", "e"]


def test_an_existing_file_keeps_its_mode_and_a_link_its_place(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("old")
    real.chmod(0o640)
    (tmp_path / "link.json").symlink_to("real.json")
    evidence = recording(tmp_path / "e", [GOOD])
    assert call(tmp_path, "replay", evidence, "-q", "--output", "json:link.json").returncode == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads(real.read_text())["summary"]["ok"] == 1
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [GOOD])
    mask = os.umask(0o027)
    try:
        call(tmp_path, "replay", evidence, "-q", "--output", "json:a.json")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("gone/a.json", "gone/a.json: cannot be written: No such file or directory"),
        ("folder", "folder: is a folder"),
        ("file/a.json", "file/a.json: cannot be written: Not a directory"),
    ],
)
def test_a_file_that_cannot_be_is_told_before_anything_else(tmp_path: Path, path: str, says: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    evidence = recording(tmp_path / "e", [GOOD])
    done = call(tmp_path, "replay", evidence, "--output", "json:ok.json", "--output", f"json:{path}")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fleetcheck: {says}\n")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["e", "file", "folder"]


def test_one_file_cannot_be_two(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [GOOD])
    done = call(tmp_path, "replay", evidence, "--output", "json:a", "--output", "table:./a")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "--output: a is named twice\n")


def test_a_run_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [GOOD])
    evidence.write_bytes(evidence.read_bytes().partition(b"\n")[0] + b"\nnot json\n")
    (tmp_path / "a.json").write_text("old")
    done = call(tmp_path, "replay", evidence, "--output", "json:a.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert (tmp_path / "a.json").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "e"]


def test_what_is_no_regular_file_is_written_to_and_stays(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [GOOD])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    done = call(tmp_path, "replay", evidence, "-q", "--output", f"json:{pipe}", "--output", "table:/dev/null")
    said = os.read(reader, 1 << 20)
    os.close(reader)
    assert done.returncode == 0
    assert json.loads(said)["summary"]["hosts"] == 1
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_terminal_gets_colour_width_and_progress(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [SHORT, DEAD, GOOD])
    out, err, code = on_terminal(tmp_path, "replay", evidence, columns=70)
    assert code == 4
    assert "\x1b[31m" in out
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert max(map(len, plain.split("\n\n")[1].splitlines())) <= 70
    assert "3/3 hosts, 1 failing, 1 not checked" in err
    assert err.endswith("\r\x1b[K")


@pytest.mark.parametrize(
    ("args", "more"),
    [(["--color", "never"], {}), ([], {"NO_COLOR": "1"}), ([], {"CLICOLOR": "0"}), ([], {"TERM": "dumb"})],
)
def test_a_terminal_without_colour(tmp_path: Path, args: list[str], more: dict[str, str]) -> None:
    out, _, _ = on_terminal(tmp_path, "replay", recording(tmp_path / "e", [SHORT]), *args, **more)
    assert "\x1b" not in out
    assert "short" in out


def test_quiet_and_dumb_terminals_see_no_progress(tmp_path: Path) -> None:
    evidence = recording(tmp_path / "e", [SHORT])
    assert on_terminal(tmp_path, "replay", evidence, "--quiet") == ("", "", 1)
    assert on_terminal(tmp_path, "replay", evidence, TERM="dumb")[1] == ""


@pytest.mark.parametrize(
    ("choice", "terminal", "environ", "expected"),
    [
        ("auto", True, {}, True), ("auto", False, {}, False),
        ("always", False, {"NO_COLOR": "1", "TERM": "dumb"}, True),
        ("never", True, {"CLICOLOR_FORCE": "1"}, False),
        ("auto", True, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, False), ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", False, {"CLICOLOR_FORCE": "1", "CLICOLOR": "0"}, True),
        ("auto", False, {"CLICOLOR_FORCE": "0"}, False),
        ("auto", False, {"CLICOLOR_FORCE": "1", "TERM": "dumb"}, True),
        ("auto", True, {"CLICOLOR": "0"}, False), ("auto", True, {"CLICOLOR": "1"}, True),
        ("auto", False, {"CLICOLOR": "1"}, False), ("auto", True, {"TERM": "dumb"}, False),
    ],
)  # fmt: skip
def test_who_decides_on_colour(choice: Any, terminal: bool, environ: dict[str, str], expected: bool) -> None:
    assert coloured(choice, terminal, environ) is expected


def test_a_pipe_gets_no_colour_and_nothing_shortened_unless_told(tmp_path: Path) -> None:
    names = [look(f"a-host-with-a-long-name-{number}.in.a.long.domain.example") for number in (1, 2)]
    evidence = recording(tmp_path / "e", names)
    done = call(tmp_path, "replay", evidence)
    assert "\x1b" not in done.stdout
    assert "Without room" not in done.stdout
    assert "Without room here" in call(tmp_path, "replay", evidence, COLUMNS="60").stdout
    assert "\x1b[32m" in call(tmp_path, "replay", evidence, "--color", "always").stdout


def test_no_output_is_written_over_what_the_run_reads(tmp_path: Path) -> None:
    inventory = tmp_path / "sv.yaml"
    inventory.write_text("hosts: {gpu01: {}}\n")
    kept = tmp_path / "kept.db"
    kept.write_bytes(b"old")
    before = {path: path.read_bytes() for path in (inventory, kept)}
    for words in (
        ("replay", inventory, "--output", f"json:{inventory}"),
        ("report", inventory, "--output", f"csv:{tmp_path}/./sv.yaml"),
        ("audit", "-i", inventory, "--output", f"json:{inventory}"),
        ("audit", "-i", inventory, "--db", kept, "--output", f"json:{kept}"),
    ):
        done = call(tmp_path, *words)
        assert done.returncode == 2
        assert "is read or kept by this run; name another" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in before} == before
