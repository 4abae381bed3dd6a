"""A year of half-hourly runs of 100 hosts: how large the history gets, and the CPU of asking it.

Run: ``python benchmarks/history.py [RUNS]``. Bounds: 200 MB; 1 s of CPU for ``history HOST`` and for ``diff``.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import nights, runs

from fleetcheck.history import pack
from fleetcheck.history.store import History
from fleetcheck.rules.finding import Finding
from fleetcheck.run import HostResult, Run

HOSTS = 100
YEAR = 365 * 48
MAX_BYTES = 200e6
MAX_CPU = 1.0
START = "from fleetcheck.cli.main import main; main()"
CHANGES = 1 / (3 * 48)
"""How often a host changes: every third day, which is a busy fleet. Half of it is seen, half is a failed look."""


class Fleet:
    """Hosts that change at random, always in the same way for one seed."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        self.hosts = {f"gpu{number:03}.lab": self._host(f"gpu{number:03}.lab") for number in range(HOSTS)}
        self._back: dict[str, tuple[HostResult, tuple[Finding, ...]]] = {}

    def _host(self, name: str) -> tuple[HostResult, tuple[Finding, ...]]:
        number = self._random.randrange(10**6)
        files = tuple(
            {
                "path": f"/opt/ml-env/lib/python3.11/site-packages/flashinfer/{item}.py",
                "sha256": f"{number:08x}" * 8,
            }
            for item in range(30)
        )
        venv = runs.venv("/opt/ml-env", version=f"0.6.{number % 30}", files=files)
        packages = {f"package-{item}": f"1.{(number + item) % 50}" for item in range(25)}
        gpus = runs.gpus(driver=f"580.{number % 90}.05", diagnostics=tuple(f"note {number}" for _ in range(3)))
        host = nights.machine(name, gpus=gpus, venvs=(venv.model_copy(update={"packages": packages}),) * 2)
        bad = tuple(runs.finding(name, f"rule-{item}", remedy=("step " * 20,) * 3) for item in range(number % 4))
        return host.model_copy(update={"verdict": "findings" if bad else "ok"}), bad

    def next(self) -> dict[str, tuple[HostResult, tuple[Finding, ...]]]:
        """Return the hosts that are not as in the run before."""
        changed = dict(self._back)
        self._back.clear()
        for name in self.hosts:
            if self._random.random() < CHANGES:
                if self._random.random() < 0.5:
                    changed[name] = self._host(name)
                else:
                    self._back[name] = self.hosts[name]
                    changed[name] = (
                        runs.host(name, "unreachable", message=f"refused {self._random.random()}"),
                        (),
                    )
        self.hosts |= changed
        return changed


def write(path: Path, count: int) -> None:
    """Write the year. Hosts that did not change get the row that storing them again would write."""
    fleet = Fleet()
    began = datetime.now(UTC) - timedelta(minutes=30 * count)
    states: dict[str, int] = {}
    with History.open(path) as history:
        db = history.connection
        for number in range(count):
            changed = fleet.next() if number else dict(fleet.hosts)
            whole = number in (0, count - 1)
            taken = fleet.hosts if whole else changed
            made = _run(number, taken, began)
            stored = history.begin(made.run, source="fleet.yaml", cron=True)
            history.store(stored, made)
            for name, state in db.execute(
                "SELECT host.name, look.state FROM look JOIN host ON host.id = look.host WHERE run = ?", (stored,)
            ):
                states[name] = state
            with history.writing():
                db.executemany(
                    "INSERT INTO look SELECT id, ?, ?, 1, 700 FROM host WHERE name = ?",
                    [(stored, states[name], name) for name in fleet.hosts if name not in taken],
                )
                db.execute("UPDATE run SET hosts = ? WHERE seq = ?", (len(fleet.hosts), stored))


def _run(number: int, taken: dict[str, tuple[HostResult, tuple[Finding, ...]]], began: datetime) -> Run:
    findings = [item for _, found in taken.values() for item in found]
    at = began + timedelta(minutes=30 * number)
    return nights.run(number, [host for host, _ in taken.values()], findings, at=at)


def cpu(*args: str) -> float:
    """Return the CPU seconds of one call of the program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", START, *args], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode > 1 or not done.stdout:
        raise SystemExit(f"{args}: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure; return 1 where a bound is not kept."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else YEAR
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        begun = time.process_time()
        write(path, count)
        print(f"{count} runs of {HOSTS} hosts written with {time.process_time() - begun:.0f} s of CPU")
        size = path.stat().st_size
        print(f"size         {size / 1e6:6.1f} MB (at most {MAX_BYTES / 1e6:.0f})")
        kept = size <= MAX_BYTES
        for args in (
            ("history", "gpu042.lab"), ("diff",), ("diff", "latest~336"), ("diff", f"latest~{count - 1}"),
            ("history",), ("show", "gpu042.lab", "--run", "latest"), ("history", "--check"),
        ):  # fmt: skip
            seconds = min(cpu(*args, "--db", str(path)) for _ in range(2))
            bound = args[0] != "history" or "--check" not in args
            kept = kept and (seconds < MAX_CPU or not bound)
            print(f"{' '.join(args):<32} {seconds:5.2f} s of CPU{' (at most 1)' if bound else ''}")
        host = Fleet().hosts["gpu042.lab"]
        begun = time.process_time()
        for _ in range(100):
            pack.mark(host[0].name, host[0].verdict, pack.parts(*host))
        print(f"to store a host that did not change: {(time.process_time() - begun) * 10:.2f} ms of CPU")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
