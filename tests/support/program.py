"""Runs the program as a user does: a process of its own, with an environment that is made here."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Expect, Target
from fleetcheck.judge import Policy, new_run
from fleetcheck.recording import Writer

START = "from fleetcheck.cli.main import main; main()"
PROGRAM = (sys.executable, "-c", START)
SECONDS = 120
FIELDS = ["index", "uuid", "pci.bus_id", "name", "compute_cap", "memory.total", "driver_version"]


def environ(home: Path, **more: str) -> dict[str, str]:
    """Return an environment without the developer's settings."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm", **more}


def call(
    home: Path, *args: str | Path, stdout: IO[bytes] | int = subprocess.PIPE, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run ``fleetcheck ARGS`` without a terminal and return how it ended."""
    return subprocess.run(
        [*PROGRAM, *map(str, args)], env=environ(home, **more), stdin=subprocess.DEVNULL, stdout=stdout,
        stderr=subprocess.PIPE, encoding="utf-8", timeout=SECONDS, check=False, cwd=home,
    )  # fmt: skip


def on_terminal(home: Path, *args: str | Path, columns: int = 100, **more: str) -> tuple[str, str, int]:
    """Run ``fleetcheck ARGS`` with a terminal for stdout and one for stderr; return both texts and the code."""
    streams = [pty.openpty() for _ in range(2)]
    for _, slave in streams:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *map(str, args)], env=environ(home, **more), stdin=subprocess.DEVNULL, stdout=streams[0][1],
        stderr=streams[1][1], cwd=home,
    )  # fmt: skip
    for _, slave in streams:
        os.close(slave)
    texts = _drain([master for master, _ in streams])
    return texts[0], texts[1], process.wait(SECONDS)


def _drain(masters: Sequence[int]) -> list[str]:
    texts = dict.fromkeys(masters, b"")
    left = list(masters)
    while left:
        for master in select.select(left, [], [], SECONDS)[0]:
            try:
                piece = os.read(master, 65536)
            except OSError:  # Linux: the other side is closed
                piece = b""
            texts[master] += piece
            if not piece:
                left.remove(master)
                os.close(master)
    return [texts[master].decode().replace("\r\n", "\n") for master in masters]


def look(name: str, gpus: int = 8) -> Evidence:
    """Return the evidence of a host that has ``gpus`` GPUs."""
    row = "{0}, GPU-00000000-0000-4000-8000-00000000000{0}, 00000000:0{0}:00.0, NVIDIA H200, 9.0, 143771, 1.2\n"
    rows = "".join(row.format(index) for index in range(gpus))
    call = {
        "argv": ["/usr/bin/nvidia-smi"], "rc": 0, "stdout": rows, "stderr": "", "seconds": 0.03,
        "timed_out": False, "truncated": False, "error": None,
    }  # fmt: skip
    smi = {
        "path": "/usr/bin/nvidia-smi", "searched": [], "d_state": [], "skipped": None, "version": None,
        "query": {"fields": FIELDS, "call": call}, "retry": None,
    }  # fmt: skip
    return Evidence(name, "checked", parts={"agent": {"version": "0"}, "smi": smi}, seconds=0.1)


def recording(
    path: Path, looks: Sequence[Evidence], policy: Policy | None = None, *, complete: bool = True
) -> Path:
    """Write a recording of hosts that should have 8 GPUs each, and return its path."""
    writer = Writer(path)
    writer.begin(
        new_run("fleet.yaml"),
        policy or Policy(),
        [Target(name=item.host, expect=Expect(gpus=8)) for item in looks],
    )
    for item in looks:
        writer.host(item)
    writer.end("2030-01-01T00:00:00.000Z", complete=complete)
    return path
