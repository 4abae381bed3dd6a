"""What the NVIDIA driver wrote to the kernel's log: its last lines. Files are read, dmesg is not started."""

from __future__ import annotations

import os
import stat
import time
from typing import Any, Dict, List

from fleetcheck.agent.program.values import Root, problem

KMSG = "/dev/kmsg"
LOGS = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")
WORDS = (b"NVRM:", b"nvidia-nvlink:", b"nvidia-modeset:")
BOOT = b"Linux version "
TAIL = 256 << 10
MOST_LINES = 40
MOST_BYTES = 400
MOST_RECORDS = 50000
PATIENCE = 0.5


def gather_kernel_log(root: Root) -> Dict[str, Any]:
    """Return the part ``kernel``: of the first of the kernel's ring and the log files that can be read."""
    tried: "List[Dict[str, Any]]" = []
    for path in (KMSG, *LOGS):
        try:
            fd = os.open(root.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            tried.append({"path": path, "error": problem(error)})
            continue
        try:
            value = read_ring(fd) if stat.S_ISCHR(os.fstat(fd).st_mode) else read_tail(fd)
        except OSError as error:
            tried.append({"path": path, "error": problem(error)})
            continue
        finally:
            os.close(fd)
        return {"path": path, "tried": tried, **value}
    return {"path": None, "tried": tried, "lines": [], "this_boot": None, "truncated": False}


def read_ring(fd: int) -> Dict[str, Any]:
    """Return what the ring holds, which is of this boot: each read is one record, and none is taken away."""
    found: "List[bytes]" = []
    until = time.monotonic() + PATIENCE
    truncated = True
    for _ in range(MOST_RECORDS):
        try:
            record = os.read(fd, 8192)
        except BlockingIOError:
            truncated = False  # the end of the ring
            break
        except BrokenPipeError:
            continue  # the record was overwritten meanwhile; the next read gives the oldest that is left
        if any(word in record for word in WORDS):
            # Behind the first line stand the device's properties (Documentation/ABI/testing/dev-kmsg).
            found.append(record.split(b"\n", 1)[0])
        if not record or time.monotonic() >= until:
            break
    return said(found, True, truncated)


def read_tail(fd: int) -> Dict[str, Any]:
    """Return the driver's lines in the end of a log file: of this boot alone where its start is there."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(22, "not a regular file")
    start = max(0, os.fstat(fd).st_size - TAIL)
    os.lseek(fd, start, os.SEEK_SET)
    chunks: "List[bytes]" = []
    left = TAIL
    while left > 0:
        chunk = os.read(fd, left)
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    text = b"".join(chunks)
    boot = text.rfind(BOOT)
    lines = text[max(boot, 0) :].splitlines()
    return said([line for line in lines if any(word in line for word in WORDS)], boot >= 0 or None, start > 0)


def said(lines: "List[bytes]", this_boot: "bool | None", truncated: bool) -> Dict[str, Any]:
    """Return the last lines, bounded. ``this_boot`` is None where they may be of an earlier boot."""
    kept = [line[:MOST_BYTES].decode("utf-8", "replace") for line in lines[-MOST_LINES:]]
    return {"lines": kept, "this_boot": this_boot, "truncated": truncated or len(lines) > MOST_LINES}
