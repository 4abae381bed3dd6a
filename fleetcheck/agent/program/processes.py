"""Processes that the agent starts: forked jobs and commands, each with a limit, none awaited for ever.

A job leads a session of its own, so that one ``killpg`` ends it with all that it started. Every wait also watches
the lifeline (fd 3, the connection's stdin): its end means that nobody listens any more.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import time
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Set, Tuple

LIFELINE = 3
OUTPUT_LIMIT = 65536


def exit_code(status: int) -> int:
    """Return an exit code from a wait status; 128 + n for signal n, as shells say it."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def default_signals() -> None:
    """Undo what Python and a background shell ignore: an ignored signal is inherited through exec."""
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)


def write_all(fd: int, data: bytes) -> None:
    """Write everything."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def spawn(argv: Sequence[str], fds: Mapping[int, int], env: "Optional[Mapping[str, str]]" = None) -> int:
    """Start a command whose descriptors are exactly ``fds`` (target: source). Raises OSError where exec fails."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(argv, fds, env, tell)
    os.close(tell)
    try:
        code = os.read(told, 16)
    finally:
        os.close(told)
    if code:
        os.waitpid(pid, 0)
        raise OSError(int(code), os.strerror(int(code)))
    return pid


def _become(
    argv: Sequence[str], fds: Mapping[int, int], env: "Optional[Mapping[str, str]]", tell: int
) -> NoReturn:
    try:
        default_signals()
        tell = fcntl.fcntl(tell, fcntl.F_DUPFD_CLOEXEC, 32)
        high = {target: fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, 32) for target, source in fds.items()}
        for target in range(10):
            if target in high:
                os.dup2(high[target], target)
            else:
                try:
                    os.close(target)
                except OSError:
                    continue  # it was not open
        os.execve(argv[0], list(argv), dict(os.environ if env is None else env))
    except OSError as error:
        os.write(tell, b"%d" % (error.errno or errno.EIO))
    finally:
        os._exit(127)


class Streams:
    """Reads several pipes of one process at once, bounded, until a deadline."""

    def __init__(self, pid: int, limit: int = OUTPUT_LIMIT) -> None:
        self.pid = pid
        self.limit = limit
        self.status: "Optional[int]" = None
        self.data: "Dict[int, bytearray]" = {}
        self.limits: "Dict[int, int]" = {}
        self.open_fds: "Set[int]" = set()
        self.truncated = False
        self.pending = b""
        self.input: "Optional[int]" = None

    def read_from(self, fd: int, limit: int = 0) -> None:
        """Add a pipe to read."""
        os.set_blocking(fd, False)
        self.data[fd] = bytearray()
        self.open_fds.add(fd)
        self.limits[fd] = limit or self.limit

    def write_to(self, fd: int, data: bytes) -> None:
        """Add the pipe to feed, and what to feed it."""
        os.set_blocking(fd, False)
        self.input, self.pending = fd, data

    def exited(self) -> bool:
        """Whether the process has ended; never waits."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
        return self.status is not None

    def run(self, deadline: float, enough: "Callable[[], bool]") -> str:
        """Move data until ``enough()`` ("enough"), the process ended and all was read ("ended"), or "limit"."""
        open_fds = self.open_fds
        while True:
            if enough():
                return "enough"
            left = deadline - time.monotonic()
            if left <= 0:
                return "limit"
            ended = self.exited()
            if not open_fds and ended:
                return "ended"
            # A grandchild may hold a pipe for ever: what an ended process wrote is there already.
            wait = 0.0 if ended else min(left, 0.02 if not open_fds else 0.25)
            readers = [*open_fds, *lifeline()]
            writers = [] if self.input is None else [self.input]
            ready, writable, _ = select.select(readers, writers, [], wait)
            if writable:
                self._feed()
            if LIFELINE in ready and Lifeline.there:
                mind_lifeline()
            took = [fd for fd in ready if fd != LIFELINE or not Lifeline.there]
            for fd in took:
                if not self._take(fd):
                    open_fds.discard(fd)
            if ended and not took:
                return "ended"

    def _feed(self) -> None:
        assert self.input is not None
        try:
            self.pending = self.pending[os.write(self.input, self.pending[:65536]) :]
        except BlockingIOError:
            return
        except OSError:
            self.pending = b""  # the reader is gone; its exit status tells why
        if not self.pending:
            os.close(self.input)
            self.input = None

    def _take(self, fd: int) -> bool:
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return True
        kept = self.data[fd]
        room = self.limits[fd] - len(kept)
        kept += chunk[:room]
        if len(chunk) > room:
            self.truncated = True
        return bool(chunk)

    def drain(self, fd: int) -> bytes:
        """Return all that a pipe holds by now."""
        while self.limits[fd] > len(self.data[fd]):
            before = len(self.data[fd])
            if not self._take(fd) or len(self.data[fd]) == before:
                break
        return bytes(self.data[fd])

    def close(self) -> None:
        """Kill the process where it still runs, close the pipes, wait for nothing."""
        if not self.exited():
            os.kill(self.pid, signal.SIGKILL)
        for fd in self.data:
            os.close(fd)
        if self.input is not None:
            os.close(self.input)
            self.input = None


def lifeline() -> "Tuple[int, ...]":
    """Return the descriptors to watch for the connection's end: fd 3, or none where there is none."""
    return (LIFELINE,) if Lifeline.there else ()


class Lifeline:
    """Whether fd 3 is the connection's stdin. Only the prologue passes one."""

    there = False


def mind_lifeline() -> None:
    """End this job and all that it started, where the lifeline has ended. Data on it means nothing."""
    if not os.read(LIFELINE, 4096):
        os.killpg(0, signal.SIGKILL)


def call(argv: Sequence[str], limit: float, env: "Optional[Mapping[str, str]]" = None) -> "Dict[str, Any]":
    """Run a command and return it as a call value; stdin is /dev/null, ``limit`` is seconds."""
    began = time.monotonic()
    value: "Dict[str, Any]" = {
        "argv": list(argv), "rc": None, "stdout": "", "stderr": "", "seconds": 0.0, "timed_out": False,
        "truncated": False, "error": None,
    }  # fmt: skip
    null = os.open(os.devnull, os.O_RDWR)
    out, to_out = os.pipe()
    err, to_err = os.pipe()
    ours: "List[int]" = [null, to_out, to_err]
    try:
        pid = spawn(argv, {0: null, 1: to_out, 2: to_err}, env)
    except OSError as error:
        value["error"] = errno.errorcode.get(error.errno or 0, str(error))
        ours += [out, err]
        return value
    finally:
        for fd in ours:
            os.close(fd)
    streams = Streams(pid)
    streams.read_from(out)
    streams.read_from(err)
    ended = streams.run(began + limit, lambda: False)
    streams.close()
    value["timed_out"] = ended == "limit"
    if streams.status is not None and not value["timed_out"]:
        value["rc"] = exit_code(streams.status)
    value["stdout"] = streams.data[out].decode("utf-8", "replace")
    value["stderr"] = streams.data[err].decode("utf-8", "replace")
    value["seconds"] = time.monotonic() - began
    value["truncated"] = streams.truncated
    return value
