"""An SSH server in this process, for hosts that are folders: Paramiko's server side on loopback.

In: a host key, the one key that may log in, and where commands run. Out: real SSH on ports of 127.0.0.1, each
``exec`` a real process of ``/bin/sh``, killed with its whole group when its channel or the server ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_SUCCEEDED,
)
from paramiko.packet import Packetizer

ADDRESS = "127.0.0.1"
LOG = "fleetcheck.demo.ssh"
CHUNK = 32768
JOIN_SECONDS = 10.0
CLOSE_POLL_SECONDS = 0.05
GONE = (OSError, EOFError, paramiko.SSHException)
"""What Paramiko raises where the peer hung up first."""


@dataclass(frozen=True, slots=True)
class Door:
    """One host to serve: its host key, the folder and the environment in which its commands run."""

    host_key: paramiko.PKey
    home: Path
    environment: Mapping[str, str]


class SshServer:
    """``with SshServer(client_key) as server: port = server.open(door)``; leaving it ends all it started."""

    def __init__(self, client_key: paramiko.PKey) -> None:
        self._client_key = client_key
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._sessions: set[_Session] = set()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._acceptor = threading.Thread(target=self._accept, name="demo-ssh-accept", daemon=True)
        logger = logging.getLogger(LOG)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False  # a client that hangs up is no news of the demo's own

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.close()
        self._acceptor.join(JOIN_SECONDS)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.close()
        for session in sessions:
            session.thread.join(JOIN_SECONDS)

    def open(self, door: Door) -> int:
        """Serve a host on a free port of loopback and return the port."""
        listener = socket.create_server((ADDRESS, 0), backlog=16)
        self._selector.register(listener, selectors.EVENT_READ, door)
        self._wake.send(b"n")
        port: int = listener.getsockname()[1]
        return port

    def _accept(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if not isinstance(key.fileobj, socket.socket):
                    continue
                if key.fileobj is self._woken:
                    if not self._woken.recv(1):
                        return
                    continue
                peer, _address = key.fileobj.accept()
                session = _Session(peer, key.data, self._client_key, self._forget)
                with self._lock:
                    self._sessions.add(session)
                session.thread.start()

    def _forget(self, session: _Session) -> None:
        with self._lock:
            self._sessions.discard(session)


class _Session:
    """One connection: key exchange, login, and its commands until it ends."""

    def __init__(
        self, peer: socket.socket, door: Door, client_key: paramiko.PKey, ended: Callable[[_Session], None]
    ) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer, self._door, self._ended = peer, door, ended
        self._client_key = client_key
        self._login: _Login | None = None
        self._transport: paramiko.Transport | None = None
        self.thread = threading.Thread(target=self._serve, name="demo-ssh-session", daemon=True)

    def close(self) -> None:
        """End the connection; what runs for it is killed by its own thread."""
        if self._transport is not None:
            self._transport.close()
        self._peer.close()

    def _serve(self) -> None:
        try:
            with contextlib.suppress(*GONE):
                self._transport = transport = paramiko.Transport(self._peer, packetizer_class=_Turns)
                turns = cast(_Turns, transport.packetizer)
                self._login = _Login(self._door, self._client_key, turns.due)
                transport.set_log_channel(LOG)
                transport.add_server_key(self._door.host_key)
                transport.start_server(server=self._login)
                transport.join()
        finally:
            self.close()
            for command in self._login.commands if self._login else ():
                command.end()
            self._ended(self)


class _Turns(Packetizer):
    """Does what is due between two messages, when the one before has been answered."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__(peer)
        self.due: deque[Callable[[], None]] = deque()

    def read_message(self) -> tuple[int, paramiko.Message]:
        while self.due:
            self.due.popleft()()
        return super().read_message()


class _Login(paramiko.ServerInterface):
    """Admits one key, sessions, and commands; no shell, no terminal, no forwarding."""

    def __init__(self, door: Door, client_key: paramiko.PKey, due: deque[Callable[[], None]]) -> None:
        self._door, self._client_key, self._due = door, client_key, due
        self.commands: list[_Command] = []

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - Paramiko's signature
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002 - as above
        return AUTH_SUCCESSFUL if key == self._client_key else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002 - as above
        if kind == "session":
            return OPEN_SUCCEEDED
        return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        # A quick command that ended before its request is answered would close the channel on the client.
        self._due.append(lambda: self.commands.append(_Command(channel, command, self._door)))
        return True


class _Command:
    """One process of ``/bin/sh`` and the threads that move its bytes."""

    def __init__(self, channel: paramiko.Channel, command: bytes, door: Door) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", os.fsdecode(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=door.home,
            env=dict(door.environment),
            start_new_session=True,
        )
        self._in, self._out, self._err = (
            threading.Thread(target=run, name=f"demo-ssh{run.__name__}", daemon=True)
            for run in (self._stdin, self._stdout, self._stderr)
        )
        self._waiter = threading.Thread(target=self._wait, name="demo-ssh-wait", daemon=True)
        for thread in (self._in, self._out, self._err, self._waiter):
            thread.start()

    def end(self) -> None:
        """Kill what is left of the process and its group, and wait for the threads."""
        with contextlib.suppress(*GONE):
            self._channel.close()
        self._kill()
        self._waiter.join(JOIN_SECONDS)

    def _kill(self) -> None:
        with self._lock:
            if self._process.returncode is None:  # not reaped, so the number is still its own
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _stdin(self) -> None:
        pipe = self._process.stdin
        if pipe is None:
            return
        with contextlib.suppress(OSError), pipe:
            while data := self._channel.recv(CHUNK):
                pipe.write(data)
        # Paramiko tells of the end of input by recv, and of the channel's own end by nothing but this flag.
        while not self._ended.wait(CLOSE_POLL_SECONDS):
            if self._channel.closed:
                self._kill()
                return

    def _stdout(self) -> None:
        if self._process.stdout is not None:
            with self._process.stdout as pipe:
                _move(pipe.fileno(), self._channel.sendall)

    def _stderr(self) -> None:
        if self._process.stderr is not None:
            with self._process.stderr as pipe:
                _move(pipe.fileno(), self._channel.sendall_stderr)

    def _wait(self) -> None:
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._out.join(JOIN_SECONDS)
        self._err.join(JOIN_SECONDS)
        self._kill()  # children that outlived the shell, while the group's number is still held by it
        with self._lock:
            status = self._process.wait()
        self._ended.set()
        with contextlib.suppress(*GONE):
            self._channel.send_exit_status(status if status >= 0 else 128 - status)
        with contextlib.suppress(*GONE):
            self._channel.close()
        self._in.join(JOIN_SECONDS)


def _move(source: int, sink: Callable[[bytes], object]) -> None:
    with contextlib.suppress(*GONE):
        while data := os.read(source, CHUNK):
            sink(data)
