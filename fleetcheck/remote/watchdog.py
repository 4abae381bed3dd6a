"""One watchdog thread a process: it ends each attempt whose stage, host or run limit passed.

Paramiko waits in places that know no limit (paramiko#739, paramiko#1815), so none of its waits is trusted: the
watchdog takes the connection away, and each wait ends because its transport did.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from typing import Literal

from fleetcheck.agent.evidence import Stage
from fleetcheck.remote.failures import LookError, Place, timed_out

Cause = Literal["stage", "host", "run", "interrupted"]


class Attempt:
    """One attempt to look at one host: its stage, its deadlines, and the one way to end it.

    ``host_seconds`` bounds it as a whole, ``run_seconds`` is what is left of the run (None: no limit). Use it as a
    context; :meth:`enter` moves it on. Any thread may :meth:`abort` it.
    """

    def __init__(self, watchdog: Watchdog, host_seconds: float, run_seconds: float | None = None) -> None:
        self.stage: Stage = "queue"
        self.cause: Cause | None = None
        self.place: Place | str = "the host"
        self._watchdog, self._lock = watchdog, threading.Lock()
        self._closers: list[Callable[[], None]] = []
        self._host_seconds, self._stage_seconds = host_seconds, host_seconds
        self._ends: list[tuple[float, Cause]] = [(time.monotonic() + host_seconds, "host")]
        if run_seconds is not None:
            self._ends.append((time.monotonic() + run_seconds, "run"))
        first = min(self._ends)
        self._due: float = first[0]
        self._due_cause: Cause = first[1]

    def __enter__(self) -> Attempt:
        self._watchdog.join(self)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closers.clear()
        self._watchdog.leave(self)

    @property
    def aborted(self) -> bool:
        """True once the attempt was ended from outside."""
        return self.cause is not None

    def remaining(self) -> float:
        """Return the seconds that host and run limits leave."""
        return max(0.0, min(self._ends)[0] - time.monotonic())

    def run_remaining(self) -> float | None:
        """Return the seconds that are left of the run, None where it has no limit."""
        return next((max(0.0, end - time.monotonic()) for end, cause in self._ends if cause == "run"), None)

    def enter(self, stage: Stage, seconds: float | None = None) -> None:
        """Move on to ``stage``, which may take ``seconds`` (None: as long as the host may).

        Raises LookError where the attempt was ended meanwhile.
        """
        self.check()
        whole = min(self._ends)
        with self._lock:
            self.stage = stage
            self._stage_seconds = self._host_seconds if seconds is None else seconds
            limit: tuple[float, Cause] = whole if seconds is None else (time.monotonic() + seconds, "stage")
            self._due, self._due_cause = min(whole, limit)
        self._watchdog.arm(self, self._due)

    def rename(self, stage: Stage) -> None:
        """Name the stage anew without a limit of its own: the one in force goes on."""
        self.stage = stage

    def closes(self, closer: Callable[[], None]) -> None:
        """Have ``closer`` called when the attempt is ended; at once where it was. It must not block."""
        with self._lock:
            if self.cause is None:
                self._closers.append(closer)
                return
        closer()

    def abort(self, cause: Cause) -> None:
        """End the attempt: every wait of its worker ends soon. Never blocks."""
        with self._lock:
            if self.cause is not None:
                return
            self.cause = cause
            closers, self._closers = self._closers, []
        for closer in reversed(closers):
            closer()

    def expire(self, due: float) -> None:
        """End the attempt where the deadline ``due`` is still the one in force."""
        with self._lock:
            cause = self._due_cause if self._due == due else None
        if cause is not None:
            self.abort(cause)

    def check(self) -> None:
        """Raise the LookError of an attempt that was ended from outside."""
        if self.cause is not None:
            raise self.failure()

    def failure(self) -> LookError:
        """Return what is to be said of an attempt that was ended from outside."""
        if self.cause == "host":
            message = (
                f"the look did not end within the host limit of {self._host_seconds:g} s (stage {self.stage})"
            )
            return LookError("timeout", self.stage, "host-limit", message)
        if self.cause == "run":
            message = f"the run's time was over (stage {self.stage})"
            return LookError("timeout", self.stage, "run-limit", message)
        if self.cause == "interrupted":
            return LookError("timeout", self.stage, "interrupted", "the run was interrupted")
        return timed_out(self.place, self.stage, self._stage_seconds)


class Watchdog:
    """The thread that keeps the deadlines of all attempts of a process. It lives while there are attempts."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Attempt]] = []
        self._attempts: set[Attempt] = set()
        self._count = 0
        self._thread: threading.Thread | None = None
        self.ending = False
        """Whether an attempt that begins from now on is ended as it begins."""

    def join(self, attempt: Attempt) -> None:
        """Begin to watch ``attempt``."""
        with self._changed:
            ending = self.ending
            self._attempts.add(attempt)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="fleetcheck-watchdog", daemon=True)
                self._thread.start()
        if ending:
            attempt.abort("interrupted")

    def leave(self, attempt: Attempt) -> None:
        """Stop watching ``attempt``; with the last one the thread ends."""
        with self._changed:
            self._attempts.discard(attempt)
            if self._attempts:
                return
            thread, self._thread = self._thread, None
            self._heap.clear()
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def arm(self, attempt: Attempt, due: float) -> None:
        """Have ``attempt`` ended at ``due`` (monotonic), unless it moves on before."""
        with self._changed:
            if attempt not in self._attempts:
                return
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, attempt))
            if self._heap[0][1] == self._count:
                self._changed.notify_all()

    def abort_all(self) -> None:
        """End every attempt of this process."""
        with self._changed:
            attempts = list(self._attempts)
        for attempt in attempts:
            attempt.abort("interrupted")

    def _watch(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                if self._thread is not me:
                    return
                wait = self._heap[0][0] - time.monotonic() if self._heap else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                due, _, attempt = heapq.heappop(self._heap)
            attempt.expire(due)
