"""Look at many hosts: any executor does the work, and the limits are kept by what is submitted to it.

At most ``workers`` looks are under way, a few a gateway. What failed before authentication is tried again, with
jitter; unreachable hosts once more when all others are done.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Target
from fleetcheck.remote.failures import plain
from fleetcheck.remote.reach import Reach
from fleetcheck.remote.settings import Settings

BACKOFF = 0.4
"""Seconds before the first retry; twice that before the second. Each is stretched by up to its own length."""
LAST_PAUSE = 1.0
"""Seconds that lie at least between a host's look and its second chance."""
STOP_SECONDS = 2.0
WAKE_SECONDS = 0.5
"""The longest single wait. A signal may reach another thread, which does not wake the one that waits: Ctrl-C is
heard when the wait ends."""
DROPPED = ("closed", "reset")
HOPELESS = ("not-ssh", "unknown-name", "ssh-config", "incompatible", "protocol", "connection")


@dataclass(slots=True)
class _Job:
    """One target on its way: how often it was looked at, and what came of it last."""

    target: Target
    gateway: str | None
    not_before: float = 0.0
    second_chance: bool = False
    evidence: Evidence | None = None

    def add(self, evidence: Evidence) -> Evidence:
        """Fold one more look into the sum of all; the last one's outcome counts."""
        if self.evidence is not None:
            before = self.evidence
            evidence = replace(
                evidence,
                attempts=before.attempts + evidence.attempts,
                started=before.started,
                seconds=before.seconds + evidence.seconds,
            )
        self.evidence = evidence
        return evidence


def run(
    targets: Iterable[Target],
    reach: Reach,
    *,
    settings: Settings,
    executor: Executor | None = None,
    on_begin: Callable[[Target], None] | None = None,
) -> Iterator[tuple[Target, Evidence]]:
    """Look at ``targets`` and yield each with its Evidence as it ends, each once, in no order.

    ``executor`` may be any, of threads or processes, and is left open; without one, threads of its own are used.
    Closing the generator, or an exception thrown into it, ends all looks within two seconds; what was not yielded
    was not seen. ``on_begin`` is called with each target as its look is handed out, a retry included; whoever
    shows progress can tell from it what is still under way.
    """
    with_own = executor is None
    pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="fleetcheck") if executor is None else executor
    drive = _Drive(targets, reach, settings, pool, on_begin)
    reach.begin()
    try:
        yield from drive.results()
    finally:
        drive.stop()
        if with_own:
            pool.shutdown(wait=not drive.running, cancel_futures=True)
        reach.close()


class _Drive:
    """The state of one run."""

    def __init__(
        self,
        targets: Iterable[Target],
        reach: Reach,
        settings: Settings,
        pool: Executor,
        on_begin: Callable[[Target], None] | None,
    ) -> None:
        self.running: dict[Future[Evidence], _Job] = {}
        self._reach, self._settings, self._pool, self._on_begin = reach, settings, pool, on_begin
        self._fresh = iter(targets)
        self._waiting: list[tuple[float, int, _Job]] = []
        self._held: dict[str, deque[_Job]] = {}
        self._last: list[_Job] = []
        self._per_gateway: Counter[str] = Counter()
        self._done: queue.SimpleQueue[Future[Evidence]] = queue.SimpleQueue()
        self._count = itertools.count()
        self._begun = 0
        seconds = settings.limits.run
        self._until = None if seconds is None else time.time() + seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def results(self) -> Iterator[tuple[Target, Evidence]]:
        """Yield until every target is accounted for."""
        while True:
            yield from self._fill()
            if not self.running and not self._waiting:
                if not self._last:
                    return
                yield from self._give_second_chances()
                continue
            future = self._next()
            if future is None:
                continue
            job = self.running.pop(future)
            if job.gateway is not None:
                self._per_gateway[job.gateway] -= 1
            evidence = job.add(_outcome(job.target, future))
            if not self._again(job, evidence):
                yield job.target, evidence

    def stop(self) -> None:
        """End what is under way, and wait for it for a moment."""
        for future in self.running:
            future.cancel()
        end = time.monotonic() + STOP_SECONDS
        self.running = {future: job for future, job in self.running.items() if not future.done()}
        while self.running and time.monotonic() < end:
            self._reach.end()
            self._next(0.05)
            self.running = {future: job for future, job in self.running.items() if not future.done()}

    def _fill(self) -> Iterator[tuple[Target, Evidence]]:
        """Submit what may begin now; yield what can no longer begin."""
        if self._end is not None and time.monotonic() >= self._end:
            yield from self._run_is_over()
            return
        while len(self.running) < self._settings.workers:
            job = self._due()
            if job is None:
                return
            try:
                future = self._pool.submit(self._reach.look, job.target, until=self._until)
            except RuntimeError as error:  # a pool that broke, or was shut down
                yield job.target, job.add(_broken(job.target, error))
                continue
            if job.gateway is not None:
                self._per_gateway[job.gateway] += 1
            self.running[future] = job
            future.add_done_callback(self._done.put)
            if self._on_begin is not None:
                self._on_begin(job.target)

    def _due(self) -> _Job | None:
        """Return the next job that may begin now: a retry that is due, one of a freed gateway, a new one."""
        if self._waiting and self._waiting[0][0] <= time.monotonic():
            job = heapq.heappop(self._waiting)[2]
            if self._free(job):
                return job
        for gateway, jobs in self._held.items():
            if jobs and self._per_gateway[gateway] < self._settings.gateway_workers:
                return jobs.popleft()
        for target in self._fresh:
            self._begun += 1
            job = _Job(target, self._reach.gateway(target))
            if self._free(job):
                return job
        return None

    def _free(self, job: _Job) -> bool:
        """Return whether the job's gateway has room; hold the job back otherwise."""
        if job.gateway is None or self._per_gateway[job.gateway] < self._settings.gateway_workers:
            return True
        self._held.setdefault(job.gateway, deque()).append(job)
        return False

    def _next(self, seconds: float | None = None) -> Future[Evidence] | None:
        """Return the next look that ended; None where it is time to submit something instead."""
        moments = [time.monotonic() + (WAKE_SECONDS if seconds is None else seconds)]
        if seconds is None:
            moments += (
                [self._waiting[0][0]] if self._waiting and len(self.running) < self._settings.workers else []
            )
            moments += [self._end] if self._end is not None and self._end > time.monotonic() else []
        try:
            return self._done.get(timeout=max(0.0, min(moments) - time.monotonic()))
        except queue.Empty:
            return None

    def _again(self, job: _Job, evidence: Evidence) -> bool:
        """Queue the job once more where that may help; return whether it was."""
        settings = self._settings
        if settings.retries == 0 or job.second_chance or (self._end is not None and time.monotonic() >= self._end):
            return False
        if evidence.outcome == "unreachable" and evidence.detail in DROPPED:
            turn = evidence.attempts
            if turn > settings.retries:
                return False
            pause = BACKOFF * 2 ** (turn - 1)
            self._later(job, time.monotonic() + pause * random.uniform(1, 2))  # noqa: S311  # jitter, no secret
            return True
        silent = evidence.outcome == "timeout" and evidence.stage == "connect" and evidence.detail is None
        cut_off = (
            evidence.outcome == "gateway-failed" and evidence.stage == "connect" and evidence.detail == "lost"
        )
        if silent or cut_off or (evidence.outcome == "unreachable" and evidence.detail not in HOPELESS):
            job.second_chance = True
            job.not_before = time.monotonic() + LAST_PAUSE * random.uniform(1, 1.5)  # noqa: S311  # jitter
            self._last.append(job)
            return True
        return False

    def _later(self, job: _Job, moment: float) -> None:
        heapq.heappush(self._waiting, (moment, next(self._count), job))

    def _give_second_chances(self) -> Iterator[tuple[Target, Evidence]]:
        """Queue the hosts that did not answer once more, or yield the one that would only be waited for again.

        A host that is alone in its run and silent is not tried twice: the kernel repeated its SYN all the while,
        and nothing else has happened since.
        """
        for job in self._last:
            if self._begun == 1 and job.evidence is not None and job.evidence.outcome == "timeout":
                yield job.target, job.evidence
            else:
                self._later(job, job.not_before)
        self._last.clear()

    def _run_is_over(self) -> Iterator[tuple[Target, Evidence]]:
        """Account for all that will not begin: the last look counts where there was one."""
        held = itertools.chain.from_iterable(self._held.values())
        queued = [*(job for _, _, job in self._waiting), *self._last, *held]
        self._waiting.clear()
        self._last.clear()
        self._held.clear()
        fresh, self._fresh = self._fresh, iter(())
        for job in itertools.chain(queued, (_Job(target, None) for target in fresh)):
            if job.evidence is not None:
                yield job.target, job.evidence
                continue
            message = "the run's time was over before this host's turn came"
            yield job.target, Evidence(
                host=job.target.name, outcome="timeout", stage="queue", detail="run-limit", message=message,
                address=job.target.address, attempts=0, started=time.time(),
            )  # fmt: skip


def _outcome(target: Target, future: Future[Evidence]) -> Evidence:
    """Return a look's Evidence; a worker that died is this host's failure, never the run's."""
    if future.cancelled():
        return _broken(target, RuntimeError("the executor cancelled the look"))
    error = future.exception()
    return future.result() if error is None else _broken(target, error)


def _broken(target: Target, error: BaseException) -> Evidence:
    message = f"the look could not be run: {type(error).__name__}: {plain(str(error))}"
    return Evidence(
        host=target.name, outcome="probe-error", stage="queue", detail="executor", message=message,
        address=target.address, started=time.time(),
    )  # fmt: skip
