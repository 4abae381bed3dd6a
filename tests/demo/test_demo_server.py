"""The embedded SSH server: real processes over real SSH, one key, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from support.sshd import wait_until

from fleetcheck.demo.server import ADDRESS, Door, SshServer


@pytest.fixture
def key() -> paramiko.ECDSAKey:
    return paramiko.ECDSAKey.generate()


@pytest.fixture
def server(key: paramiko.ECDSAKey) -> Iterator[SshServer]:
    before = set(threading.enumerate())
    with SshServer(key) as running:
        yield running
    assert wait_until(lambda: set(threading.enumerate()) <= before)


@pytest.fixture
def client(server: SshServer, key: paramiko.ECDSAKey, tmp_path: Path) -> Iterator[paramiko.SSHClient]:
    door = Door(paramiko.ECDSAKey.generate(), tmp_path, {"PATH": "/usr/bin:/bin", "GREETING": "hello"})
    with connect(server.open(door), key) as connected:
        yield connected


def connect(port: int, key: paramiko.PKey) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(ADDRESS, port, username="anyone", pkey=key, look_for_keys=False, allow_agent=False)
    return client


def test_bytes_pass_both_ways_and_the_exit_status_comes(client: paramiko.SSHClient) -> None:
    stdin, stdout, stderr = client.exec_command('cat; echo "$GREETING" >&2; exit 7')
    sent = b"line\n" * 200_000
    stdin.write(sent)
    stdin.channel.shutdown_write()
    assert stdout.read() == sent
    assert stderr.read() == b"hello\n"
    assert stdout.channel.recv_exit_status() == 7


def test_a_command_runs_in_the_home_of_its_host(client: paramiko.SSHClient, tmp_path: Path) -> None:
    _, stdout, _ = client.exec_command("pwd")
    assert stdout.read().decode().strip() == str(tmp_path)


def test_another_key_is_refused(server: SshServer, tmp_path: Path) -> None:
    port = server.open(Door(paramiko.ECDSAKey.generate(), tmp_path, {}))
    with pytest.raises(paramiko.AuthenticationException):
        connect(port, paramiko.ECDSAKey.generate())


def test_a_password_is_refused(server: SshServer, tmp_path: Path) -> None:
    port = server.open(Door(paramiko.ECDSAKey.generate(), tmp_path, {}))
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    with client, pytest.raises(paramiko.AuthenticationException):
        client.connect(ADDRESS, port, username="anyone", password="x", look_for_keys=False, allow_agent=False)


def test_a_shell_is_refused(client: paramiko.SSHClient) -> None:
    with pytest.raises(paramiko.SSHException):
        client.invoke_shell()


def test_the_end_of_the_channel_kills_what_runs_in_it(client: paramiko.SSHClient) -> None:
    _, stdout, _ = client.exec_command("sleep 600 & echo $! $$; wait")
    pids = [int(pid) for pid in stdout.readline().split()]
    assert all(alive(pid) for pid in pids)
    stdout.channel.close()
    assert wait_until(lambda: not any(alive(pid) for pid in pids))


def test_the_end_of_the_server_kills_what_runs_in_it(key: paramiko.ECDSAKey, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with SshServer(key) as server:
        port = server.open(Door(paramiko.ECDSAKey.generate(), tmp_path, {"PATH": "/usr/bin:/bin"}))
        client = connect(port, key)
        _, stdout, _ = client.exec_command("trap '' TERM HUP; echo $$; while :; do sleep 0.1; done")
        pid = int(stdout.readline())
        assert alive(pid)
    client.close()
    assert not alive(pid)
    assert wait_until(lambda: set(threading.enumerate()) <= before)


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
