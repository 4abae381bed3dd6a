"""The audit as a process: what it could not reach, what it writes, and what an interrupt leaves."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.program import SECONDS, START, call, environ

from fleetcheck.cli.options import SEVERITIES
from fleetcheck.cli.reaching import LIMITS
from fleetcheck.remote.settings import Limits
from fleetcheck.report import schema
from fleetcheck.rules import finding

# A test runner that runs in the background hands down a SIGINT that is ignored.
LISTENING = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {START}"
SAFE = ("--ssh-config", "none", "--known-hosts", "/dev/null")


def test_the_words_of_the_options_are_those_of_the_rooms() -> None:
    assert [field.name for field in dataclasses.fields(Limits)] == list(LIMITS)
    assert finding.SEVERITIES == SEVERITIES


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def inventory(folder: Path, **ports: int) -> Path:
    lines = [f"  {name}: {{address: 127.0.0.1, port: {port}}}" for name, port in ports.items()]
    path = folder / "fleet.yaml"
    path.write_text("\n".join(["hosts:", *lines, ""]))
    return path


def test_hosts_that_cannot_be_reached_are_a_three(tmp_path: Path, closed_port: int) -> None:
    path = inventory(tmp_path, gpu1=closed_port, gpu2=closed_port)
    done = call(tmp_path, "audit", "-i", path, *SAFE, "--limit", "connect=5", "--workers", "2")
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith("2 hosts: 0 ok, 0 failing, 2 not checked (2 unreachable); findings: none\n")
    assert "Not checked" in done.stdout


def test_hosts_are_selected(tmp_path: Path, closed_port: int) -> None:
    path = inventory(tmp_path, gpu1=closed_port, gpu2=closed_port)
    done = call(tmp_path, "audit", "gpu2", "-i", path, *SAFE, "--format", "json")
    assert done.returncode == 3
    assert [host["name"] for host in json.loads(done.stdout)["hosts"]] == ["gpu2"]
    none = call(tmp_path, "audit", "gpu3", "-i", path, *SAFE)
    assert (none.returncode, none.stdout) == (2, "")
    assert len(none.stderr.splitlines()) == 1


def test_evidence_is_written_and_replays_to_the_same_document(tmp_path: Path, closed_port: int) -> None:
    path = inventory(tmp_path, gpu1=closed_port)
    files = ("--output", "evidence:e.jsonl.gz", "--output", "json:a.json", "--output", "table:a.txt")
    done = call(tmp_path, "audit", "-i", path, *SAFE, "--format", "json", *files)
    assert (done.returncode, done.stderr) == (3, "")
    document: Any = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(schema.shipped()))
    assert (tmp_path / "a.json").read_text() == done.stdout
    assert stat.S_IMODE((tmp_path / "e.jsonl.gz").stat().st_mode) == 0o600
    again = call(tmp_path, "replay", "e.jsonl.gz", "--format", "json")
    assert (again.returncode, json.loads(again.stdout)) == (3, document)
    assert sorted(item.name for item in tmp_path.iterdir() if not item.name.startswith(".")) == [
        "a.json", "a.txt", "e.jsonl.gz", "fleet.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--output", "evidence:gone/e"], "gone/e: cannot be written: No such file or directory"),
        (["--output", "evidence:/dev/null"], "/dev/null: evidence goes to a regular file"),
        (["--output", "evidence:folder"], "folder: evidence goes to a regular file"),
    ],
)
def test_evidence_that_cannot_be_written_is_told_before_a_host_is_contacted(
    tmp_path: Path, options: list[str], says: str
) -> None:
    (tmp_path / "folder").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as door:
        path = inventory(tmp_path, gpu1=door.getsockname()[1])
        done = call(tmp_path, "audit", "-i", path, *SAFE, *options)
        door.setblocking(False)
        with pytest.raises(BlockingIOError):
            door.accept()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fleetcheck: ")
    assert done.stderr.endswith(f"{says}\n")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_an_ssh_config_that_is_not_there_is_a_two(tmp_path: Path) -> None:
    done = call(tmp_path, "audit", "-i", "gpu1", "--ssh-config", "gone")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "--ssh-config: gone is not a file\n")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reports_what_was_gathered(tmp_path: Path, closed_port: int, sent: signal.Signals) -> None:
    """One host never says a word: the signal comes when the program talks to it."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        path = inventory(tmp_path, dead=closed_port, mute=door.getsockname()[1])
        process = subprocess.Popen(
            [
                sys.executable, "-c", LISTENING, "audit", "-i", str(path), *SAFE, "--format", "json",
                "--output", "evidence:e",
            ],
            env=environ(tmp_path), cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        door.settimeout(SECONDS)
        line, _ = door.accept()
        os.kill(process.pid, sent)
        out, err = process.communicate(timeout=SECONDS)
        line.close()
    assert (process.returncode, err) == (130, "")
    document = json.loads(out)
    assert document["run"]["complete"] is False
    assert [host["name"] for host in document["hosts"]] == ["dead", "mute"]
    assert (document["hosts"][1]["outcome"], document["hosts"][1]["detail"]) == ("timeout", "interrupted")
    again = call(tmp_path, "replay", "e", "--format", "json")
    assert (again.returncode, json.loads(again.stdout)["run"]["complete"]) == (130, False)


def test_the_demo_ran_is_a_zero_whatever_it_found(tmp_path: Path) -> None:
    done = call(tmp_path, "demo", "--format", "json", "--keep", tmp_path / "kept")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads(schema.shipped()))
    assert document["summary"]["ok"] < document["summary"]["hosts"]
    assert (tmp_path / "kept" / "hosts").is_dir()
    again = call(tmp_path, "demo", "--keep", tmp_path / "kept")
    assert (again.returncode, again.stdout, again.stderr) == (2, "", f"--keep: {tmp_path}/kept is not empty\n")
