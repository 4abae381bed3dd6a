"""What a large inventory costs: 20,000 hosts in 500 groups of the native format.

Run it with the interpreter in whose environment fleetcheck is installed: ``python benchmarks/inventory.py``. It
prints CPU (user and system) and peak memory of loading, validating and selecting, and the CPU of completing a
host's name at a shell. It ends with 1 where a budget is broken. The first completion after the inventory has
changed loads it, unless a command did; its cost is printed beside the others and has no budget.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

GROUPS, IN_GROUP = 500, 40
LOAD_SECONDS, LOAD_MIB, COMPLETION_MS = 3.0, 300.0, 150.0
START = "from fleetcheck.cli.main import main; main()"
LOAD = """
import resource, sys
from fleetcheck.inventory.load import load
from fleetcheck.inventory.selection import select
inventory = load(sys.argv[1])
chosen = select(inventory, ["rack1*", "!r1[00-09]n*", "&~n[0-3]"])
used = resource.getrusage(resource.RUSAGE_SELF)
print(len(inventory.targets), len(chosen), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def nodesets() -> str:
    """Return the inventory with its hosts as nodesets, each group with settings of its own."""
    lines = ["defaults: {user: audit, expect: {compute_capability: '12.0'}}", "groups:"]
    for group in range(GROUPS):
        lines += [f"  rack{group:03}:", f"    hosts: r{group:03}n[01-{IN_GROUP}].lab", f"    port: {2000 + group}"]
        lines += ["    venvs: [/opt/venvs/sglang, running]", f"    expect: {{gpus: {group % 8 + 1}}}"]
    return "\n".join(lines) + "\n"


def written_out() -> str:
    """Return the inventory with every host written out and addressed."""
    lines = [nodesets(), "hosts:"]
    for group in range(GROUPS):
        address = f"10.{group // 250}.{group % 250}"
        lines += [f"  r{group:03}n{n:02}.lab: {{address: {address}.{n}}}" for n in range(1, IN_GROUP + 1)]
    return "\n".join(lines) + "\n"


def completion_ms(path: Path, cache: Path) -> float:
    """Return the CPU time of one press of the tab key, in milliseconds."""
    words = f"fleetcheck hosts -i {path} r123n"
    asked = {"_FLEETCHECK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    environment = {**os.environ, **asked, "XDG_CACHE_HOME": str(cache)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", START], check=True, capture_output=True, text=True, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if len(done.stdout.split()) != IN_GROUP:
        raise RuntimeError(f"{len(done.stdout.split())} names were completed, not {IN_GROUP}")
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind (default 5)")
    runs = parser.parse_args().runs
    kept = True
    print(f"{'inventory':<14}{'hosts':>7}{'chosen':>8}{'CPU s':>8}{'MiB':>7}{'first tab ms':>14}{'tab ms':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("nodesets", nodesets()), ("written out", written_out())):
            path = Path(folder) / f"{name.replace(' ', '-')}.yaml"
            path.write_text(text)
            loads = [
                subprocess.run(
                    [sys.executable, "-c", LOAD, str(path)], check=True, capture_output=True, text=True
                ).stdout.split()
                for _ in range(runs)
            ]
            cpu = statistics.median(float(load[2]) for load in loads)
            peak = max(float(load[3]) for load in loads)
            first, *tabs = (completion_ms(path, Path(folder) / "cache") for _ in range(runs + 1))
            tab = statistics.median(tabs)
            print(f"{name:<14}{loads[0][0]:>7}{loads[0][1]:>8}{cpu:>8.2f}{peak:>7.0f}{first:>14.0f}{tab:>8.0f}")
            kept = kept and cpu < LOAD_SECONDS and peak < LOAD_MIB and tab < COMPLETION_MS
    budget = f"{LOAD_SECONDS:.0f} s, {LOAD_MIB:.0f} MiB, {COMPLETION_MS:.0f} ms"
    print(f"budgets: {budget}: {'kept' if kept else 'BROKEN'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
