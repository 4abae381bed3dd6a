"""The whole audit of a fleet against plain ``ssh`` and asyncssh that gather the same, on one loopback sshd.

    python benchmarks/fleet.py [--sizes 1,8,64] [--repeat 1] [--far-side agent|recorded|both]

``fleetcheck`` is the whole command as a process: it reads the inventory, reaches the hosts, parses, judges and
prints JSON. ``ssh`` is one ssh a host under ``xargs -P 64``, with its defaults and with ``curve25519-sha256``
forced; ``asyncssh`` one event loop, 64 hosts side by side. Each sends the same script over stdin and refuses
unknown host keys. The peers only keep the answers; they neither parse nor judge.

With ``--far-side agent`` the agent does its real work on each host, over an environment and a stand-in for
nvidia-smi. Servers and clients share this machine, so that with more hosts than cores the wall time is mostly the
agent's. With ``--far-side recorded`` the server plays a recorded answer of that agent back: hosts that cost next
to nothing, so that the wall time is that of the way to them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers.measure import Cost, run
from support.loopback import LoopbackFleet
from support.program import environ
from support.sshd import NEEDS_SSHD, SSHD, wait_until

from fleetcheck.agent import bundle

WORKERS = 64
PEERS = Path(__file__).resolve().parent / "peers"
CPU_BUDGET_MS = 12.0
WALL_OF_SSH = 0.5
WALL_OF_ASYNCSSH = 1.25
JUDGED_FROM = 256
"""Hosts from which on the budgets are meant: below, it is start-up that counts."""

Client = Callable[[LoopbackFleet, int, Path], list[str]]


def fleetcheck(fleet: LoopbackFleet, count: int, _out: Path) -> list[str]:
    """Return the command of the whole audit."""
    program = str(Path(sys.executable).with_name("fleetcheck"))
    inventory = str(fleet.inventory(count))
    options = ["--ssh-config", str(fleet.config), "--workers", str(WORKERS), "--format", "json"]
    return [program, "audit", "-i", inventory, *options]


def hosts_file(fleet: LoopbackFleet, count: int, out: Path) -> Path:
    """Write a name and an address a line."""
    path = out / "hosts"
    path.write_text("".join(f"{name} {address}\n" for name, address in fleet.names(count).items()))
    return path


def script_file(fleet: LoopbackFleet, out: Path) -> Path:
    """Write what each host is sent."""
    path = out / "script"
    path.write_bytes(bundle.script(fleet.request(), bundle.new_marker()))
    return path


def openssh(kex: str) -> Client:
    """Return the client that runs one ssh a host."""

    def command(fleet: LoopbackFleet, count: int, out: Path) -> list[str]:
        for name in fleet.names(count):
            os.mkfifo(out / f"{name}.in")
        one = [str(PEERS / "ssh_client.sh"), str(script_file(fleet, out)), str(out), str(fleet.config), kex]
        return ["xargs", "-a", str(hosts_file(fleet, count, out)), "-P", str(WORKERS), "-L1", "sh", *one]

    return command


def asyncssh(fleet: LoopbackFleet, count: int, out: Path) -> list[str]:
    """Return the client that runs one event loop."""
    sshd = fleet.sshd
    paths = [hosts_file(fleet, count, out), script_file(fleet, out), out, sshd.key, fleet.known_hosts]
    words = [*map(str, paths), str(sshd.port), sshd.user, str(WORKERS)]
    return [sys.executable, str(PEERS / "asyncssh_client.py"), *words]


CLIENTS: dict[str, Client] = {
    "fleetcheck": fleetcheck,
    "ssh": openssh("default"),
    "ssh curve25519": openssh("curve25519-sha256"),
    "asyncssh": asyncssh,
}


def failures(name: str, fleet: LoopbackFleet, count: int, out: Path, printed: Path) -> int:
    """Return how many hosts have no whole answer."""
    if name == "fleetcheck":
        try:
            outcomes = json.loads(printed.read_text())["summary"]["by_outcome"]
        except (ValueError, KeyError):
            raise SystemExit(f"fleetcheck did not end well: {printed.read_text()[:500]}") from None
        return count - int(outcomes.get("checked", 0))
    answers = (out / host for host in fleet.names(count))
    return sum(not (answer.exists() and b" end " in answer.read_bytes()) for answer in answers)


def measured(name: str, fleet: LoopbackFleet, count: int) -> tuple[Cost, int]:
    """Run one client over ``count`` hosts; return its cost and how many hosts failed."""
    out = Path(tempfile.mkdtemp(dir=fleet.folder))
    printed = out / "printed"
    command = CLIENTS[name](fleet, count, out)
    cost = run(command, output=printed, environment=environ(fleet.sshd.home))
    failed = failures(name, fleet, count, out, printed)
    shutil.rmtree(out)
    if not wait_until(lambda: not fleet.sshd.sessions()):
        print("sessions were left on the server", file=sys.stderr)
    return cost, failed


def rows(
    fleet: LoopbackFleet, sizes: list[int], repeat: int, clients: list[str]
) -> Iterator[tuple[int, str, Cost, int]]:
    """Yield size, client, median cost and failures of all runs. Clients take turns: noise hits all alike."""
    for count in sizes:
        runs: dict[str, list[tuple[Cost, int]]] = {name: [] for name in clients}
        for _ in range(repeat):
            for name in clients:
                runs[name].append(measured(name, fleet, count))
        for name, results in runs.items():
            costs = [cost for cost, _ in results]
            middle = Cost(
                statistics.median(cost.wall for cost in costs),
                statistics.median(cost.cpu for cost in costs),
                max(cost.memory for cost in costs),
                costs[0].status,
            )
            yield count, name, middle, sum(failed for _, failed in results)


def judge(found: dict[tuple[int, str], Cost]) -> list[str]:
    """Return a line for each budget that is broken."""
    broken = []
    for count in sorted({count for count, _ in found if count >= JUDGED_FROM}):
        ours = found[count, "fleetcheck"]
        if (milliseconds := 1000 * ours.cpu / count) > CPU_BUDGET_MS:
            broken.append(f"{count} hosts: {milliseconds:.1f} ms of CPU a host, more than {CPU_BUDGET_MS:g}")
        for name, limit in (("ssh", WALL_OF_SSH), ("asyncssh", WALL_OF_ASYNCSSH)):
            peer = found.get((count, name))
            if peer is not None and ours.wall > limit * peer.wall:
                broken.append(
                    f"{count} hosts: {ours.wall / peer.wall:.2f} of the wall of {name}, more than {limit:g}"
                )
    return broken


def table(far_side: str, options: argparse.Namespace) -> tuple[int, list[str]]:
    """Measure and print one table; return the number of hosts that failed, and what broke its budget."""
    found: dict[tuple[int, str], Cost] = {}
    failed_in_all = 0
    folder = Path(tempfile.mkdtemp(prefix="fleetcheck-bench-"))
    try:
        with LoopbackFleet(folder, recorded=far_side == "recorded", padding=max(options.sizes)) as fleet:
            print(f"\nfar side: {far_side}")
            print("| hosts | client | wall s | ratio | client CPU ms a host | ratio | peak MiB | failed |")
            print("|---|---|---|---|---|---|---|---|")
            for count, name, cost, failed in rows(fleet, options.sizes, options.repeat, options.clients):
                found[count, name] = cost
                failed_in_all += failed
                ours = found[count, options.clients[0]]
                wall, cpu = cost.wall / ours.wall, cost.cpu / ours.cpu
                milliseconds = 1000 * cost.cpu / count
                start = f"| {count} | {name} | {cost.wall:.2f} | {wall:.2f} | {milliseconds:.1f} | {cpu:.2f} "
                print(f"{start}| {cost.memory:.0f} | {failed} |", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return failed_in_all, judge(found) if far_side == "recorded" and "fleetcheck" in options.clients else []


def main() -> int:
    """Measure and print; return 1 where a host failed or, with a recorded far side, a budget is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")], default=[1, 8, 64])
    parser.add_argument("--repeat", type=int, default=1, help="runs of each client, in turn; the median is shown")
    parser.add_argument("--far-side", choices=["agent", "recorded", "both"], default="both")
    parser.add_argument(
        "--clients", type=lambda text: text.split(","), default=list(CLIENTS), help=", ".join(CLIENTS)
    )
    options = parser.parse_args()
    if SSHD is None or shutil.which("ssh") is None or shutil.which("xargs") is None:
        print(f"{NEEDS_SSHD}, ssh and xargs", file=sys.stderr)
        return 2
    sides = ["recorded", "agent"] if options.far_side == "both" else [options.far_side]
    results = [table(side, options) for side in sides]
    broken = [line for _, lines in results for line in lines]
    print("\n".join(["", *broken]) if broken else "")
    return 1 if broken or any(failed for failed, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
