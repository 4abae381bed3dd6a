"""One Fabric connection to one peer, and one command on it, read by our own loop.

Every wait in here ends because the attempt's watchdog takes the wire away, never because Paramiko gave up.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fabric
import paramiko
from paramiko.packet import Packetizer

from fleetcheck.agent.frame import Collector, TooLarge
from fleetcheck.remote.auth import KeyRing, OneKeyAtATime, UserRoute
from fleetcheck.remote.bare import Connection, config
from fleetcheck.remote.failures import LookError, Place, ended_early, handshake_failed, plain, too_large
from fleetcheck.remote.settings import Limits
from fleetcheck.remote.trust import KnownHostPolicy
from fleetcheck.remote.watchdog import Attempt
from fleetcheck.remote.wire import Wire

# Without a handler of its own Paramiko prints a traceback a banner failure, in each cron mail (paramiko#1511).
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False

BROKEN = (paramiko.SSHException, EOFError, OSError)
"""What Paramiko raises where a connection breaks, whichever thread was the first to see it."""
POLL = 0.5
"""Seconds after which the reading loop looks at standard error and at the exit status."""
IDLE = 5.0
"""Seconds after which a transport looks whether it was closed, where closing wakes it anyway."""
GRACE = 2.0
"""Seconds that output may come behind an exit status, and an exit status behind the answer's end."""
STDERR_KEPT = 2048
JOIN = 2.0
"""Seconds that a transport's thread may take to end once its wire is gone; on a gateway it looks each 0.1 s."""


class _Packets(Packetizer):
    """A packet reader without limits of its own: a Timer thread a connection, and 2 s a banner line."""

    def start_handshake(self, timeout: float) -> None:
        """Start no timer: the watchdog has one for all."""

    def readline(self, timeout: float) -> str:
        """Read a banner line for as long as the watchdog lets it, ``timeout`` or not."""
        line: str = super().readline(max(timeout, float("inf")))
        return line


class FleetTransport(paramiko.Transport):
    """A transport that keeps what the server said: as it hung up, and as it refused a channel.

    Paramiko drops both texts, and keeps one refusal a transport, which threads that share a gateway would mix up.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire, packetizer_class=_Packets)  # type: ignore[arg-type]  # Wire does for a socket
        self.farewell = ""
        self._refusals: dict[int, tuple[int, str]] = {}
        self._asked = threading.local()

    def start_client(self, event: threading.Event | None = None, timeout: float | None = None) -> None:  # noqa: ARG002  # the watchdog has the limit
        """Agree on keys. Paramiko's own wait wakes ten times a second, and so do sixty side by side."""
        ready = event or threading.Event()
        super().start_client(event=ready)
        while event is None and self.is_active() and not ready.wait(POLL):
            pass  # close() does not set the event
        if event is None and not self.is_active():
            raise self.get_exception() or paramiko.SSHException("the negotiation ended")

    def refusal(self) -> tuple[int, str] | None:
        """Return code and text with which the last channel that this thread asked for was refused, if it was."""
        return self._refusals.pop(getattr(self._asked, "number", -1), None)

    def _next_channel(self) -> int:
        number: int = super()._next_channel()  # type: ignore[misc]  # asked once a channel, by the thread that wants it
        self._asked.number = number
        return number

    def _parse_channel_open_failure(self, m: paramiko.Message) -> None:
        number, code = m.get_int(), m.get_int()
        self._refusals[number] = (code, plain(m.get_string()))
        m.rewind()
        super()._parse_channel_open_failure(m)  # type: ignore[misc]  # as above

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        m.get_int()
        self.farewell = plain(m.get_string())

    def _parse_debug(self, m: paramiko.Message) -> None:
        """Drop what sshd tells of itself while a key is tried: Paramiko escapes it byte by byte for its log."""

    def _filter_algorithm(self, type_: str) -> tuple[str, ...]:
        """Return the algorithms of a kind; Paramiko asks 16 times a handshake, and filters by a list each time."""
        if self.disabled_algorithms:
            return super()._filter_algorithm(type_)  # type: ignore[misc, no-any-return]  # Paramiko's own names
        return tuple(getattr(self, f"_preferred_{type_}"))

    def _log(self, *_: object) -> None:
        """Log nothing: the log has no reader, and each connection would fill in forty lines of it."""


def _transport(wire: Wire, policy: KnownHostPolicy) -> FleetTransport:
    transport = FleetTransport(wire)
    if wire.wakes:
        # Paramiko looks ten times a second whether it was closed: a quarter of a core for a thousand connections.
        wire.settimeout(IDLE)
    options = transport.get_security_options()
    options.key_types = policy.preferred(options.key_types)
    # Paramiko compares MACs byte by byte in Python; GCM ciphers have none.
    ciphers = tuple(options.ciphers)
    options.ciphers = tuple(sorted(ciphers, key=lambda name: "gcm" not in name))
    return transport


@contextlib.contextmanager
def connected(
    attempt: Attempt, route: UserRoute, place: Place, wire: Wire, *, policy: KnownHostPolicy, ring: KeyRing,
    limits: Limits,
) -> Iterator[fabric.Connection]:  # fmt: skip
    """Yield an authenticated connection over ``wire``; raises LookError. Its thread is gone afterwards."""
    made: list[FleetTransport] = []

    def factory(sock: Wire, **_: Any) -> FleetTransport:
        transport = _transport(sock, policy)
        made.append(transport)
        attempt.closes(transport.close)
        return transport

    slack = limits.host + limits.banner + limits.auth + limits.channel
    connection = Connection(
        place.host,
        user=route.user,
        port=place.port,
        gateway=False,
        config=config(),
        connect_kwargs={
            "sock": wire,
            "banner_timeout": slack,
            "auth_timeout": limits.auth + JOIN,
            "channel_timeout": limits.channel + JOIN,
            "transport_factory": factory,
            "auth_strategy": OneKeyAtATime(ring, route, place),
        },
    )
    connection.client.set_missing_host_key_policy(policy)
    try:
        attempt.closes(wire.close)
        attempt.enter("banner", limits.banner)
        _handshake(attempt, connection, place, wire)
        yield connection
    finally:
        for transport in made:
            transport.close()
            if transport.is_alive():
                transport.join(JOIN)
        wire.release()


def _handshake(attempt: Attempt, connection: fabric.Connection, place: Place, wire: Wire) -> None:
    try:
        connection.open()
    except LookError:
        attempt.check()
        raise
    except BROKEN as error:
        attempt.check()
        stage = attempt.stage
        if stage == "auth":
            message = f"{place} hung up during the authentication: {plain(str(error)) or 'without a word'}"
            raise LookError("auth-failed", "auth", "closed", message) from error
        raise handshake_failed(
            place, stage, error, said=wire.said, spoke_ssh=wire.spoke_ssh, wire_error=wire.error
        ) from error


@dataclass(slots=True)
class _Reply:
    stderr: bytes = b""
    stderr_bytes: int = 0
    status: int | None = None


def ask(
    attempt: Attempt, connection: fabric.Connection, command: str, script: bytes, sink: Collector, *,
    limits: Limits, max_bytes: int, sudo: bool,
) -> None:  # fmt: skip
    """Run ``command``, give it ``script``, and feed ``sink`` until the answer is whole.

    Standard input stays open: its end is what tells the far side to die. Raises LookError where the answer is not
    whole; what arrived is in ``sink`` all the same.
    """
    channel = _start(attempt, connection, command, limits)
    reply = _Reply()
    try:
        # A command that ended at once (nologin) takes no input; its words are worth reading.
        with contextlib.suppress(*BROKEN):
            channel.settimeout(None)
            channel.sendall(script)
        attempt.check()
        _read(attempt, channel, sink, reply, max_bytes)
    except TooLarge as error:
        raise too_large(max_bytes) from error
    finally:
        with contextlib.suppress(*BROKEN):
            channel.close()
    attempt.check()
    if not sink.ended:
        raise ended_early(
            reply.status, sink.noise, reply.stderr.decode("utf-8", "replace"), sudo, bool(sink.parts)
        )


def _start(attempt: Attempt, connection: fabric.Connection, command: str, limits: Limits) -> paramiko.Channel:
    attempt.enter("channel", limits.channel)
    try:
        channel: paramiko.Channel = connection.create_session()
    except paramiko.ChannelException as error:
        message = f"the host refused a session ({plain(error.text)}); see its MaxSessions and AllowUsers"
        raise LookError("probe-error", "channel", "refused", message) from error
    except BROKEN as error:
        attempt.check()
        raise LookError("probe-error", "channel", "lost", _lost(connection)) from error
    attempt.enter("channel", limits.channel)
    try:
        channel.exec_command(command)
    except BROKEN as error:
        attempt.check()
        if connection.transport.is_active():
            message = "the host refused to run a command (a forced command, or a restricted account)"
            raise LookError("probe-error", "channel", "refused", message) from error
        raise LookError("probe-error", "channel", "lost", _lost(connection)) from error
    attempt.enter("probe")
    return channel


def _lost(connection: fabric.Connection) -> str:
    farewell = getattr(connection.transport, "farewell", "")
    return "the connection was lost after the login" + (f"; the host said: {farewell}" if farewell else "")


def _read(attempt: Attempt, channel: paramiko.Channel, sink: Collector, reply: _Reply, max_bytes: int) -> None:
    channel.settimeout(POLL)
    quiet_polls = 0
    while not sink.ended:
        attempt.check()
        try:
            data = channel.recv(1 << 16)
        except TimeoutError:
            data = None
        _drain_stderr(channel, reply, max_bytes)
        if data:
            quiet_polls = 0
            sink.feed(data)
        elif data is None and not channel.exit_status_ready():
            continue
        elif data is None and quiet_polls < GRACE / POLL:
            # The command is over; a child that it abandoned may hold its output open for ever.
            quiet_polls += 1
        else:
            break
    channel.status_event.wait(GRACE)
    if channel.exit_status_ready() and channel.exit_status >= 0:
        reply.status = channel.exit_status


def _drain_stderr(channel: paramiko.Channel, reply: _Reply, max_bytes: int) -> None:
    # Standard error shares the channel's window: left unread, it would stop the answer, too.
    while channel.recv_stderr_ready():
        data = channel.recv_stderr(1 << 16)
        reply.stderr_bytes += len(data)
        reply.stderr += data[: STDERR_KEPT - len(reply.stderr)]
        if reply.stderr_bytes > max_bytes:
            raise too_large(max_bytes, "standard error")
