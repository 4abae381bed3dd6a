"""One processor for the whole process: taken where nobody is, left to whoever comes, and given back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.sshd import wait_until

from fleetcheck.remote import cpus

SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"


@pytest.fixture
def seat() -> cpus.Seat:
    return cpus.Seat()


def masks() -> set[frozenset[int]]:
    """Return on which processors the threads of this process may run."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.add(frozenset(os.sched_getaffinity(int(task.name))))
        except ProcessLookupError:  # it has ended
            continue
    return found


def test_all_threads_move_and_come_back(seat: cpus.Seat) -> None:
    before, release = masks(), threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        for cpu in seat.allowed:
            seat.move(cpu)
            assert masks() == {frozenset({cpu})}
            inheritor: list[set[int]] = []
            child = threading.Thread(target=lambda: inheritor.append(os.sched_getaffinity(0)))  # noqa: B023  # it ends here
            child.start()
            child.join()
            assert inheritor == [{cpu}]
    finally:
        seat.move(None)
        release.set()
        thread.join()
    assert masks() == before == {seat.allowed}


def test_a_processor_that_others_use_is_left(seat: cpus.Seat) -> None:
    taken = min(seat.allowed)
    seat.move(taken)
    with subprocess.Popen([sys.executable, "-c", SPIN, str(taken)], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            os.sched_setaffinity(threading.get_native_id(), seat.allowed)  # the test itself is not to be starved
            ended = threading.Event()

            def left() -> bool:
                ended.wait(cpus.TICK)
                seat.look()
                return seat.cpu != taken

            assert wait_until(left)
        finally:
            other.kill()
            seat.move(None)
    assert masks() == {seat.allowed}


def test_children_stand(seat: cpus.Seat) -> None:
    with cpus.seated(least=1), subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert wait_until(lambda: len(os.sched_getaffinity(0)) == 1 or not quiet())
            cpus.stand(child.pid)
            assert os.sched_getaffinity(child.pid) == seat.allowed
        finally:
            child.kill()
    assert masks() == {seat.allowed}


def quiet() -> bool:
    """Return whether a processor is free enough to be taken; on a machine that is busy all over, none is."""
    first = cpus.Seat()
    threading.Event().wait(cpus.TICK)
    first.look()
    sat = first.cpu is not None
    first.move(None)
    return sat


def test_few_processors_are_left_alone(seat: cpus.Seat) -> None:
    with cpus.seated(least=len(seat.allowed) + 1):
        assert masks() == {seat.allowed}
        assert not [thread for thread in threading.enumerate() if thread.name == "fleetcheck-seat"]
