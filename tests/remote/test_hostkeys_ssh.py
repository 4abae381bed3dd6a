"""The index against ssh itself, before a real sshd: what ssh trusts is known here, what it refuses is not."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sshd import NEEDS_SSHD, SSHD, Sshd, make_key

from fleetcheck.remote.hostkey_advice import remove_command, scan_command
from fleetcheck.remote.hostkeys import HostKeyIndex

pytestmark = [
    pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD),
    pytest.mark.skipif(not all(map(shutil.which, ("ssh", "ssh-keyscan"))), reason="needs ssh and ssh-keyscan"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Sshd]:
    with Sshd() as sshd:
        make_key(sshd.folder / "other")
        make_key(sshd.folder / "ecdsa", "ecdsa")
        yield sshd


def public(path: Path) -> str:
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


def ssh_trusts(server: Sshd, known_hosts: Path, *options: str) -> bool:
    """Return whether ssh, which takes no unknown key, gets through to the server."""
    command = ["ssh", "-F", os.devnull, "-i", str(server.key), "-p", str(server.port), "-l", server.user]
    for option in (
        "BatchMode=yes", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "IdentityAgent=none",
        f"UserKnownHostsFile={known_hosts}", f"GlobalKnownHostsFile={os.devnull}", *options,
    ):  # fmt: skip
        command += ["-o", option]
    answer = subprocess.run(
        [*command, "127.0.0.1", "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert answer.returncode == 0 or "host key" in answer.stderr.lower(), answer.stderr
    return answer.returncode == 0


CASES = [
    ("{at} {own}", "known"),
    ("127.0.0.1 {own}", "known"),
    ("127.0.0.1 {other}", "unknown"),
    ("127.0.0.1 {ecdsa}", "unknown"),
    ("{at} {other}", "changed"),
    ("{at} {ecdsa}", "changed"),
    ("{at} {other}\n127.0.0.1 {own}", "changed"),
    ("{at} {other}\n{at} {own}", "known"),
    ("[127.0.0.*]:* {own}", "known"),
    ("127.0.0.*,!127.0.0.1 {own}", "unknown"),
    ("{at} {own}\n@revoked * {own}", "revoked"),
    ("{at} {own}\n@revoked * {other}", "known"),
    ("127.0.0.1 {own}\n@revoked 127.0.0.1 {own}", "revoked"),
    ("@cert-authority * {other}", "unknown"),
]


@pytest.mark.parametrize(("text", "verdict"), CASES)
def test_ssh_judges_alike(server: Sshd, tmp_path: Path, text: str, verdict: str) -> None:
    at = f"[127.0.0.1]:{server.port}"
    own = public(server.host_key)
    other, ecdsa = public(server.folder / "other"), public(server.folder / "ecdsa")
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(text.format(at=at, own=own, other=other, ecdsa=ecdsa) + "\n")
    known = HostKeyIndex.load([str(known_hosts)]).lookup("127.0.0.1", server.port)
    assert known.verdict(base64.b64decode(own.split()[1])) == verdict
    assert ssh_trusts(server, known_hosts) == (verdict == "known")


def test_host_key_alias_and_revoked_host_keys(server: Sshd, tmp_path: Path) -> None:
    own = public(server.host_key)
    known_hosts, revoked = tmp_path / "known_hosts", tmp_path / "revoked"
    known_hosts.write_text(f"rack {own}\n")
    revoked.write_text(f"{own}\n")
    index, shown = HostKeyIndex.load([str(known_hosts)]), base64.b64decode(own.split()[1])
    assert ssh_trusts(server, known_hosts, "HostKeyAlias=rack")
    assert index.lookup("127.0.0.1", server.port, "rack").verdict(shown) == "known"
    assert not ssh_trusts(server, known_hosts, "HostKeyAlias=rack", f"RevokedHostKeys={revoked}")
    assert index.lookup("127.0.0.1", server.port, "rack", str(revoked)).verdict(shown) == "revoked"


@pytest.mark.parametrize("alias", [None, "rack", "a&b/c"])
def test_the_commands_that_mend_it_do(server: Sshd, tmp_path: Path, alias: str | None) -> None:
    """A changed key, both commands pasted, and the host is known; the file's name needs quotes."""
    known_hosts = tmp_path / "it's known"
    known_hosts.write_text(f"{alias or f'[127.0.0.1]:{server.port}'} {public(server.folder / 'other')}\n")
    shown = base64.b64decode(public(server.host_key).split()[1])
    place = ("127.0.0.1", server.port)
    assert HostKeyIndex.load([str(known_hosts)]).lookup(*place, alias).verdict(shown) == "changed"
    for command in (
        remove_command(*place, str(known_hosts), alias),
        scan_command(*place, str(known_hosts), alias),
    ):
        subprocess.run(["sh", "-c", command], check=True, capture_output=True, timeout=60)
    assert HostKeyIndex.load([str(known_hosts)]).lookup(*place, alias).verdict(shown) == "known"


def test_the_commands_read_as_ssh_users_know_them() -> None:
    assert remove_command("gpu1", 22, "/k") == "ssh-keygen -R gpu1 -f /k"
    assert remove_command("gpu1", 2222, "/k") == "ssh-keygen -R '[gpu1]:2222' -f /k"
    assert scan_command("gpu1", 22, "/k") == "ssh-keyscan gpu1 >> /k"
    assert scan_command("gpu1", 2222, "/a b") == "ssh-keyscan -p 2222 gpu1 >> '/a b'"
    assert scan_command("gpu1", 2222, "/k", gateway="hop") == "ssh hop 'ssh-keyscan -p 2222 gpu1' >> /k"
