"""Processes as /proc shows them: numbers, command lines, states, mapped files. Reads what cannot block first."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fleetcheck.agent.program.system import boot_time
from fleetcheck.agent.program.values import Root, read_bytes

MOST_PIDS = 100000
MAPS_LIMIT = 16 << 20
SCAN_SECONDS = 5.0
OF_PYTHON = ("python", "sglang", "VLLM", "vllm", "pt_main", "ray::")


def read_maps(path: str, top: str) -> "Tuple[Dict[str, str], bool]":
    """Return the files that a process mapped, by path to inode, and whether that is all of them.

    ``top`` is its root folder as the kernel names it: paths of a process in a chroot begin with it.
    """
    data = read_bytes(path, MAPS_LIMIT + 1)
    found: "Dict[str, str]" = {}
    for line in data.split(b"\n"):
        at = line.find(b"/")
        if at > 0:
            name = os.fsdecode(line[at:])
            name = name[len(top) :] if top != "/" and name.startswith(top + "/") else name
            if name not in found:
                found[name] = line[:at].split()[-1].decode("ascii", "replace") if line[:at].split() else ""
    return found, len(data) <= MAPS_LIMIT


def packages_root(path: str) -> "Optional[str]":
    """Return the folder of packages that a file lies in, and the package's name, as one path."""
    for name in ("/site-packages/", "/dist-packages/"):
        at = path.find(name)
        if at > 0:
            return path[: at + len(name) - 1]
    return None


def of_interest(path: str) -> bool:
    """Whether a mapped file tells of FlashInfer: a module of its cache, a prebuilt one, or torch's own library."""
    return ".so" in path and ("/cached_ops/" in path or "flashinfer" in path or "/libtorch_cuda.so" in path)


class Proc:
    """The processes of a host. ``stuck`` are those that stay in uninterruptible sleep.

    A process that sleeps so may hold the lock of its memory: whoever reads its command line then sleeps with it.
    Its state and its numbers can be read without that lock.
    """

    def __init__(self, root: Root) -> None:
        self.root = root
        self.proc = root.at("/proc")
        self.boot = boot_time(root)
        self.tick = os.sysconf("SC_CLK_TCK")
        self.until = time.monotonic() + SCAN_SECONDS
        self.error: "Optional[str]" = None
        self.seen = 0
        self.stuck: "List[Dict[str, Any]]" = []

    def pids(self) -> "Iterator[int]":
        """Yield the user's processes in the order of their numbers, those in uninterruptible sleep last."""
        sleeping: "List[int]" = []
        names = [name for name in os.listdir(self.proc) if name.isdigit()]
        for pid in sorted(map(int, names))[:MOST_PIDS]:
            if time.monotonic() > self.until:
                self.error = "timeout"
                return
            if pid in (os.getpid(), os.getppid()):
                continue
            self.seen += 1
            state, comm, has_memory = self.state(pid)
            if state == "D" and has_memory:
                sleeping.append(pid)
            elif has_memory:
                yield pid
        for pid in sleeping:
            state, comm, _ = self.state(pid)
            if state != "D":
                yield pid
            elif comm.startswith(OF_PYTHON):
                self.stuck.append({"pid": pid, "user": None, "error": "state D"})

    def state(self, pid: int) -> "Tuple[str, str, bool]":
        """Return state and name of a process, and whether it has memory of its own: kernel threads have none.

        Under a ``sysroot`` there may be no such file; then the command line decides.
        """
        try:
            head, _, tail = read_bytes("%s/%d/stat" % (self.proc, pid), 4096).rpartition(b")")
            fields = tail.split()
            comm = head.partition(b"(")[2].decode("utf-8", "replace")
            return fields[0].decode("ascii", "replace"), comm, fields[20] != b"0"
        except (OSError, IndexError):
            return "?", "", True

    def words(self, pid: int) -> "List[str]":
        """Return the command line; an empty list for a kernel thread or one that ended meanwhile."""
        try:
            data = read_bytes("%s/%d/cmdline" % (self.proc, pid), 1 << 17)
        except OSError:
            return []
        return [os.fsdecode(word) for word in data.rstrip(b"\0").split(b"\0")] if data else []

    def stat(self, pid: int) -> "Tuple[int, Optional[float], str]":
        """Return the parent, the start as seconds since the epoch, and the state."""
        try:
            fields = read_bytes("%s/%d/stat" % (self.proc, pid), 4096).rpartition(b")")[2].split()
            started = None if self.boot is None else self.boot + int(fields[19]) / self.tick
            return int(fields[1]), started, fields[0].decode("ascii", "replace")
        except (OSError, IndexError, ValueError):
            return 0, None, "?"
