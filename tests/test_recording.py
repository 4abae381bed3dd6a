"""The evidence file: what was written is read again, and a damaged file says so in one line."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path

import pytest

from fleetcheck import recording
from fleetcheck.agent.evidence import Evidence
from fleetcheck.errors import InputError, OutputError
from fleetcheck.inventory.model import Expect, Target, VenvItem, Waiver
from fleetcheck.judge import Policy, new_run

TARGETS = (
    Target(name="gpu01", groups=("rtx",), expect=Expect(gpus=8), venvs=(VenvItem(path="/opt/a b"), "running")),
    Target(name="gpu02", port=2222),
)
POLICY = Policy("warning", waivers=(Waiver(rule="x", hosts="gpu01", reason="r", until=date(2030, 1, 1)),))
LOOKS = (
    Evidence("gpu02", "unreachable", "connect", "refused", "no", attempts=2, started=1.5, seconds=0.25),
    Evidence("gpu01", "checked", parts={"agent": {"n": "é\u2028"}, "venv/0": [1, None]}, notes=("a note",)),
)


def write(path: Path, *, end: bool = True) -> None:
    writer = recording.Writer(path)
    writer.begin(new_run("inv.yaml"), POLICY, TARGETS)
    for look in LOOKS:
        writer.host(look)
    if end:
        writer.end("2030-01-01T00:00:00.000Z", complete=True)


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_what_was_written_is_read_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600
    got = recording.read(path)
    assert (got.targets, got.policy, got.info.inventory) == (TARGETS, POLICY, "inv.yaml")
    assert [look for _, look in got.looks()] == list(LOOKS)
    assert (got.end.finished, got.end.complete) == ("2030-01-01T00:00:00.000Z", True)


def test_a_recording_without_its_last_line_is_not_complete(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    got = recording.read(path)
    assert len(list(got.looks())) == 2
    assert not got.end.complete


def test_an_abandoned_recording_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("old")
    writer = recording.Writer(path)
    writer.begin(new_run("inv.yaml"), POLICY, TARGETS)
    writer.abandon()
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("run.jsonl", "old")]


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    writer = recording.Writer(tmp_path / "none" / "run.jsonl")
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        writer.begin(new_run("inv.yaml"), POLICY, TARGETS)


def cut_gzip(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def first_line_only(path: Path) -> None:
    text = gzip.decompress(path.read_bytes()).split(b"\n")
    path.write_bytes(text[0] + b'\n{"type":"host","evidence":{"host":"gpu01","outcome":"fine"}}\n')


def unknown_host(path: Path) -> None:
    text = gzip.decompress(path.read_bytes()).split(b"\n")
    path.write_bytes(text[0] + b'\n{"type":"host","evidence":{"host":"gpu99","outcome":"checked"}}\n')


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (cut_gzip, "cut or damaged"),
        (first_line_only, ":2: not a line of a recording"),
        (unknown_host, ":2: evidence of 'gpu99', which is none of its targets"),
        (lambda path: path.write_bytes(b" " * (65 << 20)), ":1: a line of more than 64 MiB"),
        (lambda path: path.write_bytes(b""), "not a recording of evidence"),
        (lambda path: path.write_bytes(b"\x00\xff" * 9), "not a line of JSON"),
        (lambda path: path.write_bytes(b"[" * 200_000), "not a line of JSON"),
        (lambda path: path.write_bytes(b'{"schema":"fleetcheck/run/1"}\n'), "not a recording of evidence"),
        (lambda path: path.write_bytes(b'{"schema":"fleetcheck/evidence/1"}\n'), "a damaged first line"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read: Is a directory"),
        (lambda path: path.unlink(), "cannot be read: No such file"),
    ],
)
def test_a_damaged_file_says_so_in_one_line(tmp_path: Path, spoil: object, says: str) -> None:
    path = tmp_path / "run.jsonl.gz"
    write(path)
    spoil(path)  # type: ignore[operator]
    with pytest.raises(InputError, match=says) as caught:
        list(recording.read(path).looks())
    assert len(str(caught.value).splitlines()) == 1
