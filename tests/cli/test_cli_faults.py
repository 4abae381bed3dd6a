"""What a user's machine may hold: random bytes, folders that are gone, names that are no text, full disks."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.program import PROGRAM, call, environ, look, recording

from fleetcheck.cli.main import run


@pytest.fixture(scope="module")
def site() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        recording(home / "e", [look("a"), look("b", 7)])
        for form in ("json", "jsonl"):
            (home / form).write_text(call(home, "replay", "e", "--format", form).stdout)
        (home / "yaml").write_text("defaults: {user: x}\ngroups:\n  g:\n    hosts: gpu[01-03]\n    port: 22\n")
        (home / "kh").write_text("h ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJzpAV\n|1|F1E=|39= ssh-rsa AAAA\n")
        (home / "ssh").write_text("Host a\n HostName 127.0.0.1\n Port 1\nMatch host b\n ProxyJump c\n")
        yield home


KH = ("--ssh-config", "none", "--no-history", "--limit", "run=0.4")
READS: list[tuple[str, list[list[str]]]] = [
    ("yaml", [["hosts", "-i"], ["hosts", "--format", "yaml", "-i"]]),
    ("json", [["report"], ["report", "--format", "csv"], ["show", "a"], ["compare", "a", "b", "--run"]]),
    ("jsonl", [["report", "--format", "markdown"], ["report"]]),
    ("e", [["replay"], ["baseline", "a", "--run"], ["compare", "a", "b", "--run"]]),
    ("ssh", [["hosts", "all", "-i"]]),
    # The run ends before a host that refuses has its second chance, a second later.
    ("kh", [["audit", "-q", "-i", "127.0.0.1", *KH, "--known-hosts"]]),
]  # fmt: skip
PIECES = [
    b"null",
    b"[]",
    b"{}",
    b"-1",
    b"1e999",
    b"NaN",
    b'"\\ud800"',
    b"\x00",
    b"\xff",
    b"\xe2\x80\xa8",
    b'"',
    b":",
]
PIECES += [b"true", b"9" * 50, b"\n", b"\\", b"1.5", b"", b"\x1b[2J"]


def spoiled(data: st.DataObject, whole: bytes) -> bytes:
    """Return bytes that are random, or those of a file with pieces put in and taken out."""
    if data.draw(st.integers(0, 9)) == 0:
        return data.draw(st.binary(max_size=200))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole)))
        whole = whole[:at] + data.draw(st.sampled_from(PIECES)) + whole[at + data.draw(st.integers(0, 20)) :]
    return whole


@pytest.mark.parametrize(("name", "commands"), READS, ids=[name for name, _ in READS])
def test_no_file_makes_an_internal_error(site: Path, name: str, commands: list[list[str]]) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data(), st.sampled_from(commands))
    def spoil(data: st.DataObject, command: list[str]) -> None:
        path = site / "spoiled"
        path.write_bytes(spoiled(data, (site / name).read_bytes()))
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = run([*command, str(path)])
        assert code in (0, 1, 2, 3, 4, 130)
        assert "internal error" not in said.getvalue()
        assert said.getvalue().replace("\n", "").isprintable()

    spoil()


def changed(site: Path, name: str, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """Return a copy of a file of JSON lines with its lines changed."""
    lines = [json.loads(line) for line in (site / name).read_text().splitlines()]
    change(lines)
    path = site / f"changed-{name}"
    path.write_text("".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines))
    return path


def test_a_recording_that_began_at_no_time(site: Path) -> None:
    path = changed(site, "e", lambda lines: lines[0]["run"].update(started="yesterday"))
    for args in (["replay", path], ["compare", "a", "b", "--run", path], ["baseline", "a", "--run", path]):
        done = call(site, *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"{path}:1: a damaged first line (")


def test_a_finding_of_no_host_that_can_be(site: Path) -> None:
    def elsewhere(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["type"] == "finding":
                line["host"] = ["a"]

    path = changed(site, "jsonl", elsewhere)
    done = call(site, "report", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not a line of a run (type 'finding')" in done.stderr


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"b\xff.yaml")
    (tmp_path / name).write_text("hosts: {g1: }\n")
    for source in (name, os.fsdecode(b"gpu\xff")):
        for command in ("hosts", "audit"):
            done = call(tmp_path, command, "-i", source)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr.endswith("\\udcff.yaml: a name that is not UTF-8; rename it\n") or source != name
    folder = tmp_path / os.fsdecode(b"d\xff")
    folder.mkdir()
    (folder / "site.yaml").write_text("hosts: {g1: {identity_file: k}}\n")
    done = call(folder, "hosts", "-i", "site.yaml")
    assert (done.returncode, done.stderr.count("\n"), "internal" in done.stderr) == (2, 1, False)


@pytest.mark.parametrize(
    "args", [["hosts", "-i", "-"], ["replay", "{site}/e", "--output", "json:x"], ["init", "g1"]]
)
def test_a_current_folder_that_is_gone(site: Path, tmp_path: Path, args: list[str]) -> None:
    shell = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", *PROGRAM]
    shell += [arg.format(site=site) for arg in args]
    done = subprocess.run(
        shell, input="hosts: {a: {identity_file: k}}\n", env=environ(tmp_path), cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fleetcheck: the current folder is gone; change to one that is there\n"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root, to mount a small disk")
def test_a_full_disk(site: Path, tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        with contextlib.suppress(OSError), (tmp_path / "full").open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
        for form in ("table", "json", "csv", "prometheus"):
            done = call(site, "replay", "e", "-q", "--output", f"{form}:{tmp_path}/out.prom")
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == f"fleetcheck: {tmp_path}/out.prom: cannot be written: No space left on device\n"
        done = call(site, "audit", "-i", "127.0.0.1", "-q", "--ssh-config", "none", "--db", tmp_path / "db")
        assert (done.returncode, "the disk is full" in done.stderr, "internal" in done.stderr) == (2, True, False)
        assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]
        # A cache that cannot be written is no error.
        assert call(site, "hosts", "-i", "yaml", XDG_CACHE_HOME=str(tmp_path)).returncode == 0
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_without_a_home(site: Path) -> None:
    for home in ({}, {"HOME": ""}, {"HOME": "/nonexistent"}, {"HOME": "/proc/nowhere"}):
        environment = {"PATH": os.environ["PATH"], **home}
        done = subprocess.run(
            [*PROGRAM, "hosts", "-i", "yaml"],
            env=environment,
            cwd=site,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
