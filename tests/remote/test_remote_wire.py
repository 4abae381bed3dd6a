"""Addresses and sockets: several addresses within one limit, and a wire that can be taken away."""

from __future__ import annotations

import socket
import threading

import pytest
from support import faults
from support.faults import Listener

from fleetcheck.remote.failures import LookError, Place
from fleetcheck.remote.watchdog import Attempt, Watchdog
from fleetcheck.remote.wire import Address, connect, resolve, socket_wire

PLACE = Place("host.example", 22)


def at(port: int) -> Address:
    return socket.AF_INET, ("127.0.0.1", port)


def test_silent_address_does_not_hold_up_the_next() -> None:
    with (
        faults.syn_dropped() as dead,
        Listener(faults.silent) as server,
        Attempt(Watchdog(), 60) as attempt,
        connect(attempt, PLACE, [at(dead), at(server.port)], 30) as connected,
    ):
        assert connected.getpeername()[1] == server.port
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_first_error_is_told_where_no_address_answers() -> None:
    with faults.syn_dropped() as dead, Attempt(Watchdog(), 60) as attempt:
        with pytest.raises(LookError) as caught:
            connect(attempt, PLACE, [at(dead)] * 2, 0.6)
        assert (caught.value.outcome, caught.value.stage) == ("timeout", "connect")
        with pytest.raises(LookError) as caught:
            connect(attempt, PLACE, [at(1), at(1)], 5)
        assert caught.value.detail == "refused"


def test_aborted_attempt_stops_connecting() -> None:
    with faults.syn_dropped() as dead, Attempt(Watchdog(), 60) as attempt:
        attempt.enter("connect", 50)
        threading.Timer(0.1, attempt.abort, ["interrupted"]).start()
        with pytest.raises(LookError) as caught:
            connect(attempt, PLACE, [at(dead)], 50)
        assert caught.value.detail == "interrupted"


def test_literal_addresses_are_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "getaddrinfo")
    with Attempt(Watchdog(), 60) as attempt:
        assert resolve(attempt, "127.0.0.1", 22, 5) == [(socket.AF_INET, ("127.0.0.1", 22))]
        assert resolve(attempt, "::1", 22, 5) == [(socket.AF_INET6, ("::1", 22, 0, 0))]


def test_families_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    rows = [(six, 1, 6, "", (f"fe80::{n}", 22, 0, 0)) for n in (1, 2)] + [(four, 1, 6, "", ("192.0.2.1", 22))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    with Attempt(Watchdog(), 60) as attempt:
        assert [family for family, _ in resolve(attempt, "host.example", 22, 5)] == [six, four, six]


@pytest.mark.parametrize(
    ("chunks", "spoke", "said"),
    [
        ([b"SSH-2.0-x\r\n"], True, b""),
        ([b"SS", b"H-2.0-x\r\n"], True, b""),
        ([b"welcome\r\n", b"SSH-2.0-x\r\n"], True, b"welcome\r\n"),
        ([b"an SSH-2.0 host, not\r\n"], False, b"an SSH-2.0 host, not\r\n"),
    ],
)
def test_banner_is_seen_wherever_it_is_cut(chunks: list[bytes], spoke: bool, said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        banners: list[bool] = []
        wire = socket_wire(ours, lambda: banners.append(True))
        for chunk in chunks:
            theirs.sendall(chunk)
            assert wire.recv(128) == chunk
        assert (wire.spoke_ssh, wire.said, len(banners)) == (spoke, said, int(spoke))
        wire.close()
        assert wire.recv(128) == b""
        with pytest.raises(OSError, match="taken away"):
            wire.send(b"more")


def test_watchdog_ends_the_stage_that_is_in_force_and_no_other() -> None:
    dog = Watchdog()
    ended = threading.Event()
    with Attempt(dog, 60) as attempt:
        attempt.closes(ended.set)
        attempt.enter("banner", 0.2)
        attempt.enter("auth", 60)
        assert not ended.wait(0.5)
        attempt.enter("channel", 0.1)
        assert ended.wait(30)
        assert (attempt.failure().outcome, attempt.failure().stage) == ("timeout", "channel")
        with pytest.raises(LookError):
            attempt.enter("probe")
        late = threading.Event()
        attempt.closes(late.set)
        assert late.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "fleetcheck-watchdog"]
