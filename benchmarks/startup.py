"""What it costs to start: CPU of the commands that people type most, beside a bare interpreter.

Run it with the interpreter in whose environment fleetcheck is installed: ``python benchmarks/startup.py``.
It prints the median CPU (user and system) of several processes; it ends with 1 where ``--help`` breaks its budget.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BUDGET_MS = 100.0
START = "from fleetcheck.cli.main import main; main()"
INVENTORY = "groups: {rtx: {hosts: 'gpu[01-40].lab'}}\n"


def cpu_ms(command: list[str]) -> float:
    """Return the CPU time of one process, user and system, in milliseconds. Raises where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15, help="processes of each kind (default 15)")
    runs = parser.parse_args().runs
    python = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "inventory.yaml"
        inventory.write_text(INVENTORY)
        commands = {
            "python -c pass (baseline)": [python, "-c", "pass"],
            "fleetcheck --version": [python, "-c", START, "--version"],
            "fleetcheck --help": [python, "-c", START, "--help"],
            "fleetcheck audit --help": [python, "-c", START, "audit", "--help"],
            "fleetcheck hosts (40 hosts)": [python, "-c", START, "hosts", "-i", str(inventory)],
        }
        for command in commands.values():
            cpu_ms(command)  # the first run compiles
        # In turn, so that a busy moment of the machine hits all alike.
        samples: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                samples[name].append(cpu_ms(command))
    medians = {name: statistics.median(values) for name, values in samples.items()}
    baseline, *_ = medians.values()
    print(f"{'command':<30}{'CPU ms':>9}{'min':>9}{'ratio':>8}")
    for name, median in medians.items():
        ratio = median / baseline if baseline else float("nan")
        print(f"{name:<30}{median:>9.1f}{min(samples[name]):>9.1f}{ratio:>8.1f}")
    within = medians["fleetcheck --help"] < BUDGET_MS
    print(f"budget of --help: {BUDGET_MS:.0f} ms, {'kept' if within else 'BROKEN'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
