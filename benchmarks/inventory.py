"""What a large inventory costs: 20,000 hosts in 500 groups of the native format.

Run it with the interpreter in whose environment fleetcheck is installed: ``python benchmarks/inventory.py``. It
prints CPU (user and system) and peak memory of loading, validating and selecting, and the CPU of completing a
host's name at a shell: the first press of the tab key after the inventory has changed, and any later one. It ends
with 1 where a budget is broken. Where ansible-core is installed, the same is asked of an Ansible inventory: its
first press waits for ``ansible-inventory`` and has no budget.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fleetcheck.inventory import ansible_run

GROUPS, IN_GROUP = 500, 40
LOAD_SECONDS, LOAD_MIB, COMPLETION_MS = 3, 300, 150
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


def ini() -> str:
    """Return the same hosts as an Ansible inventory."""
    racks = range(GROUPS)
    return "".join(f"[rack{n:03}]\nr{n:03}n[01:{IN_GROUP}].lab ansible_port={2000 + n}\n" for n in racks)


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


def load(path: Path) -> list[str]:
    """Return what a process of its own says of loading: hosts, chosen hosts, CPU seconds, MiB."""
    command = [sys.executable, "-c", LOAD, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind (default 5)")
    runs = parser.parse_args().runs
    rows: list[tuple[str, str, float, float, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        for name, text in (("nodesets", nodesets()), ("written out", written_out())):
            path = Path(folder) / f"{name.replace(' ', '-')}.yaml"
            path.write_text(text)
            loads = [load(path) for _ in range(runs)]
            what = f"load, select {loads[0][1]} of {loads[0][0]}"
            rows.append((name, what, statistics.median(float(one[2]) for one in loads), LOAD_SECONDS, "s CPU"))
            rows.append((name, what, max(float(one[3]) for one in loads), LOAD_MIB, "MiB"))
            firsts = []
            for number in range(runs):
                path.write_text(f"{text}# change {number}\n")
                firsts.append(completion_ms(path, cache))
            rows.append((name, "first tab after a change", statistics.median(firsts), COMPLETION_MS, "ms CPU"))
            tabs = [completion_ms(path, cache) for _ in range(runs)]
            rows.append((name, "later tab", statistics.median(tabs), COMPLETION_MS, "ms CPU"))
        if ansible_run.find() is not None:
            path = Path(folder) / "hosts.ini"
            path.write_text(ini())
            rows.append(("Ansible's", "first tab after a change", completion_ms(path, cache), math.inf, "ms CPU"))
            tabs = [completion_ms(path, cache) for _ in range(runs)]
            rows.append(("Ansible's", "later tab", statistics.median(tabs), COMPLETION_MS, "ms CPU"))
    print(f"{'inventory':<13}{'what':<29}{'seen':>8}{'budget':>8}")
    for name, what, seen, budget, unit in rows:
        broken = "" if seen < budget else "  BROKEN"
        most = budget if budget < math.inf else "-"
        print(f"{name:<13}{what:<29}{seen:>8.{2 if seen < 10 else 0}f}{most:>8} {unit}{broken}")
    return 0 if all(seen < budget for _, _, seen, budget, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
