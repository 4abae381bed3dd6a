"""Looks at a real sshd: keys, agents, certificates, host keys, login shells, and what is left on the host."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import faults
from support.sshd import NEEDS_SSHD, SSHD, Sshd, descendants, make_key, wait_until

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Target
from fleetcheck.remote.reach import Reach
from fleetcheck.remote.settings import Limits, Settings

pytestmark = pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD)


@pytest.fixture(autouse=True)
def nothing_printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with Sshd(host_keys=("ed25519", "ecdsa", "rsa")) as daemon:
        yield daemon


def look(target: Target, ssh_config: str = "none", **settings: object) -> Evidence:
    with Reach(Settings(ssh_config=ssh_config, **settings)) as reach:  # type: ignore[arg-type]
        return reach.look(target)


def checked(evidence: Evidence) -> bool:
    assert evidence.outcome == "checked", evidence.message
    assert evidence.stage is None and evidence.detail is None and evidence.message is None
    return {"agent", "system", "venvs", "smi", "end"} <= evidence.parts.keys()


def test_checked(sshd: Sshd) -> None:
    before = set(threading.enumerate())
    evidence = look(sshd.target("gpu01", venvs=()))
    assert checked(evidence)
    assert (evidence.host, evidence.address, evidence.attempts) == ("gpu01", "127.0.0.1", 1)
    assert evidence.parts["agent"]["user"] == sshd.user
    assert wait_until(lambda: set(threading.enumerate()) <= before)
    assert sshd.wait_idle()


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_server_is_asked_for_the_key_that_is_known(kind: str, sshd: Sshd, tmp_path: Path) -> None:
    lines = sshd.known_hosts.read_text().splitlines(keepends=True)
    known = tmp_path / "known_hosts"
    known.write_text("".join(line for line in lines if kind in line))
    assert checked(look(sshd.target("host", known_hosts=str(known))))


def test_second_known_key_of_one_type(sshd: Sshd, tmp_path: Path) -> None:
    make_key(tmp_path / "old")
    old = (tmp_path / "old.pub").read_text().split()[1]
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} ssh-ed25519 {old}\n" + sshd.known_hosts.read_text())
    assert checked(look(sshd.target("host", known_hosts=str(known))))


def test_new_host_key_is_recorded_once(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "deep" / "known_hosts"
    target = sshd.target("host", known_hosts=str(known))
    assert look(target).outcome == "host-key-unknown"
    assert not known.exists()
    with Reach(Settings(ssh_config="none", accept_new=True)) as reach:
        assert checked(reach.look(target))
        assert checked(reach.look(target))
    assert known.read_text().count("\n") == 1
    assert stat.S_IMODE(known.stat().st_mode) == 0o600
    assert checked(look(target))


def test_new_host_key_is_recorded_in_the_state_folder_where_the_config_keeps_none(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    target = sshd.target("host", known_hosts=os.devnull)
    assert checked(look(target, accept_new=True))
    assert (tmp_path / "fleetcheck" / "known_hosts").read_text().startswith(f"[127.0.0.1]:{sshd.port} ")


def test_revoked_host_keys_of_the_config(sshd: Sshd, tmp_path: Path) -> None:
    listed = tmp_path / "revoked"
    file = config(tmp_path / "config", f"RevokedHostKeys {listed}")
    assert look(sshd.target("host"), file).detail == "revocation-list"
    other = make_key(tmp_path / "other")
    listed.write_text(Path(f"{other}.pub").read_text())
    assert checked(look(sshd.target("host"), file))
    listed.write_text("# gone\n" + Path(f"{sshd.host_key}.pub").read_text())
    evidence = look(sshd.target("host"), file)
    assert (evidence.outcome, evidence.detail) == ("host-key-changed", "revoked")
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(listed), f"{other}.pub"], check=True, timeout=60)
    assert look(sshd.target("host"), file).detail == "revocation-list"


def test_new_host_key_is_hashed_where_the_config_says_so(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    file = config(tmp_path / "config", "HashKnownHosts yes")
    assert checked(look(sshd.target("host", known_hosts=str(known)), file, accept_new=True))
    assert known.read_text().startswith("|1|")
    assert checked(look(sshd.target("host", known_hosts=str(known)), file))


@pytest.mark.parametrize(("kind", "bits"), [("ecdsa", 384), ("rsa", 2048)])
def test_kinds_of_user_keys(kind: str, bits: int, sshd: Sshd, tmp_path: Path) -> None:
    key = make_key(tmp_path / "key", kind, bits=bits)
    with authorised(sshd, key):
        assert checked(look(sshd.target("host", identity_file=str(key))))


@contextlib.contextmanager
def authorised(sshd: Sshd, *keys: Path) -> Iterator[None]:
    """Let in whoever holds one of ``keys``, and no other."""
    before = sshd.authorized_keys.read_text()
    sshd.authorized_keys.write_text("".join(Path(f"{key}.pub").read_text() for key in keys))
    try:
        yield
    finally:
        sshd.authorized_keys.write_text(before)


def config(path: Path, *lines: str) -> str:
    path.write_text("Host *\n" + "".join(f"  {line}\n" for line in lines))
    return str(path)


def test_right_key_among_many(sshd: Sshd, tmp_path: Path) -> None:
    wrong = [make_key(tmp_path / f"wrong{number}") for number in range(4)]
    file = config(tmp_path / "config", *(f"IdentityFile {key}" for key in wrong), f"IdentityFile {sshd.key}")
    with Reach(Settings(ssh_config=file)) as reach:
        for _ in range(2):
            assert checked(reach.look(sshd.target("host", identity_file=None)))
    failed = sshd.log.read_text().count("Failed publickey")
    assert failed == 4, "the second look begins with the key that the first found"


def test_more_keys_than_the_server_allows(sshd: Sshd, tmp_path: Path) -> None:
    wrong = [make_key(tmp_path / f"wrong{number}") for number in range(8)]
    file = config(tmp_path / "config", *(f"IdentityFile {key}" for key in wrong))
    evidence = look(sshd.target("host", identity_file=None), file)
    assert (evidence.outcome, evidence.detail) == ("auth-failed", "refused")
    assert f" with all 5 keys: {', '.join(map(str, wrong[:5]))}; add the public key " in str(evidence.message)


def test_a_refusal_names_the_key(sshd: Sshd, tmp_path: Path) -> None:
    wrong = make_key(tmp_path / "wrong")
    evidence = look(sshd.target("host", identity_file=str(wrong)))
    assert f" with its key {wrong}; add the public key to its authorized_keys" in str(evidence.message)


def test_certificate(tmp_path: Path) -> None:
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
    user = pwd.getpwuid(os.geteuid()).pw_name
    command = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", user, f"{key}.pub"]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    keys = tmp_path / "authorities"
    keys.write_text(Path(f"{authority}.pub").read_text())
    tmp_path.chmod(0o755)
    with Sshd(options=[f"TrustedUserCAKeys {keys}"]) as sshd:
        assert checked(look(sshd.target("host", identity_file=str(key))))
        certificate = tmp_path / "elsewhere.pub"
        Path(f"{key}-cert.pub").rename(certificate)
        file = config(tmp_path / "config", f"IdentityFile {key}", f"CertificateFile {certificate}")
        assert checked(look(sshd.target("host", identity_file=None), file))
        certificate.unlink()
        assert look(sshd.target("host", identity_file=str(key))).detail == "refused"


def test_certificate_of_the_config_for_the_key_of_the_inventory(tmp_path: Path) -> None:
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
    user = pwd.getpwuid(os.geteuid()).pw_name
    command = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", user, f"{key}.pub"]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    certificate = tmp_path / "elsewhere.pub"
    Path(f"{key}-cert.pub").rename(certificate)
    file = config(tmp_path / "config", f"CertificateFile {certificate}")
    tmp_path.chmod(0o755)
    with Sshd(options=[f"TrustedUserCAKeys {authority}.pub"]) as sshd:
        assert checked(look(sshd.target("host", identity_file=str(key)), file))
        # A certificate of another key is not offered with this one.
        assert checked(look(sshd.target("host"), file))


def test_broken_lines_of_known_hosts_are_noted_once(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("gpu7 ssh-ed25519 AAAA\n" + sshd.known_hosts.read_text())
    target = sshd.target("host", known_hosts=str(known), venvs=())
    with Reach(Settings(ssh_config="none")) as reach:
        notes = [reach.look(target).notes for _ in range(2)]
    assert notes == [(f"{known}:1: skipped: the key is not a whole ssh-ed25519 key",), ()]


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a real ssh-agent."""
    path = tmp_path_factory.mktemp("agent") / "socket"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        assert wait_until(path.exists)
        yield path
    finally:
        process.kill()
        process.wait()


def ssh_add(agent: Path, key: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True, timeout=60, stdin=subprocess.DEVNULL)


def test_key_that_only_the_agent_holds(
    sshd: Sshd, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    monkeypatch.setenv("HOME", str(tmp_path))
    key = make_key(tmp_path / "key")
    ssh_add(agent, key)
    key.unlink()
    with authorised(sshd, key):
        # The public half names the key, as for ssh.
        assert checked(look(sshd.target("host", identity_file=str(key))))
        file = config(tmp_path / "config", "IdentityFile none", f"IdentityAgent {agent}")
        monkeypatch.delenv("SSH_AUTH_SOCK")
        assert checked(look(sshd.target("host", identity_file=None), file))


def test_a_refusal_names_keys_of_the_agent_by_their_fingerprints(
    sshd: Sshd, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    own, other = make_key(tmp_path / "own"), make_key(tmp_path / "other")
    for key in (own, other):
        ssh_add(agent, key)
    listing = subprocess.run(
        ["ssh-keygen", "-lf", str(other)], check=True, timeout=60, capture_output=True, text=True
    ).stdout
    file = config(tmp_path / "config", f"IdentityFile {own}")
    message = str(look(sshd.target("host", identity_file=None), file).message)
    assert f" with all 2 keys: {own}, {listing.split()[1]} of the agent; add " in message


def test_identities_only_keeps_other_keys_of_the_agent_back(
    sshd: Sshd, agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    other = make_key(tmp_path / "other")
    ssh_add(agent, sshd.key)
    file = config(tmp_path / "config", f"IdentityFile {other}", "IdentitiesOnly yes")
    assert look(sshd.target("host", identity_file=None), file).detail == "refused"
    file = config(tmp_path / "config", f"IdentityFile {other}")
    assert checked(look(sshd.target("host", identity_file=None), file))


def test_agent_that_never_answers(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "socket"))
        deaf.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "socket"))
        evidence = look(sshd.target("host", identity_file=str(tmp_path / "none")), limits=Limits(auth=0.5))
    assert evidence.outcome in ("auth-failed", "timeout")
    assert evidence.stage == "auth"


@pytest.mark.parametrize("shell", ["bash", "dash", "fish", "tcsh", "nologin"])
def test_login_shells(shell: str) -> None:
    user = f"fleetcheck-{shell}"
    try:
        pwd.getpwnam(user)
    except KeyError:
        pytest.skip(f"needs the user {user}")
    if os.geteuid() != 0:
        pytest.skip("needs root, for another user's session")
    with Sshd(users=[user]) as sshd:
        evidence = look(sshd.target("host", user=user, venvs=()))
        if shell == "nologin":
            assert (evidence.outcome, evidence.stage, evidence.detail) == ("probe-error", "probe", "login-shell")
        else:
            assert checked(evidence)
        assert sshd.wait_idle()


def test_nothing_is_left_on_the_host_when_the_limit_passes(tmp_path: Path) -> None:
    hang = tmp_path / "nvidia-smi"
    hang.write_text("#!/bin/sh\ntrap '' TERM HUP\nwhile :; do sleep 1; done\n")
    hang.chmod(0o755)
    tmp_path.chmod(0o755)
    path = f"{tmp_path}:/usr/local/bin:/usr/bin:/bin"
    with Sshd(environment={"PATH": path}) as sshd:
        with contextlib.closing(Reach(Settings(ssh_config="none", limits=Limits(host=60)))) as reach:
            answers: list[Evidence] = []
            thread = threading.Thread(target=lambda: answers.append(reach.look(sshd.target("host", venvs=()))))
            thread.start()
            assert wait_until(lambda: runs(sshd, str(hang)))
            reach.abort()
            thread.join(10)
        assert [(answer.outcome, answer.detail) for answer in answers] == [("timeout", "interrupted")]
        assert "system" in answers[0].parts
        assert sshd.wait_idle()


def test_a_look_that_begins_after_the_end_ends_as_it_begins() -> None:
    with Sshd() as sshd, contextlib.closing(Reach(Settings(ssh_config="none"))) as reach:
        target = sshd.target("host", venvs=())
        assert reach.look(target).outcome == "checked"
        reach.end()
        late = reach.look(target)
        assert (late.outcome, late.stage, late.detail) == ("timeout", "queue", "interrupted")
        reach.begin()
        assert reach.look(target).outcome == "checked"


def runs(sshd: Sshd, word: str) -> bool:
    for pid in sshd.sessions():
        with contextlib.suppress(OSError):
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
    return False


def test_session_killed_on_the_host(sshd: Sshd, tmp_path: Path) -> None:
    with faults.Listener(faults.relay(sshd.port)) as server:
        known = tmp_path / "known_hosts"
        known.write_text(sshd.known_hosts_lines(server.port))
        evidence = look(sshd.target("host", port=server.port, known_hosts=str(known)))
        assert checked(evidence)
    assert sshd.wait_idle()
    with Sshd(options=["ForceCommand kill -9 $$"]) as daemon:
        evidence = look(daemon.target("host"))
        assert (evidence.outcome, evidence.stage, evidence.detail) == ("probe-error", "probe", "lost")


def test_sudo(sshd: Sshd) -> None:
    evidence = look(sshd.target("host", sudo=True, venvs=()))
    if evidence.outcome == "checked":
        assert evidence.parts["agent"]["uid"] == 0
    else:
        assert (evidence.outcome, evidence.stage) == ("probe-error", "probe")
        assert evidence.detail in ("sudo", "exit-127")


def test_descendants_sees_grandchildren() -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True)
    try:
        assert wait_until(lambda: len(descendants(os.getpid())) >= 2)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
