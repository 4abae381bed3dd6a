"""Jobs: forked children that may block for ever, each with a limit. Killed and abandoned, never awaited."""

from __future__ import annotations

import os
import signal
import time
from typing import Callable, List, NoReturn, Optional

from fleetcheck.agent.program.processes import default_signals, write_all
from fleetcheck.agent.program.values import problem

MOST_PART = 4 << 20
ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGALRM)


class Job:
    """A child that writes one answer: ``=`` and a value, or ``!`` and why there is none; then a line feed."""

    def __init__(
        self, work: "Callable[[], bytes]", limit: float, done: "Callable[[Optional[bytes], str], None]"
    ) -> None:
        self.done = done
        self.deadline = time.monotonic() + limit
        self.chunks: "List[bytes]" = []
        self.size = 0
        self.fd, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _work(work, tell)
        os.close(tell)

    def read(self) -> bool:
        """Take what is there; False at the end of the answer, or where it is beyond every bound."""
        chunk = os.read(self.fd, 1 << 16)
        self.chunks.append(chunk)
        self.size += len(chunk)
        return bool(chunk) and self.size <= MOST_PART

    def end(self, why: str) -> None:
        """Kill the job with all that it started and hand on the answer where it is whole."""
        kill_group(self.pid)
        os.close(self.fd)
        answer = b"".join(self.chunks)
        if self.size > MOST_PART:
            self.done(None, "more than %d bytes" % MOST_PART)
        elif answer.startswith(b"=") and answer.endswith(b"\n"):
            self.done(answer[1:-1], "")
        elif answer.startswith(b"!"):
            self.done(None, answer[1:300].decode("utf-8", "replace").strip())
        else:
            self.done(None, why)


def kill_group(pid: int) -> None:
    """Kill a job's session. Its leader is not reaped yet, so the number cannot be another's."""
    for kill in (os.killpg, os.kill):  # the child may not lead its session yet
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue  # gone already


def reap(pids: "List[int]", patience: float) -> "List[int]":
    """Reap what has ended, for at most ``patience`` seconds, and return what has not: it may never."""
    until = time.monotonic() + patience
    while True:
        pids = [pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if not pids or time.monotonic() >= until:
            return pids
        time.sleep(0.001)


def _work(work: "Callable[[], bytes]", tell: int) -> NoReturn:
    try:
        os.setsid()
        default_signals()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # feeding a shell that has ended is an error, not the end
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        try:
            answer = b"=" + work() + b"\n"
        except BaseException as error:
            answer = b"!" + problem(error).encode("utf-8", "replace") + b"\n"
        write_all(tell, answer)
    finally:
        os._exit(0)
