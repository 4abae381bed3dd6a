"""Work under another process's root folder, so that a container's links lead where they lead in there.

A link of a container is resolved by the kernel below the root of whoever asks: read through /proc/PID/root alone,
an absolute one would lead to the host's own files. So a child takes that root for its own before it reads.
"""

from __future__ import annotations

import builtins
import marshal
import os
import sys
import time
from typing import Any, Callable

from fleetcheck.agent.program.processes import Streams, write_all
from fleetcheck.agent.program.system import sha256_of
from fleetcheck.agent.program.values import dumps, problem

CONTAINED_LIMIT = 4 << 20


def other_root(proc: str) -> "bool | None":
    """Whether a process has another root folder than the agent; None where it may not be known."""
    try:
        theirs, ours = os.stat(proc + "/root/."), os.stat(os.path.dirname(proc) + "/self/root/.")
    except OSError:
        return None
    return (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)


def only_loaded(name: str, *_: Any, **__: Any) -> Any:
    """Stand in for ``__import__``: what is not loaded yet would be loaded, and executed, out of the container."""
    fields = name.split(".")
    if name not in sys.modules:
        raise ImportError(name + " is not imported from inside a container")
    return sys.modules[fields[0] if len(fields) == 1 else name]


def enter(root: str) -> None:
    """Take a folder as root folder. Everything that runs later must be loaded already."""
    sha256_of(dumps("").encode())
    os.chroot(root)
    os.chdir("/")
    sys.path[:] = []
    sys.meta_path[:] = []
    builtins.__import__ = only_loaded


def contained(root: str, work: "Callable[[], Any]", limit: float) -> Any:
    """Return what ``work`` returns (as marshal has it) in a child under ``root``, else raise OSError with why."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(told)
            try:
                enter(root)
                answer = b"=" + marshal.dumps(work())
            except BaseException as error:
                answer = b"!" + problem(error).encode("utf-8", "replace")
            write_all(tell, answer)
        finally:
            os._exit(0)
    os.close(tell)
    streams = Streams(pid, CONTAINED_LIMIT)
    streams.read_from(told)
    ended = streams.run(time.monotonic() + limit, lambda: False)
    answer = bytes(streams.data[told])
    streams.close()
    if answer[:1] == b"=" and ended == "ended":
        return marshal.loads(answer[1:])
    raise OSError(answer[1:200].decode("utf-8", "replace") or "no answer" if ended == "ended" else "timeout")
