"""Recording a new key: whole lines, one at a time, never over a changed key, threads and processes at once."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from test_hostkeys_index import blob, line

from fleetcheck.remote import hostkey_file
from fleetcheck.remote.hostkeys import HostKeyError, HostKeyIndex

KIND = "ssh-ed25519"


def test_the_line_is_the_one_that_ssh_would_write(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "known_hosts"
    index = HostKeyIndex.load([str(path)])
    assert index.record(str(path), "gpu1", 22, KIND, blob(1))
    assert index.record(str(path), "GPU2", 2222, KIND, blob(2))
    assert index.record(str(path), "gpu3", 2222, KIND, blob(3), alias="rack")
    assert path.read_text() == line("gpu1", 1) + line("[gpu2]:2222", 2) + line("rack", 3)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert index.lookup("gpu2", 2222).keys[0].line == 2
    assert HostKeyIndex.load([str(path)]).lookup("gpu1").verdict(blob(1)) == "known"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen (openssh-client)")
def test_a_hashed_line_is_found_by_ssh_keygen(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    HostKeyIndex.load([]).record(str(path), "gpu1", 2222, KIND, blob(1), hashed=True)
    assert "gpu1" not in path.read_text()
    command = ["ssh-keygen", "-F", "[gpu1]:2222", "-f", str(path)]
    assert b"found: line 1" in subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    assert HostKeyIndex.load([str(path)]).lookup("gpu1", 2222).verdict(blob(1)) == "known"


@pytest.mark.parametrize("before", ["", "\n", line("other", 9), line("other", 9).rstrip("\n"), "# no newline"])
def test_a_missing_newline_is_mended(tmp_path: Path, before: str) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(before)
    HostKeyIndex.load([str(path)]).record(str(path), "gpu1", 22, KIND, blob(1))
    glue = "" if not before or before.endswith("\n") else "\n"
    assert path.read_text() == before + glue + line("gpu1", 1)


def test_a_known_key_is_not_recorded_again(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(line("gpu*", 1))
    index = HostKeyIndex.load([str(path)])
    assert not index.record(str(path), "gpu1", 22, KIND, blob(1))
    assert path.read_text() == line("gpu*", 1)


@pytest.mark.parametrize("text", [line("gpu1", 1), line("gpu*", 1, "ssh-rsa"), "@revoked " + line("*", 2)])
@pytest.mark.parametrize("late", [False, True])
def test_a_changed_or_revoked_key_is_never_recorded(tmp_path: Path, text: str, late: bool) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("" if late else text)
    index = HostKeyIndex.load([str(path)])
    if late:  # another program has recorded it since the index was read
        path.write_text(text)
    with pytest.raises(HostKeyError, match="is not recorded"):
        index.record(str(path), "gpu1", 22, KIND, blob(2))
    assert path.read_text() == text


def test_a_key_known_by_another_file_of_the_index_is_guarded_too(tmp_path: Path) -> None:
    user, system = tmp_path / "user", tmp_path / "system"
    system.write_text(line("gpu1", 1))
    index = HostKeyIndex.load([str(user), str(system)])
    with pytest.raises(HostKeyError, match="changed"):
        index.record(str(user), "gpu1", 22, KIND, blob(2))


@pytest.mark.parametrize("host", ["gpu1 x", "gpu1\nevil", "a,b", "*", "!gpu1", "@revoked", "|1|a|b", "#gpu1"])
def test_a_name_that_would_mean_more_than_itself_is_refused(tmp_path: Path, host: str) -> None:
    path = tmp_path / "known_hosts"
    with pytest.raises(HostKeyError, match="cannot be recorded"):
        HostKeyIndex.load([]).record(str(path), host, 22, KIND, blob(1))
    assert not path.exists()


@pytest.mark.parametrize("bad", [b"", b"\0\0\0\x0bssh-ed25519", blob(1)[:-1], blob(1, "ssh-rsa")])
def test_a_key_that_is_none_is_refused(tmp_path: Path, bad: bytes) -> None:
    with pytest.raises(HostKeyError, match="cannot be recorded"):
        HostKeyIndex.load([]).record(str(tmp_path / "known_hosts"), "gpu1", 22, KIND, bad)


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    index = HostKeyIndex.load([])
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "file").touch()
    for path in (os.devnull, str(fifo), str(tmp_path), str(tmp_path / "file" / "known_hosts"), "a\0b"):
        with pytest.raises(HostKeyError, match="cannot record a host key in"):
            index.record(path, "gpu1", 22, KIND, blob(1))


def test_a_disk_that_fills_up_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A limit on the file's size cuts the write in the middle, as a full disk does."""
    path = tmp_path / "known_hosts"
    path.write_text(line("other", 9))
    program = f"""
import resource
from fleetcheck.remote.hostkeys import HostKeyError, HostKeyIndex
resource.setrlimit(resource.RLIMIT_FSIZE, ({path.stat().st_size + 10}, resource.RLIM_INFINITY))
try:
    HostKeyIndex.load([]).record({str(path)!r}, "gpu1", 22, {KIND!r}, {blob(1)!r})
except HostKeyError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert answer.stdout == f"cannot record a host key in {path}: {os.strerror(errno.ENOSPC)}\n"
    assert path.read_text() == line("other", 9)


def test_a_lock_that_is_held_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostkey_file, "LOCK_SECONDS", 0.1)
    path = tmp_path / "known_hosts"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(HostKeyError, match="locked"):
            HostKeyIndex.load([]).record(str(path), "gpu1", 22, KIND, blob(1))
    assert path.read_text() == ""


def _record(arguments: tuple[str, int]) -> str:
    """Record in a process or thread of its own: 20 hosts of its own, and one host that all see with other keys."""
    path, worker = arguments
    index = HostKeyIndex.load([path])
    for number in range(20):
        index.record(path, f"gpu{worker}-{number}", 22, KIND, blob(number))
    try:
        index.record(path, "contested", 22, KIND, blob(worker))
    except HostKeyError as error:
        return str(error)
    return "recorded"


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_many_at_once_lose_nothing_and_agree_on_the_first(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "known_hosts"
    spawn = multiprocessing.get_context("forkserver")
    pool: Executor = ThreadPoolExecutor(4) if kind == "threads" else ProcessPoolExecutor(4, mp_context=spawn)
    with pool:
        answers = list(pool.map(_record, [(str(path), worker) for worker in range(4)]))
    assert answers.count("recorded") == 1
    assert sum("changed" in answer for answer in answers) == 3
    index = HostKeyIndex.load([str(path)])
    assert index.notes == ()
    assert len(path.read_text().splitlines()) == 81
    names = [(f"gpu{worker}-{number}", number) for worker in range(4) for number in range(20)]
    assert all(index.lookup(name).verdict(blob(number)) == "known" for name, number in names)


def test_threads_share_one_index(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    index = HostKeyIndex.load([str(path)])

    def record(number: int) -> bool:
        return index.record(str(path), f"gpu{number % 50}", 22, KIND, blob(number % 50))

    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(record, range(200)))
    assert sum(added) == 50
    assert len(path.read_text().splitlines()) == 50
    assert all(index.lookup(f"gpu{number}").verdict(blob(number)) == "known" for number in range(50))
