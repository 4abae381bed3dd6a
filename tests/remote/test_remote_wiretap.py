"""What goes over the wire to a host that is not trusted, byte by byte; and hosts that send without an end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faults import Listener
from support.limits import AMPLE
from support.sshd import NEEDS_SSHD, SSHD, Sshd, make_key, wait_until

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Target
from fleetcheck.remote.reach import Reach
from fleetcheck.remote.settings import Settings

pytestmark = pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD)

KEXINIT, NEWKEYS = 20, 21
ECDH_INIT = 30
OUTPUT = 400_000_000


def look(target: Target, **settings: object) -> Evidence:
    with Reach(Settings(ssh_config="none", limits=AMPLE, **settings)) as reach:  # type: ignore[arg-type]
        return reach.look(target)


def tapped(port: int, heard: bytearray) -> Callable[[socket.socket, threading.Event], None]:
    """Return a server that passes bytes on to ``port`` and keeps those of the client."""

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        with socket.create_connection(("127.0.0.1", port)) as onward:
            back = threading.Thread(target=pump, args=(onward, connection, bytearray()), daemon=True)
            back.start()
            pump(connection, onward, heard)
            back.join(10)

    return serve


def pump(source: socket.socket, sink: socket.socket, heard: bytearray) -> None:
    try:
        while data := source.recv(1 << 16):
            heard += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def plain_packets(heard: bytes) -> tuple[list[int], bytes]:
    """Return the types of the messages up to the client's NEWKEYS (RFC 4253 §6), and all bytes behind it."""
    banner, _, rest = heard.partition(b"\r\n")
    assert banner.startswith(b"SSH-2.0-")
    kinds: list[int] = []
    while rest and (not kinds or kinds[-1] != NEWKEYS):
        length = int.from_bytes(rest[:4], "big")
        assert 12 <= length <= 35000 and len(rest) >= 4 + length, "a packet that is not whole"
        kinds.append(rest[5])
        rest = rest[4 + length :]
    return kinds, rest


@pytest.mark.parametrize("accept_new", [False, True])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{name} {other}\n", ("host-key-changed", "changed")),
        ("{name} {shown}\n@revoked * {shown}\n", ("host-key-changed", "revoked")),
        ("@cert-authority {name} {other}\n", ("host-key-unknown", "cert-authority")),
    ],
)
def test_nothing_follows_the_key_exchange(
    line: str, expected: tuple[str, str], accept_new: bool, sshd: Sshd, tmp_path: Path
) -> None:
    other = " ".join(Path(f"{make_key(tmp_path / 'other')}.pub").read_text().split()[:2])
    shown = " ".join(Path(f"{sshd.host_key}.pub").read_text().split()[:2])
    heard = bytearray()
    known = tmp_path / "known_hosts"
    with Listener(tapped(sshd.port, heard)) as server:
        known.write_text(line.format(name=f"[127.0.0.1]:{server.port}", other=other, shown=shown))
        evidence = look(sshd.target("host", port=server.port, known_hosts=str(known)), accept_new=accept_new)
    assert (evidence.outcome, evidence.detail) == expected
    assert plain_packets(bytes(heard)) == ([KEXINIT, ECDH_INIT, NEWKEYS], b"")
    assert known.read_text() == line.format(name=f"[127.0.0.1]:{server.port}", other=other, shown=shown)


def test_a_stranger_hears_nothing_either(sshd: Sshd) -> None:
    heard = bytearray()
    with Listener(tapped(sshd.port, heard)) as server:
        evidence = look(sshd.target("host", port=server.port, known_hosts=os.devnull))
    assert (evidence.outcome, evidence.detail) == ("host-key-unknown", "unknown")
    assert plain_packets(bytes(heard)) == ([KEXINIT, ECDH_INIT, NEWKEYS], b"")


def test_the_tap_hears_what_a_trusted_host_is_told(sshd: Sshd, tmp_path: Path) -> None:
    heard = bytearray()
    known = tmp_path / "known_hosts"
    with Listener(tapped(sshd.port, heard)) as server:
        known.write_text(sshd.known_hosts_lines(server.port))
        evidence = look(sshd.target("host", port=server.port, known_hosts=str(known), venvs=()))
    assert evidence.outcome == "checked", evidence.message
    kinds, rest = plain_packets(bytes(heard))
    assert kinds == [KEXINIT, ECDH_INIT, NEWKEYS] and len(rest) > 50_000


@pytest.mark.parametrize("redirected", ["", " >&2"])
def test_four_hundred_megabytes(redirected: str) -> None:
    with Sshd(options=[f"ForceCommand head -c {OUTPUT} /dev/zero{redirected}"]) as daemon:
        evidence = look(daemon.target("host"))
        assert (evidence.outcome, evidence.stage, evidence.detail) == ("probe-error", "probe", "too-large")
        assert daemon.wait_idle()


def test_four_hundred_megabytes_behind_a_real_answer(tmp_path: Path) -> None:
    """What arrived before the flood is kept: the agent's first part, sent by the agent itself."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nexec head -c {OUTPUT} /dev/zero\n")
    tool.chmod(0o755)
    with Sshd(environment={"PATH": f"{tmp_path}:/usr/bin:/bin"}) as daemon:
        evidence = look(daemon.target("host", venvs=()))
        # The agent itself bounds what a program says; the host is judged on it.
        assert evidence.outcome == "checked", evidence.message
        assert evidence.parts["smi"]["query"]["call"]["truncated"]
        assert wait_until(lambda: not daemon.sessions())
