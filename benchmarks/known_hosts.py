"""How long it takes to read known_hosts: fleetcheck's index against Paramiko's HostKeys, in one run.

    python benchmarks/known_hosts.py [--lines 10000] [--baseline-lines 1000 2000]

Paramiko compares each line with all before it, so that twice the lines take it four times as long. It is therefore
measured at fewer lines, and the ratio is taken there, at the same number of lines for both. Times are CPU seconds
of this process, the best of three (of one for the baseline).
"""

from __future__ import annotations

import argparse
import base64
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import paramiko

from fleetcheck.remote.hostkey_file import hashed_name
from fleetcheck.remote.hostkeys import HostKeyIndex

HOST = "gpu{}.lab"


def write(path: Path, lines: int, *, hashed: bool) -> str:
    """Write a file in which each of ``lines`` hosts has one ed25519 key; return its path."""
    with path.open("w") as file:
        for number in range(lines):
            blob = b"".join(struct.pack(">I", len(field)) + field for field in (b"ssh-ed25519", os.urandom(32)))
            name = HOST.format(number)
            file.write(f"{hashed_name(name) if hashed else name} ssh-ed25519 {base64.b64encode(blob).decode()}\n")
    return str(path)


def seconds(work: Callable[[], object], times: int) -> float:
    """Return the CPU seconds of the quickest of ``times`` runs."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def main() -> int:
    """Measure and print; return 1 where an index did not know a host that its file lists."""
    parser = argparse.ArgumentParser(description="Time the reading of known_hosts files.")
    parser.add_argument("--lines", type=int, default=10_000, help="lines to read by fleetcheck alone")
    parser.add_argument(
        "--baseline-lines", type=int, nargs="+", default=[1_000, 2_000], help="lines to read by both"
    )
    arguments = parser.parse_args()
    wrong = 0
    baseline = f"Paramiko {paramiko.__version__}"
    print(f"{'file':8} {'lines':>7} {'fleetcheck':>12} {'one look-up':>12} {baseline:>16} ratio")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("plain", "hashed"):
            for lines in (*arguments.baseline_lines, arguments.lines):
                path = write(Path(folder) / f"{kind}-{lines}", lines, hashed=kind == "hashed")
                ours = seconds(lambda path=path: HostKeyIndex.load([path]), 3)  # type: ignore[misc]
                index = HostKeyIndex.load([path])
                host = HOST.format(lines - 1)
                lookup = seconds(lambda index=index, host=host: index.lookup(host), 3)  # type: ignore[misc]
                wrong += len(index.lookup(host).keys) != 1
                row = f"{kind:8} {lines:7} {ours * 1e3:9.1f} ms {lookup * 1e3:9.2f} ms"
                if lines in arguments.baseline_lines:
                    theirs = seconds(lambda path=path: paramiko.HostKeys(path), 1)  # type: ignore[misc]
                    row += f" {theirs * 1e3:13.1f} ms {theirs / ours:6.0f}"
                else:
                    row += f" {'not run':>16}"
                print(row, flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
