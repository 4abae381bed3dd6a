"""A local program run within limits: no input, so many seconds, so many bytes; ended with all that it started.

In: an argument list. Out: exit status, standard output and standard error.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from fleetcheck.remote import cpus

CHUNK_BYTES = 64 << 10
EXIT_POLL_SECONDS = 0.05


class LimitError(Exception):
    """The program was ended: it ran too long, said too much, or the runner was closed."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a program left. ``complete`` is False where standard error was longer than kept."""

    status: int
    stdout: str
    stderr: str
    complete: bool


class Runner:
    """Runs programs side by side from any thread; :meth:`close` ends those that still run."""

    def __init__(self, seconds: float, max_bytes: int) -> None:
        self._seconds, self._max_bytes = seconds, max_bytes
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def run(self, command: Sequence[str]) -> Output:
        """Run ``command`` in a session of its own, so that its children can be ended with it.

        Raises :class:`LimitError`, and OSError where it cannot be started. Standard output over the limit is an
        error; of standard error the start is kept.
        """
        with self._lock:
            if self._closed:
                raise LimitError("the run has ended")
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            cpus.stand(process.pid)
            self._running.add(process)
        try:
            return self._collect(process)
        except BaseException:
            _kill(process)
            raise
        finally:
            with self._lock:
                self._running.discard(process)
                process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def _collect(self, process: subprocess.Popen[bytes]) -> Output:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101  both are pipes, see run()
        end = time.monotonic() + self._seconds
        texts = {process.stdout: bytearray(), process.stderr: bytearray()}
        complete = True
        with selectors.DefaultSelector() as selector:
            for stream in texts:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                left = end - time.monotonic()
                if left <= 0:
                    raise LimitError(f"no answer within {self._seconds:g} s")
                # A child in the background may hold stderr open for ever; the exit of the program is the end.
                ready = selector.select(min(left, EXIT_POLL_SECONDS))
                if not ready and process.poll() is not None:
                    break
                for key, _ in ready:
                    chunk = os.read(key.fd, CHUNK_BYTES)
                    text = texts[key.fileobj]  # type: ignore[index]  # registered above
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif len(text) + len(chunk) <= self._max_bytes:
                        text += chunk
                    elif key.fileobj is process.stdout:
                        raise LimitError(f"more than {self._max_bytes >> 10} KiB of output")
                    else:
                        complete = False
        try:
            status = process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise LimitError(f"no answer within {self._seconds:g} s") from None
        if self._closed:
            raise LimitError("the run has ended")
        out, err = (bytes(text).decode("utf-8", "replace") for text in texts.values())
        return Output(status, out, err, complete)

    def close(self) -> None:
        """End every program that still runs, with its children; nothing is started from now on."""
        with self._lock:
            self._closed = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the session of a process that was not waited for, so that its id cannot be another's."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
