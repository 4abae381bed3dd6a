"""The host's side from start to end: jobs run side by side, their parts are framed as they come, then all dies."""

from __future__ import annotations

import binascii
import errno
import marshal
import os
import resource
import select
import signal
import time
from typing import Any, Callable, Dict, List, NoReturn, Optional

from fleetcheck.agent.program.activate import look
from fleetcheck.agent.program.blanks import blind, unseen
from fleetcheck.agent.program.caches import cache_bases, gather_caches
from fleetcheck.agent.program.container import look_contained
from fleetcheck.agent.program.deep import (
    DEEP_SECONDS,
    look_deep,
    make_scratch,
    not_made,
    remove_scratch,
    to_import,
)  # fmt: skip
from fleetcheck.agent.program.expected import gather_expected
from fleetcheck.agent.program.find import find_listed, find_running, find_usual, merge
from fleetcheck.agent.program.hardware import gather_driver, gather_pci, gather_toolkits
from fleetcheck.agent.program.jobs import ENDINGS, Job, kill_group, reap
from fleetcheck.agent.program.kernel_log import gather_kernel_log
from fleetcheck.agent.program.processes import LIFELINE, Lifeline, lifeline, write_all
from fleetcheck.agent.program.serving import gather_processes
from fleetcheck.agent.program.smi import gather_smi
from fleetcheck.agent.program.startup import gather_scan
from fleetcheck.agent.program.system import about_agent, gather_system
from fleetcheck.agent.program.values import Root, dumps, problem

PART_LIMIT = 10.0
AT_ONCE = 4
MOST_VENVS = 100
END_ROOM = 16384


class Agent:
    """One look at one host. ``request`` holds the fields of the Request, ``marker`` opens each frame."""

    def __init__(self, request: Dict[str, Any], marker: str, version: str, inside: str, deep: str) -> None:
        self.request, self.marker, self.version = request, marker.encode(), version
        self.inside, self.deep = inside.encode(), deep.encode()
        self.deep_waiting: "List[Dict[str, Any]]" = []
        self.scratch: "Optional[str]" = None
        self.root = Root(request["sysroot"])
        self.began = time.monotonic()
        self.deadline = self.began + request["host_limit"]
        self.room = request["max_bytes"] - END_ROOM
        self.jobs: "List[Job]" = []
        self.errors: "List[str]" = []
        self.finds: "Dict[str, List[Dict[str, Any]]]" = {}
        self.order: "List[str]" = []
        self.ended: "List[int]" = []
        self.waiting: "List[Dict[str, Any]]" = []
        self.unfinished = 0
        self.smi = "waiting"

    def frame(self, name: str, payload: bytes) -> None:
        """Write one part; drop it, with a line in ``end``, where the answer would become too large."""
        payload = payload.replace(self.marker, b"(marker)")
        check = binascii.crc32(payload, binascii.crc32(name.encode()))
        head = b"%s %s %d %08x\n" % (self.marker, name.encode(), len(payload), check)
        if name != "end":
            if len(head) + len(payload) + 2 > self.room:
                self.errors.append(
                    "%s: %d bytes, which is more than the answer has room for" % (name, len(payload))
                )
                return
            self.room -= len(head) + len(payload) + 2
        write_all(1, b"\n" + head + payload + b"\n")

    def job(
        self,
        name: str,
        work: "Callable[[], bytes]",
        limit: float,
        done: "Optional[Callable[[Optional[bytes], str], None]]" = None,
    ) -> None:
        """Start a job; without ``done`` its answer is the part of that name."""

        def part(answer: "Optional[bytes]", why: str) -> None:
            if answer is None:
                self.errors.append("%s: %s" % (name, why))
            else:
                self.frame(name, answer)

        # A signal between the fork and the list would leave a child that nobody knows.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        try:
            self.jobs.append(Job(work, limit, done or part))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)

    def run(self) -> None:
        """Gather everything, or what there is time for."""
        self.frame("agent", dumps(about_agent(self.version, self.request["sysroot"])).encode())
        for name, gather in (
            ("system", gather_system), ("driver", gather_driver), ("pci", gather_pci),
            ("toolkits", gather_toolkits), ("kernel", gather_kernel_log),
        ):  # fmt: skip
            self.job(name, lambda gather=gather: dumps(gather(self.root)).encode(), PART_LIMIT)  # type: ignore[misc]
        self.find()
        patterns = list(self.request["scan"])
        if patterns:
            self.job("scan", lambda: dumps(gather_scan(self.root, patterns)).encode(), PART_LIMIT)
        self.job("processes", lambda: marshal.dumps(gather_processes(self.root)), PART_LIMIT, self.serving)
        reason = "done"
        while self.jobs or self.waiting or self.deep_waiting or self.smi == "waiting":
            self.start_more()
            if not self.wait():
                reason = "limit"
                break
        self.stop(reason)

    def serving(self, answer: "Optional[bytes]", why: str) -> None:
        """Frame the processes that serve, then look at the caches: the login's, and theirs."""
        processes: "List[Dict[str, Any]]" = []
        if answer is None:
            self.errors.append("processes: " + why)
        else:
            value = marshal.loads(answer)
            processes = value["items"]
            self.frame("processes", dumps(value).encode())
        bases = cache_bases(self.root, dict(os.environ), processes)
        self.job("caches", lambda: dumps(gather_caches(self.root, bases)).encode(), PART_LIMIT)

    def find(self) -> None:
        """Start one job for each entry and each kind of discovery; a dead mount holds up only its own."""
        kinds: "Dict[str, Callable[[Root], List[Dict[str, Any]]]]" = {"running": find_running, "usual": find_usual}
        self.order = [*self.request["venvs"], *(kind for kind in kinds if kind in self.request["discover"])]
        for name in self.order:

            def found(answer: "Optional[bytes]", why: str, name: str = name) -> None:
                self.found(name, answer, why)

            def work(name: str = name) -> bytes:
                return marshal.dumps(kinds[name](self.root) if name in kinds else find_listed(self.root, name))

            self.job("venvs: " + name, work, PART_LIMIT, found)
        if not self.order:
            self.found("", b"", "")

    def found(self, name: str, answer: "Optional[bytes]", why: str) -> None:
        """Keep one find; with the last one the list is known, and framed."""
        if answer:
            self.finds[name] = marshal.loads(answer)
        elif name:
            self.errors.append("venvs: %s: %s" % (name, why))
            listed = name.startswith(("/", "~"))
            self.finds[name] = [unseen(name, "hung" if why == "limit" else "unreadable", why)] if listed else []
        if len(self.finds) < len(set(self.order)):
            return
        items = merge([self.finds[name] for name in self.order])
        unmatched = [name for name in self.order if name.startswith(("/", "~")) and not self.finds[name]]
        if len(items) > MOST_VENVS:
            self.errors.append("venvs: %d found, %d looked at" % (len(items), MOST_VENVS))
        self.waiting = items[:MOST_VENVS]
        self.deep_waiting, left_out = to_import(self.waiting if self.deep else [])
        keys = ("index", "path", "item", "origin", "state")
        more = ("namespace", "inside", "inside_real")
        shown = [
            {key: item[key] for key in (*keys, *(key for key in more if key in item))} for item in self.waiting
        ]
        self.frame("venvs", dumps({"items": shown, "unmatched": unmatched}).encode())
        files = list(self.request["files"])
        prefixes = [item["path"] for item in self.waiting if item["kind"] != "container"]
        if files:
            self.job("expected", lambda: dumps(gather_expected(self.root, files, prefixes)).encode(), PART_LIMIT)
        for part, text in left_out.items():
            self.frame(part, text.encode())

    def start_more(self) -> None:
        """Start environments, a few at once, and nvidia-smi behind them, or earlier where time gets short."""
        while self.waiting and self.unfinished < AT_ONCE:
            self.start_venv(self.waiting.pop(0))
        if self.deep_waiting and not (self.jobs or self.waiting):
            self.start_deep(self.deep_waiting.pop(0))
        left = self.deadline - time.monotonic()
        idle = not (self.jobs or self.waiting or self.deep_waiting)
        if self.smi == "waiting" and (idle or left < self.request["smi_limit"] + PART_LIMIT):
            self.smi = "started"
            limit = min(self.request["smi_limit"], max(1.0, left - 2.0))
            self.job("smi", lambda: dumps(gather_smi(self.root, limit)).encode(), limit + PART_LIMIT)

    def start_venv(self, item: Dict[str, Any]) -> None:
        """Start the look at one environment."""
        self.unfinished += 1
        activation, interpreter = self.request["activate_limit"], self.request["venv_limit"]

        def looked(answer: "Optional[bytes]", why: str) -> None:
            self.unfinished -= 1
            self.frame("venv/%d" % item["index"], answer or dumps(blind(item, why)).encode())

        def work() -> bytes:
            if item["kind"] == "container":
                return look_contained(self.root, item, self.inside, interpreter).encode()
            return look(self.root, item, self.inside, (activation, interpreter)).encode()

        self.job("venv/%d" % item["index"], work, 3 * activation + interpreter + PART_LIMIT, looked)

    def start_deep(self, item: Dict[str, Any]) -> None:
        """Start the real import of one environment, alone: it takes memory and seconds."""
        name = "deep/%d" % item["index"]
        try:
            scratch = self.scratch = make_scratch()
        except OSError as error:
            self.frame(name, not_made(item, "no scratch folder: %s" % problem(error)).encode())
            return

        def looked(answer: "Optional[bytes]", why: str) -> None:
            left = remove_scratch(scratch)
            self.scratch = None
            if left is not None:
                self.errors.append("%s: %s" % (name, left))
            self.frame(name, answer or not_made(item, why).encode())

        def work() -> bytes:
            return look_deep(self.root, item, self.deep, scratch, DEEP_SECONDS).encode()

        self.job(name, work, DEEP_SECONDS + PART_LIMIT, looked)

    def wait(self) -> bool:
        """Wait for the next thing to happen. False once the host's time is up."""
        now = time.monotonic()
        if now >= self.deadline:
            return False
        until = min([self.deadline, *(job.deadline for job in self.jobs)])
        readers = [*(job.fd for job in self.jobs), *lifeline()]
        ready, _, _ = select.select(readers, [], [], min(1.0, max(0.0, until - now)))
        if LIFELINE in ready and not os.read(LIFELINE, 4096):
            self.die()
        for job in list(self.jobs):
            over = job.fd in ready and not job.read()
            if over or time.monotonic() >= job.deadline:
                self.jobs.remove(job)
                job.end("it ended without an answer" if over else "limit")
                self.ended.append(job.pid)
        self.ended = reap(self.ended, 0.0)
        return True

    def stop(self, reason: str) -> None:
        """End what still runs, tell of it, and write the last part."""
        for job in self.jobs:
            job.end("limit")
        for item in self.waiting:
            self.frame("venv/%d" % item["index"], dumps(blind(item, "limit")).encode())
        for item in self.deep_waiting:
            self.frame("deep/%d" % item["index"], not_made(item, "limit").encode())
        if self.smi == "waiting":
            self.errors.append("smi: limit")
        reap(self.ended, 0.05)
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        end = {
            "reason": reason, "wall": time.monotonic() - self.began,
            "cpu": sum(one.ru_utime + one.ru_stime for one in usage),
            "max_rss_kib": max(one.ru_maxrss for one in usage),
            "errors": [line[:300] for line in self.errors][:40],
        }  # fmt: skip
        self.frame("end", dumps(end).encode())

    def die(self, *_: Any) -> NoReturn:
        """End everything at once: nobody listens any more, or the time is up while the writing is stuck."""
        for job in self.jobs:
            kill_group(job.pid)
        if self.scratch is not None:
            reap([job.pid for job in self.jobs], 0.2)
            remove_scratch(self.scratch)
        os._exit(3)


def main(request: Dict[str, Any], marker: str, version: str, inside: str, deep: str) -> None:
    """Run the agent. A connection that is gone ends it: by the error of a write, the lifeline, or the alarm."""
    try:
        os.fstat(LIFELINE)
        Lifeline.there = True
    except OSError:
        Lifeline.there = False  # not started by the prologue
    agent = Agent(request, marker, version, inside, deep)
    for number in ENDINGS:
        signal.signal(number, agent.die)
    signal.alarm(int(request["host_limit"]) + 5)
    try:
        try:
            agent.run()
        except Exception as error:
            if isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.EIO):
                raise
            agent.errors.append("agent: " + problem(error))
            agent.stop("error")
    except Exception:  # nobody reads any more
        agent.die()
    os._exit(0)
