"""The machine itself as a host (``connection: local``): the same script and limits, a subprocess in place of SSH.

In: the script. Out: what it answers, fed to a collector. Nothing that was started is left.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path

from fleetcheck.agent.frame import Collector, TooLarge
from fleetcheck.remote import cpus
from fleetcheck.remote.failures import LookError, ended_early, too_large
from fleetcheck.remote.session import GRACE, STDERR_KEPT
from fleetcheck.remote.watchdog import Attempt
from fleetcheck.remote.wire import SLICE

CHUNK = 64 << 10
PATIENCE = 1.0
"""Seconds that the agent has to end what it started once its standard input has ended; it needs far less."""


def ask_here(attempt: Attempt, script: bytes, sink: Collector, *, max_bytes: int, sudo: bool) -> None:
    """Give ``script`` to this machine's own shell and feed ``sink`` until the answer is whole.

    Raises LookError where it is not; what arrived is in ``sink`` all the same.
    """
    attempt.enter("channel")
    command = ["sudo", "-n", "/bin/sh"] if sudo else ["/bin/sh"]
    home = Path("~").expanduser()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=home if home.is_dir() else "/", start_new_session=True, bufsize=0,
        )  # fmt: skip
    except OSError as error:
        message = f"{command[0]} could not be started on this machine ({error.strerror})"
        raise LookError("probe-error", "channel", "refused", message) from error
    cpus.stand(process.pid)
    exchange = _Exchange(process, script, sink, max_bytes)
    try:
        attempt.enter("probe")
        exchange.run(attempt)
    except TooLarge as error:
        raise too_large(max_bytes) from error
    finally:
        _end(process)
    attempt.check()
    if not sink.ended:
        words = exchange.stderr.decode("utf-8", "replace")
        status = process.returncode if process.returncode >= 0 else None
        raise ended_early(status, sink.noise, words, sudo, bool(sink.parts))


class _Exchange:
    """The bytes to and from one shell. Its input stays open until the answer is whole."""

    def __init__(self, process: subprocess.Popen[bytes], script: bytes, sink: Collector, max_bytes: int) -> None:
        assert process.stdin and process.stdout and process.stderr  # noqa: S101  all are pipes, see ask_here()
        self._process, self._left, self._sink, self._max = process, memoryview(script), sink, max_bytes
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self.stderr = b""
        self._stderr_bytes = 0

    def run(self, attempt: Attempt) -> None:
        """Go on until the answer is whole, or the shell has ended, or the attempt was. Raises TooLarge."""
        ended: float | None = None
        with selectors.DefaultSelector() as selector:
            os.set_blocking(self._stdin.fileno(), False)
            selector.register(self._stdin, selectors.EVENT_WRITE)
            for stream in (self._stdout, self._stderr):
                selector.register(stream, selectors.EVENT_READ)
            while not self._sink.ended:
                attempt.check()
                ready = selector.select(SLICE)
                for key, _ in ready:
                    if key.fileobj is self._stdin:
                        self._write(selector)
                    else:
                        self._read(selector, key)
                if not selector.get_map() or self._stdout.fileno() not in selector.get_map():
                    return
                # A child that the shell abandoned may hold its output open for ever.
                if ended is None and self._process.poll() is not None:
                    ended = time.monotonic() + GRACE
                if ended is not None and not ready and time.monotonic() > ended:
                    return

    def _write(self, selector: selectors.BaseSelector) -> None:
        try:
            sent = os.write(self._stdin.fileno(), self._left[:CHUNK])
        except BlockingIOError:
            return
        except OSError:  # a shell that ended at once takes no input; its words are worth reading
            sent = len(self._left)
        self._left = self._left[sent:]
        if not self._left:
            selector.unregister(self._stdin)

    def _read(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        data = os.read(key.fd, CHUNK)
        if not data:
            selector.unregister(key.fileobj)
        elif key.fileobj is self._stdout:
            self._sink.feed(data)
        else:
            self._stderr_bytes += len(data)
            self.stderr += data[: STDERR_KEPT - len(self.stderr)]
            if self._stderr_bytes > self._max:
                raise too_large(self._max, "standard error")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the shell and all that it started: by the end of its input, then by force."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel, or another user's
            process.wait(PATIENCE)
