"""The way to a peer: name look-up and TCP connect within limits, and the wire that a transport runs on."""

from __future__ import annotations

import contextlib
import errno
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from fleetcheck.remote.failures import Place, connect_failed, dns_timeout, resolve_failed, timed_out
from fleetcheck.remote.watchdog import Attempt

SLICE = 0.1
"""Seconds after which a wait looks whether its attempt was ended."""
STAGGER = 0.25
"""Seconds after which the next address is tried beside the first (RFC 8305)."""
AHEAD = 32 << 10
"""Bytes that are read at once, where Paramiko asks for fewer."""
PREFACE = 32 << 10
"""Bytes that a peer may send before its SSH banner."""

Address = tuple[socket.AddressFamily, Any]


class SocketLike(Protocol):
    """What a transport needs of the thing it runs on: a socket, or a channel through a gateway."""

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes, /) -> int: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def close(self) -> None: ...


class Wire:
    """A socket, or a channel, that can be taken away at any moment without blocking.

    It also keeps what a peer says before its SSH banner (``said``), whether the banner came (``spoke_ssh``) and
    the socket's own error: Paramiko folds all of that into one text. ``wakes`` tells that ``cut`` ends a recv that
    is under way, so that no read needs a time-out of its own.
    """

    def __init__(
        self, inner: SocketLike, on_banner: Callable[[], None], cut: Callable[[], None], *, wakes: bool = True
    ) -> None:
        self.wakes = wakes
        self.said = b""
        self.spoke_ssh = False
        self.error: OSError | None = None
        self.bytes_sent = 0
        self._ahead = b""
        self._closed = False  # Transport.stop_thread of Paramiko reads this of every socket
        self._inner, self._on_banner, self._cut = inner, on_banner, cut

    def recv(self, size: int) -> bytes:
        """Return bytes of the peer; none where the wire was taken away or the peer is no SSH server."""
        if self._closed:
            return b""
        if not self._ahead:
            data = self._receive(size)
            if not self.spoke_ssh:
                return self._listen(data)
            self._ahead = data
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return data

    def send(self, data: bytes) -> int:
        """Send some of ``data`` and return how much."""
        if self._closed:
            raise OSError(errno.EPIPE, "the wire was taken away")
        try:
            sent = self._inner.send(data)
        except TimeoutError:
            raise
        except OSError as error:
            self.error = self.error or error
            raise
        self.bytes_sent += sent
        return sent

    def settimeout(self, seconds: float | None) -> None:
        """Set how long one recv or send may wait."""
        self._inner.settimeout(seconds)

    def close(self) -> None:
        """Close both ways. What is under way ends; a gateway's channel is closed by its own transport."""
        if not self._closed:
            self._closed = True
            self._cut()

    def release(self) -> None:
        """Free the socket or channel; call it when the transport's thread is gone."""
        self.close()
        with contextlib.suppress(OSError, EOFError):
            self._inner.close()

    def _receive(self, size: int) -> bytes:
        try:
            # Paramiko asks for each packet twice, for its length and for the rest of it.
            return self._inner.recv(max(size, AHEAD) if self.spoke_ssh else size)
        except TimeoutError:
            if self._closed:
                return b""
            raise
        except OSError as error:
            self.error = self.error or error
            raise

    def _listen(self, data: bytes) -> bytes:
        heard = self.said + data
        start = 0 if heard.startswith(b"SSH-") else heard.find(b"\nSSH-") + 1
        if start or heard.startswith(b"SSH-"):
            self.spoke_ssh, self.said = True, heard[:start]
            self._on_banner()
            return data
        self.said = heard
        # An HTTP or TLS server waits for more of us; nothing it could still say would be an SSH banner.
        hopeless = heard.startswith((b"HTTP/", b"\x15\x03", b"\x16\x03")) or len(heard) > PREFACE
        return b"" if hopeless else data


def resolve(attempt: Attempt, host: str, port: int, seconds: float) -> list[Address]:
    """Return the addresses of ``host``, families in turn. Raises LookError, within ``seconds``.

    getaddrinfo knows no limit, so it runs in a thread of its own, which is abandoned where it hangs.
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return [(family, (host, port) if family == socket.AF_INET else (host, port, 0, 0))]
    answer: queue.SimpleQueue[list[Any] | OSError | UnicodeError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answer.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answer.put(error)

    thread = threading.Thread(target=ask, name="fleetcheck-resolve", daemon=True)
    thread.start()
    end = time.monotonic() + seconds
    while True:
        attempt.check()
        try:
            found = answer.get(timeout=max(0.0, min(SLICE, end - time.monotonic())))
            break
        except queue.Empty:
            if time.monotonic() >= end:
                raise dns_timeout(host, seconds) from None
    thread.join()
    if isinstance(found, UnicodeError):
        raise resolve_failed(host, socket.gaierror(socket.EAI_NONAME, str(found)))
    if isinstance(found, OSError):
        raise resolve_failed(host, found)
    addresses = list(dict.fromkeys((family, where) for family, _, _, _, where in found))
    by_family = [[a for a in addresses if a[0] == family] for family in dict.fromkeys(a[0] for a in addresses)]
    longest = max(map(len, by_family), default=0)
    return [group[turn] for turn in range(longest) for group in by_family if turn < len(group)]


def connect(attempt: Attempt, place: Place, addresses: list[Address], seconds: float) -> socket.socket:
    """Return a connected socket to the first of ``addresses`` that answers, all of them within ``seconds``."""
    end = time.monotonic() + seconds
    waiting, errors = list(addresses), list[OSError]()
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as losers:
        next_start = 0.0
        while True:
            attempt.check()
            now = time.monotonic()
            if waiting and (now >= next_start or not selector.get_map()):
                _begin(selector, losers, waiting.pop(0), errors)
                next_start = now + STAGGER
            elif not waiting and not selector.get_map():
                raise connect_failed(place, errors[0])
            if now >= end:
                raise timed_out(place, "connect", seconds)
            for key, _ in selector.select(min(SLICE, end - now)):
                candidate: socket.socket = key.data
                code = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                selector.unregister(candidate)
                if code:
                    errors.append(OSError(code, errno.errorcode.get(code, str(code))))
                    continue
                winner = socket.socket(fileno=candidate.detach())
                # Paramiko never sets it; Nagle's algorithm costs 80 ms a host.
                winner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return winner


def _begin(
    selector: selectors.BaseSelector, losers: contextlib.ExitStack, address: Address, errors: list[OSError]
) -> None:
    family, where = address
    try:
        candidate = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        errors.append(error)
        return
    losers.callback(candidate.close)
    candidate.setblocking(False)
    code = candidate.connect_ex(where)
    if code in (0, errno.EINPROGRESS):
        selector.register(candidate, selectors.EVENT_WRITE, candidate)
    else:
        errors.append(OSError(code, errno.errorcode.get(code, str(code))))


def socket_wire(inner: socket.socket, on_banner: Callable[[], None]) -> Wire:
    """Return a wire over a connected socket; to cut it is to shut the socket down."""

    def cut() -> None:
        with contextlib.suppress(OSError):
            inner.shutdown(socket.SHUT_RDWR)

    return Wire(inner, on_banner, cut)
