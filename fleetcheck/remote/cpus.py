"""One processor for a process whose threads take turns anyway.

Python's threads run one at a time. Spread over many processors they hand the turn from one to the next all the
while: on 16 of them an audit of 256 hosts cost 12 ms of CPU a host, kept on one of them 8 ms, and ended a quarter
sooner. What else runs there comes first: a processor that others use is left, and where all are busy none is kept.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

LEAST = 4
"""Processors below which nothing is gained: hosts, gateways and ssh-agents on this machine need the others."""
TICK = 0.25
TAKEN = 0.3
"""The part of a processor's time from which on others are said to use it."""

_STAT = Path("/proc/stat")
_TASKS = Path("/proc/self/task")
_seats: list[Seat] = []


@contextlib.contextmanager
def seated(least: int = LEAST) -> Iterator[None]:
    """Keep this process on one processor at a time, where it may use ``least`` or more, until the block ends.

    For a program that owns its process: threads of all of it move. Children should be let go by :func:`stand`.
    """
    seat = Seat()
    if len(seat.allowed) < least:
        yield
        return
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(seat, ended), name="fleetcheck-seat", daemon=True)
    _seats.append(seat)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
        _seats.remove(seat)
        seat.move(None)


def stand(pid: int) -> None:
    """Let a child of this process use all processors that the process may use."""
    for seat in _seats[:1]:
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(pid, seat.allowed)


def _watch(seat: Seat, ended: threading.Event) -> None:
    pause = TICK / 5  # the first look soon: the threads are about to start
    while not ended.wait(pause):
        seat.look()
        pause = TICK


class Seat:
    """Where the process sits: ``cpu`` is None while it may run on every processor of ``allowed``."""

    def __init__(self) -> None:
        affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
        self.allowed: frozenset[int] = frozenset(affinity(0)) if affinity is not None else frozenset()
        self.cpu: int | None = None
        self._before = self._measured()

    def look(self) -> None:
        """Sit down where nobody is, and leave where somebody came."""
        now, (seconds, own, busy) = self._measured(), self._before
        self._before = now
        passed = max(now[0] - seconds, 1e-3)
        others = {cpu: max(0.0, spent - busy.get(cpu, spent)) / passed for cpu, spent in now[2].items()}
        if not others:
            self.move(None)  # nothing is known of the processors
            return
        if self.cpu in others:
            others[self.cpu] = max(0.0, others[self.cpu] - (now[1] - own) / passed)
        if self.cpu is None or others.get(self.cpu, 1.0) > TAKEN:  # a processor may be switched off meanwhile
            freest = min(others, key=lambda cpu: others[cpu])
            self.move(freest if others[freest] <= TAKEN else None)
        else:
            self.move(self.cpu)  # also those that began while the others moved

    def move(self, cpu: int | None) -> None:
        """Take every thread to a processor; None lets them run on all."""
        if cpu is None and self.cpu is None:
            return
        self.cpu = cpu
        for task in os.listdir(_TASKS) if _TASKS.is_dir() else ():  # noqa: PTH208  its names are all that is needed
            with contextlib.suppress(OSError):  # a thread that has ended
                os.sched_setaffinity(int(task), self.allowed if cpu is None else {cpu})

    def _measured(self) -> tuple[float, float, dict[int, float]]:
        """Return the time, and the seconds of CPU that this process and each allowed processor have spent."""
        busy: dict[int, float] = {}
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in _STAT.read_text().splitlines():
                name, *fields = line.split()
                if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self.allowed:
                    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
                    spent = user + nice + system + irq + softirq + steal
                    busy[int(name[3:])] = spent / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), time.process_time(), busy
