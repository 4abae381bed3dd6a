"""Each way in which a peer can fail has its own outcome, stage and detail, and leaves no thread and no word."""

from __future__ import annotations

import os
import re
import socket
import threading
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from support import faults
from support.faults import FaultySsh, Listener
from support.limits import AMPLE, LONG
from support.sshd import NEEDS_SSHD, SSHD, Sshd, free_port, make_key

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Target
from fleetcheck.remote.reach import Reach
from fleetcheck.remote.settings import Limits, Settings

pytestmark = [pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD), pytest.mark.usefixtures("nothing_left")]

HOST_LIMITED = 3.0


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a host key, another one, and a user's key."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("host", "other", "user"):
        make_key(folder / name)
    return folder


def look(target: Target, limits: Limits = AMPLE, **settings: object) -> Evidence:
    """Look once; what the look started is gone when it returns, the fault's own server aside."""
    with Reach(Settings(limits=limits, ssh_config="none", **settings)) as reach:  # type: ignore[arg-type]
        evidence = reach.look(target)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("fleetcheck")]
    return evidence


def verdict(evidence: Evidence) -> tuple[str, str | None, str | None]:
    assert evidence.message and "\n" not in evidence.message and "\x1b" not in evidence.message
    return evidence.outcome, evidence.stage, evidence.detail


@pytest.mark.parametrize(
    ("serve", "expected"),
    [
        (faults.silent, ("timeout", "banner", None)),
        (faults.slow_banner, ("timeout", "banner", None)),
        (faults.banner_only, ("timeout", "kex", None)),
        (faults.http, ("unreachable", "banner", "not-ssh")),
        (faults.endless_line, ("unreachable", "banner", "not-ssh")),
        (faults.close_at_once, ("unreachable", "banner", "closed")),
        (faults.crowded, ("unreachable", "banner", "closed")),
        (faults.reset, ("unreachable", "kex", "reset")),
    ],
)
def test_before_the_key_exchange_ends(serve: object, expected: tuple[str, ...], keys: Path) -> None:
    limits = replace(AMPLE, banner=0.6 if expected[0] == "timeout" else LONG)
    with Listener(serve) as server:  # type: ignore[arg-type]
        evidence = look(server.target(identity_file=str(keys / "user"), known_hosts=os.devnull), limits)
    assert verdict(evidence) == expected
    assert evidence.address == "127.0.0.1"
    assert not evidence.parts


def test_http_is_named(keys: Path) -> None:
    with Listener(faults.http) as server:
        evidence = look(server.target(identity_file=str(keys / "user"), known_hosts=os.devnull))
    assert "HTTP/1.1 400 Bad Request" in (evidence.message or "")


def test_refused() -> None:
    evidence = look(Target(name="gone", address="127.0.0.1", port=free_port(), user="audit"))
    assert verdict(evidence) == ("unreachable", "connect", "refused")


def test_syn_dropped() -> None:
    with faults.syn_dropped() as port:
        evidence = look(
            Target(name="dropped", address="127.0.0.1", port=port, user="audit"), replace(AMPLE, connect=0.6)
        )
    assert verdict(evidence) == ("timeout", "connect", None)


def test_unknown_name() -> None:
    evidence = look(Target(name="no-such-host.invalid", user="audit"))
    assert evidence.outcome == "unreachable"
    assert evidence.stage == "resolve"
    # Without a name server the system cannot know that there is no such name.
    assert evidence.detail in ("unknown-name", "dns-failed")


def test_name_look_up_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        free.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    reach = Reach(Settings(limits=replace(AMPLE, connect=0.6), ssh_config="none"))
    evidence = reach.look(Target(name="slow.example", user="audit"))
    free.set()
    assert verdict(evidence) == ("unreachable", "resolve", "dns-timeout")


def ssh_target(server: FaultySsh, keys: Path, tmp_path: Path, **changes: str) -> Target:
    known = tmp_path / "known_hosts"
    known.write_text(server.known_hosts_line)
    return server.target(**({"identity_file": str(keys / "user"), "known_hosts": str(known)} | changes))


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("auth", ("timeout", "auth", None)),
        ("channel", ("timeout", "channel", None)),
        ("exec", ("timeout", "channel", None)),
    ],
)
def test_hangs_behind_the_key_exchange(
    stop: faults.Stop, expected: tuple[str, ...], keys: Path, tmp_path: Path
) -> None:
    limits = replace(AMPLE, **{str(expected[1]): 0.6})
    with FaultySsh(keys / "host", stop=stop) as server:
        assert verdict(look(ssh_target(server, keys, tmp_path), limits)) == expected


def test_command_that_never_answers_ends_at_the_host_limit(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", run=lambda channel: server.ended.wait() and None) as server:
        evidence = look(ssh_target(server, keys, tmp_path), replace(AMPLE, host=HOST_LIMITED))
    assert verdict(evidence) == ("timeout", "probe", "host-limit")


def test_run_limit(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", run=lambda channel: server.ended.wait() and None) as server:
        evidence = Reach(Settings(ssh_config="none")).look(ssh_target(server, keys, tmp_path), until=0.0)
    assert verdict(evidence) == ("timeout", "resolve", "run-limit")
    assert server.accepted == 0


def key_blob(path: Path) -> bytes:
    return paramiko.PKey.from_path(str(path)).asbytes()


def test_key_not_authorised_is_offered_once(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", welcome=[]) as server:
        evidence = look(ssh_target(server, keys, tmp_path))
    assert verdict(evidence) == ("auth-failed", "auth", "refused")
    assert server.offered == [key_blob(keys / "user")]
    assert len(server.after_kex) == 2  # the request for the service, and the key


def test_no_key(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host") as server:
        evidence = look(ssh_target(server, keys, tmp_path, identity_file=str(tmp_path / "absent")))
    assert verdict(evidence) == ("auth-failed", "auth", "no-key")
    assert "absent" in (evidence.message or "")


def test_encrypted_key_never_asks(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    make_key(tmp_path / "locked", passphrase="secret")
    with FaultySsh(keys / "host") as server:
        evidence = look(ssh_target(server, keys, tmp_path, identity_file=str(tmp_path / "locked")))
    assert verdict(evidence) == ("auth-failed", "auth", "encrypted-key")
    assert "ssh-add" in (evidence.message or "")
    assert server.offered == []


def test_key_that_is_none(keys: Path, tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("no key\n")
    with FaultySsh(keys / "host") as server:
        evidence = look(ssh_target(server, keys, tmp_path, identity_file=str(tmp_path / "junk")))
    assert verdict(evidence) == ("auth-failed", "auth", "unsupported-key")


def test_passwords_only(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", methods=("password",), welcome=[]) as server:
        evidence = look(ssh_target(server, keys, tmp_path))
    assert verdict(evidence) == ("auth-failed", "auth", "method")


def test_second_factor_wanted(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", methods=("publickey", "keyboard-interactive"), partial=True) as server:
        evidence = look(ssh_target(server, keys, tmp_path))
    assert verdict(evidence) == ("auth-failed", "auth", "partial")


def test_no_session_and_no_command(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", refuse_session=True) as server:
        assert verdict(look(ssh_target(server, keys, tmp_path))) == ("probe-error", "channel", "refused")
    with FaultySsh(keys / "host", run=None) as server:
        assert verdict(look(ssh_target(server, keys, tmp_path))) == ("probe-error", "channel", "refused")


def test_unknown_host_key_gets_nothing(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host") as server:
        known = tmp_path / "my hosts"
        known.write_text("")
        evidence = look(ssh_target(server, keys, tmp_path, known_hosts=str(known)))
        assert verdict(evidence) == ("host-key-unknown", "kex", "unknown")
        assert re.search(r"SHA256:[A-Za-z0-9+/]{43}", evidence.message or "")
        assert f"ssh-keyscan -p {server.port} 127.0.0.1 >> '{known}'" in (evidence.message or "")
        assert known.read_text() == ""
    assert server.offered == []
    assert server.after_kex == []


@pytest.mark.parametrize("accept_new", [False, True])
def test_changed_host_key_gets_nothing(accept_new: bool, keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host") as server:
        target = ssh_target(server, keys, tmp_path)
        other = (keys / "other.pub").read_text().split()[1]
        known = Path(str(target.known_hosts))
        known.write_text(f"[127.0.0.1]:{server.port} ssh-ed25519 {other}\n")
        evidence = look(target, accept_new=accept_new)
        assert verdict(evidence) == ("host-key-changed", "kex", "changed")
        assert f"ssh-keygen -R '[127.0.0.1]:{server.port}' -f {known}" in (evidence.message or "")
        assert known.read_text().count("\n") == 1
    assert server.offered == []
    assert server.after_kex == []


def test_revoked_host_key_gets_nothing(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host") as server:
        target = ssh_target(server, keys, tmp_path)
        known = Path(str(target.known_hosts))
        known.write_text(known.read_text() + "@revoked * " + " ".join(server.known_hosts_line.split()[1:]) + "\n")
        assert verdict(look(target, accept_new=True)) == ("host-key-changed", "kex", "revoked")
    assert server.after_kex == []


def test_host_known_by_its_authority_alone(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host") as server:
        target = ssh_target(server, keys, tmp_path)
        other = (keys / "other.pub").read_text().split()[1]
        Path(str(target.known_hosts)).write_text(f"@cert-authority [127.0.0.1]:* ssh-ed25519 {other}\n")
        assert verdict(look(target)) == ("host-key-unknown", "kex", "cert-authority")


def flood(channel: paramiko.Channel) -> None:
    """Answer without an end."""
    block = b"0" * 32768
    while True:
        channel.sendall(block)


def flood_stderr(channel: paramiko.Channel) -> None:
    """Complain without an end, and answer nothing."""
    block = b"0" * 32768
    while True:
        channel.sendall_stderr(block)


@pytest.mark.parametrize("run", [flood, flood_stderr])
def test_answer_without_an_end(run: object, keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", run=run) as server:  # type: ignore[arg-type]
        evidence = look(ssh_target(server, keys, tmp_path), max_bytes=1 << 18)
    assert verdict(evidence) == ("probe-error", "probe", "too-large")


def part(channel: paramiko.Channel, name: str) -> None:
    """Send one whole part, behind the marker that stands in the script."""
    script = b""
    while (found := re.search(rb"fleetcheck:[0-9a-f]{32}", script)) is None:
        script += channel.recv(1 << 16)
    import zlib

    payload = b'{"version": "0"}'
    channel.sendall(
        found[0]
        + b" %s %d %08x\n" % (name.encode(), len(payload), zlib.crc32(payload, zlib.crc32(name.encode())))
        + payload
        + b"\n"
    )


def cut(channel: paramiko.Channel) -> None:
    """End in the middle, with a status."""
    part(channel, "agent")
    channel.send_exit_status(0)


def lost(channel: paramiko.Channel) -> None:
    """Lose the connection in the middle."""
    part(channel, "agent")
    channel.get_transport().sock.shutdown(socket.SHUT_RDWR)


def silent_behind_a_part(channel: paramiko.Channel) -> None:
    """Say nothing more behind the first part, while the connection stands."""
    part(channel, "agent")
    while channel.recv(1 << 16):
        pass


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (cut, ("probe-error", "probe", "cut")),
        (lost, ("probe-error", "probe", "lost")),
        (silent_behind_a_part, ("timeout", "probe", "host-limit")),
    ],
)
def test_parts_that_arrived_are_kept(run: object, expected: tuple[str, ...], keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", run=run) as server:  # type: ignore[arg-type]
        evidence = look(
            ssh_target(server, keys, tmp_path),
            replace(AMPLE, host=HOST_LIMITED if expected[2] == "host-limit" else LONG),
        )
    assert verdict(evidence) == expected
    assert evidence.parts == {"agent": {"version": "0"}}


def lost_at_once(channel: paramiko.Channel) -> None:
    """Lose the connection when the script has begun to arrive."""
    channel.recv(1)
    channel.get_transport().sock.shutdown(socket.SHUT_RDWR)


def test_lost_before_the_first_part(keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", run=lost_at_once) as server:
        assert verdict(look(ssh_target(server, keys, tmp_path))) == ("probe-error", "probe", "lost")


def says(text: bytes, status: int) -> object:
    def run(channel: paramiko.Channel) -> None:
        channel.recv(1)
        channel.sendall_stderr(text)
        channel.send_exit_status(status)

    return run


@pytest.mark.parametrize(
    ("run", "sudo", "expected"),
    [
        (says(b"This account is currently not available.\n", 1), False, "login-shell"),
        (says(b"sudo: a password is required\n", 1), True, "sudo"),
        (says(b"\x1b[31mno\x1b[0m /bin/sh\n", 127), False, "exit-127"),
    ],
)
def test_command_that_did_not_run(run: object, sudo: bool, expected: str, keys: Path, tmp_path: Path) -> None:
    with FaultySsh(keys / "host", run=run) as server:  # type: ignore[arg-type]
        evidence = look(ssh_target(server, keys, tmp_path).model_copy(update={"sudo": sudo}))
    assert verdict(evidence) == ("probe-error", "probe", expected)


def test_wrong_user(tmp_path: Path) -> None:
    with Sshd() as sshd:
        evidence = look(sshd.target("host", user="nobody-such"))
        assert verdict(evidence) == ("auth-failed", "auth", "refused")
        assert sshd.wait_idle()
