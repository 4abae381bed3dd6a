"""The ways that lead through another program: one shared connection a gateway, and ProxyCommand.

A gateway is opened once a process and shared; a dead one is one event, which each host behind it then reports.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

import fabric
import paramiko

from fleetcheck.agent.evidence import Stage
from fleetcheck.remote import cpus
from fleetcheck.remote.failures import UNKNOWN_HOST, LookError, Place, plain
from fleetcheck.remote.session import FleetTransport
from fleetcheck.remote.watchdog import Attempt
from fleetcheck.remote.wire import SLICE, Wire

KEPT_FAILURE = 60.0
"""Seconds for which a gateway that failed is not tried again."""
OPEN_FAILED_CODES = {1: "forwarding-refused", 4: "busy"}
UNKNOWN_GATEWAY = (
    "the ssh config says where a gateway is, the inventory's hosts do not: write its address in proxy_jump, or "
    "give the ssh config a Host block for it"
)
RETRIED = ("closed", "reset")
OF_THE_RUN = ("run-limit", "interrupted")
"""Details of a look that ended with the run: no fault of the gateway's."""

Open = Callable[[Attempt], contextlib.AbstractContextManager[fabric.Connection]]


class Gateway:
    """One gateway's connection: opened by the first who needs it, shared by all, and not tried again once dead."""

    def __init__(self, name: str, open_connection: Open, retries: int) -> None:
        self.name = name
        self._open_connection, self._retries = open_connection, retries
        self._changed = threading.Condition()
        self._opening = False
        self._stack = contextlib.ExitStack()
        self._transport: FleetTransport | None = None
        self._failure: LookError | None = None
        self._failed_at = 0.0

    def transport(self, attempt: Attempt) -> FleetTransport:
        """Return the live transport; raises LookError (``gateway-failed``) where there is none."""
        while True:
            with self._changed:
                if self._transport is not None and self._transport.is_active():
                    return self._transport
                if self._failure is not None and time.monotonic() - self._failed_at < KEPT_FAILURE:
                    raise self._failure
                if not self._opening:
                    self._opening = True
                    break
                self._changed.wait(SLICE)
            attempt.check()
        opened, failure = None, None
        try:
            opened = self._open(attempt)
        except LookError as error:
            failure = self.failed(error)
            attempt.check()
            raise failure from error
        finally:
            with self._changed:
                self._opening, self._transport = False, opened
                if (
                    failure is not None
                    and failure.detail not in OF_THE_RUN
                    and attempt.cause in (None, "host", "stage")
                ):
                    self._failure, self._failed_at = failure, time.monotonic()
                self._changed.notify_all()
        return opened

    def failed(self, error: LookError) -> LookError:
        """Return ``error`` as what a host behind this gateway reports."""
        if error.outcome == "gateway-failed" or error.detail in OF_THE_RUN:
            return error
        detail = error.detail if error.outcome in ("unreachable", "timeout") and error.detail else error.outcome
        # A gateway is looked up in the ssh config, as for ssh: what the inventory sets for a host does not hold.
        said = error.message.replace(UNKNOWN_HOST, UNKNOWN_GATEWAY)
        message = f"the gateway {self.name} failed: {said}"
        return LookError("gateway-failed", error.stage, detail, message)

    def alive(self) -> bool:
        """Return whether the connection is open."""
        transport = self._transport
        return transport is not None and transport.is_active()

    def lost(self, stage: Stage = "connect") -> LookError:
        """Return what a host behind this gateway reports when the gateway's connection breaks."""
        return LookError("gateway-failed", stage, "lost", f"the connection to the gateway {self.name} was lost")

    def close(self) -> None:
        """Close the connection; the next user opens a new one."""
        with self._changed:
            stack, self._stack, self._transport = self._stack, contextlib.ExitStack(), None
            self._failure = None
        stack.close()

    def _open(self, attempt: Attempt) -> FleetTransport:
        for turn in range(self._retries + 1):
            self._stack.close()
            attempt.check()
            try:
                connection = self._stack.enter_context(self._open_connection(attempt))
            except LookError as failure:
                if failure.detail not in RETRIED or turn == self._retries:
                    raise
                threading.Event().wait(random.uniform(0.2, 0.6) * (turn + 1))  # noqa: S311  # jitter, no secret
            else:
                return connection.transport  # type: ignore[no-any-return]
        raise AssertionError("the last turn returns or raises")

    def wire(self, attempt: Attempt, place: Place, seconds: float, on_banner: Callable[[], None]) -> Wire:
        """Return a wire through the gateway to ``place``. Raises LookError: the gateway's, or the host's own."""
        transport = self.transport(attempt)
        attempt.enter("connect", seconds)
        try:
            channel = transport.open_channel(
                "direct-tcpip",
                (place.host, place.port),
                ("127.0.0.1", 0),
                timeout=min(seconds, attempt.remaining()),
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            attempt.check()
            refusal = transport.refusal()
            if refusal is not None:
                raise _refused(self.name, place, *refusal) from error
            if not transport.is_active():
                raise self.lost() from error
            message = f"{place} did not answer through the gateway {self.name} within {seconds:g} s"
            raise LookError("timeout", "connect", None, message) from error
        # A closed wire reads as ended within one read's time-out; the channel itself is closed by its user.
        return Wire(channel, on_banner, lambda: None, wakes=False)


def _refused(gateway: str, place: Place, code: int, text: str) -> LookError:
    if code in OPEN_FAILED_CODES:
        message = f"the gateway {gateway} forwards no connection to {place} ({text}); see its AllowTcpForwarding"
        return LookError("gateway-failed", "connect", OPEN_FAILED_CODES[code], message)
    low = text.lower()
    if "timed out" in low:
        return LookError("timeout", "connect", None, f"{place} did not answer the gateway {gateway} ({text})")
    if "refused" in low:
        detail = "refused"
    elif "not known" in low or "resol" in low or "no address" in low:
        detail = "unknown-name"
    else:
        detail = "no-route" if "route" in low or "unreachable" in low else "failed"
    stage: Stage = "resolve" if detail == "unknown-name" else "connect"
    message = f"the gateway {gateway} cannot connect to {place} ({text})"
    return LookError("unreachable", stage, detail, message)


class ProxyCommand:
    """A program that is the wire: its standard input and output are a socket of ours."""

    def __init__(self, command: str) -> None:
        self.command = command
        # The program's own words: kept for the message, never on our standard error.
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the program
        self._socket, theirs = socket.socketpair()
        shell = os.environ.get("SHELL") or "/bin/sh"
        try:
            self._process = subprocess.Popen(
                [shell, "-c", f"exec {command}"],
                stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._words, start_new_session=True,
            )  # fmt: skip
            cpus.stand(self._process.pid)
        except OSError as error:
            self._socket.close()
            self._words.close()
            message = f"the ProxyCommand could not be started ({error.strerror})"
            raise LookError("gateway-failed", "connect", "proxy-command", message) from error
        finally:
            theirs.close()

    def wire(self, on_banner: Callable[[], None]) -> Wire:
        """Return the wire; to cut it is to kill the program and all that it started in its session."""
        return Wire(self._socket, on_banner, self._kill)

    def failure(self, cause: LookError) -> LookError:
        """Return ``cause`` as the program's own failure, where it ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(SLICE)
        self._words.seek(0)
        said = plain(self._words.read(512))
        said = f"; it said: {said}" if said else ""
        if cause.outcome != "unreachable" or cause.detail not in RETRIED:
            return cause
        message = f"the ProxyCommand `{plain(self.command)}` gave no connection{said}"
        return LookError("gateway-failed", cause.stage, "proxy-command", message)

    def close(self) -> None:
        """End the program and forget it."""
        self._kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._words.close()

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


@contextlib.contextmanager
def proxied(command: str, on_banner: Callable[[], None]) -> Iterator[Wire]:
    """Yield the wire of a ProxyCommand; the program is gone afterwards. Raises LookError."""
    program = ProxyCommand(command)
    try:
        yield program.wire(on_banner)
    except LookError as failure:
        raise program.failure(failure) from failure
    finally:
        program.close()
