"""Servers that fail in one way each, on loopback: plain sockets, and SSH servers that stop at a chosen point."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import paramiko
from paramiko.packet import Packetizer

from fleetcheck.inventory.model import Target

BANNER = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"
Stop = Literal["kex", "auth", "channel", "exec", "silent", "never"]

logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class Listener:
    """Serves each connection with ``serve(connection, ended)`` in a thread; leaving the context sets ``ended``."""

    def __init__(self, serve: Callable[[socket.socket, threading.Event], None]) -> None:
        self._serve = serve
        self.ended = threading.Event()
        self.accepted = 0
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Listener:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._socket.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(10)
        for connection in self._connections:
            connection.close()

    def hang_up(self) -> None:
        """Cut every connection that was accepted."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def target(self, name: str = "faulty", **keys: Any) -> Target:
        """Return a target that leads here."""
        return Target(name=name, **({"address": "127.0.0.1", "port": self.port, "user": "audit"} | keys))

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True, name="fault-server")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            self._connections.append(connection)
            self._start(self._guarded, connection)

    def _guarded(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._serve(connection, self.ended)


def silent(connection: socket.socket, ended: threading.Event) -> None:
    """Accept and say nothing."""
    ended.wait()


def slow_banner(connection: socket.socket, ended: threading.Event) -> None:
    """Send a line that is no SSH banner, again and again, for ever."""
    while not ended.wait(0.05):
        connection.sendall(b"please wait\r\n")


def banner_only(connection: socket.socket, ended: threading.Event) -> None:
    """Send the SSH banner, then nothing more."""
    connection.sendall(BANNER)
    ended.wait()


def http(connection: socket.socket, ended: threading.Event) -> None:
    """Answer as a web server does, and keep the connection open."""
    connection.recv(256)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n\r\n<h1>400</h1>")
    ended.wait()


def endless_line(connection: socket.socket, ended: threading.Event) -> None:
    """Send bytes without a line's end for ever."""
    while not ended.is_set():
        connection.sendall(b"x" * 4096)


def close_at_once(connection: socket.socket, ended: threading.Event) -> None:
    """Close in order: half-close, then wait for the peer's own end, so that no reset can outrun it."""
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(4096):
        pass


def crowded(connection: socket.socket, ended: threading.Event) -> None:
    """Refuse as an sshd with too many unauthenticated connections does."""
    connection.sendall(b"Exceeded MaxStartups\r\n")
    close_at_once(connection, ended)


def reset(connection: socket.socket, ended: threading.Event) -> None:
    """Reset the connection behind the banner."""
    connection.sendall(BANNER)
    connection.recv(4096)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def first(times: int, fault: Callable[..., None], then: Callable[..., None]) -> Callable[..., None]:
    """Return a server that fails ``times`` times and then serves as ``then`` does."""
    turns: queue.SimpleQueue[Callable[..., None]] = queue.SimpleQueue()
    for _ in range(times):
        turns.put(fault)

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        try:
            turn = turns.get_nowait()
        except queue.Empty:
            turn = then
        turn(connection, ended)

    return serve


def relay(port: int) -> Callable[..., None]:
    """Return a server that passes bytes on to ``port``, and counts what the client sent before it was let go."""

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        with socket.create_connection(("127.0.0.1", port)) as onward:
            back = threading.Thread(target=_pump, args=(onward, connection), daemon=True)
            back.start()
            _pump(connection, onward)
            back.join(10)

    return serve


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def syn_dropped() -> Iterator[int]:
    """Yield a port on 127.0.0.1 whose backlog is full: the kernel drops each further SYN."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


class _Interface(paramiko.ServerInterface):
    def __init__(self, server: FaultySsh) -> None:
        self._server = server

    def get_allowed_auths(self, username: str) -> str:
        return ",".join(self._server.methods)

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._server.offered.append(key.asbytes())
        if self._server.stop == "auth":
            self._server.ended.wait()
        if self._server.partial:
            return paramiko.AUTH_PARTIALLY_SUCCESSFUL
        welcome = self._server.welcome
        good = welcome is None or key.asbytes() in welcome
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if self._server.stop == "channel":
            self._server.ended.wait()
        if self._server.refuse_session:
            return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        return paramiko.OPEN_SUCCEEDED

    def check_channel_direct_tcpip_request(self, chanid: int, origin: Any, destination: Any) -> int:
        if self._server.stop == "channel":
            self._server.ended.wait()
        return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self._server.stop == "exec":
            self._server.ended.wait()
        if self._server.run is None:
            return False
        self._server.commands.append(command)
        self._server.spawn(self._server.run, channel)
        return True


class FaultySsh(Listener):
    """An SSH server that stops at ``stop``, or runs ``run(channel)`` in the place of each command.

    ``welcome`` are the public key blobs that it takes (None: all), ``offered`` those it was offered.
    ``after_kex`` holds the types of the client's messages that belong to no key exchange.
    """

    def __init__(
        self,
        key: Path,
        *,
        stop: Stop = "never",
        run: Callable[[paramiko.Channel], None] | None = None,
        welcome: list[bytes] | None = None,
        methods: tuple[str, ...] = ("publickey",),
        partial: bool = False,
        refuse_session: bool = False,
    ) -> None:
        super().__init__(self._ssh)
        self._key = paramiko.PKey.from_path(str(key))
        self.stop, self.run, self.welcome, self.methods, self.partial = stop, run, welcome, methods, partial
        self.refuse_session = refuse_session
        self.offered: list[bytes] = []
        self.commands: list[bytes] = []
        self.after_kex: list[int] = []
        self.transports: list[paramiko.Transport] = []

    @property
    def known_hosts_line(self) -> str:
        """The line of known_hosts that names this server."""
        return f"[127.0.0.1]:{self.port} {self._key.get_name()} {self._key.get_base64()}\n"

    def __exit__(self, *arguments: object) -> None:
        self.ended.set()
        for transport in self.transports:
            transport.close()
        super().__exit__(*arguments)
        for transport in self.transports:
            transport.join(10)

    def spawn(self, run: Callable[[paramiko.Channel], None], channel: paramiko.Channel) -> None:
        """Run ``run(channel)`` in a thread, then close the channel."""

        def guarded() -> None:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                run(channel)
                channel.close()

        self._start(guarded)

    def _ssh(self, connection: socket.socket, ended: threading.Event) -> None:
        transport = paramiko.Transport(connection, packetizer_class=_Packets)
        transport.packetizer.seen = self.after_kex
        self.transports.append(transport)
        transport.add_server_key(self._key)
        transport.start_server(server=_Interface(self))
        ended.wait()


class _Packets(Packetizer):
    """A packet reader that notes each message that belongs to no key exchange."""

    seen: list[int]

    def read_message(self) -> Any:
        kind, message = super().read_message()
        if not 20 <= kind < 50:
            self.seen.append(kind)
        return kind, message
