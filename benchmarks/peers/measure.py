"""One program, measured as a whole: wall time, the CPU of all its processes, their peak memory.

CPU is what the kernel accounts to the program and every child that was waited for (wait4). Peak memory is the sum
of the proportional sets (PSS) of its processes, sampled: ``ru_maxrss`` would hold this process's own memory, from
before the program's exec.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, seconds, MiB, and the exit status."""

    wall: float
    cpu: float
    memory: float
    status: int


def run(command: Sequence[str], *, output: Path, environment: dict[str, str]) -> Cost:
    """Run ``command`` with standard output and error into ``output`` and return what it cost."""
    done = threading.Event()
    peaks = [0.0]
    start = time.perf_counter()
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peaks.append(sum(map(_pss_kib, _tree(process.pid))) / 1024)

    sampler = threading.Thread(target=sample)
    sampler.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    done.set()
    sampler.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(wall, usage.ru_utime + usage.ru_stime, max(peaks), process.returncode)


def _tree(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        with contextlib.suppress(OSError, ValueError):
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return found


def _pss_kib(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
