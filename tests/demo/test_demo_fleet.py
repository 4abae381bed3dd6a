"""The demo: the right verdict for every host, by the code that audits production, and nothing left behind."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
from support import trees
from support.sshd import descendants, wait_until

from fleetcheck.audit import audit
from fleetcheck.demo import hosts
from fleetcheck.demo.fleet import Fleet
from fleetcheck.judge import Policy
from fleetcheck.report.schema import run_schema
from fleetcheck.run import Finished, Run, exit_code


@dataclass
class Ran:
    run: Run
    before: dict[str, tuple[int, ...]]
    after: dict[str, tuple[int, ...]]
    threads: set[threading.Thread]
    processes: set[int]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("demo")
    threads, processes = set(threading.enumerate()), set(descendants(1))
    with Fleet(folder) as fleet:
        before = trees.snapshot(folder / "hosts")
        policy = Policy.of(fleet.inventory)
        events = audit(fleet.inventory.targets, inventory="demo", policy=policy, settings=fleet.settings)
        (run,) = (event.run for event in events if isinstance(event, Finished))
        after = trees.snapshot(folder / "hosts")
    wait_until(lambda: set(threading.enumerate()) <= threads)
    left = {pid for pid in set(descendants(1)) - processes if str(folder) in command_line(pid)}
    return Ran(run, before, after, set(threading.enumerate()) - threads, left)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


EXPECTED = {
    "demo-rtx01": ("ok", set()),
    "demo-rtx02": ("ok", set()),
    "demo-rtx03": ("findings", {"csrc-unexpected", "env-edited"}),
    "demo-rtx04": ("findings", {"csrc-decoy"}),
    "demo-rtx05": ("findings", {"fusion-unsafe-patch", "package-modified"}),
    "demo-rtx06": ("unreachable", set()),
    "demo-rtx07": ("findings", {"smi-hung", "expectation-unchecked"}),
    "demo-rtx08": ("findings", {"venv-missing"}),
    "demo-rtx09": ("findings", {"gpu-count", "gpu-missing"}),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_host_gets_the_right_verdict(ran: Ran, name: str) -> None:
    (host,) = (host for host in ran.run.hosts if host.name == name)
    rules = {f.rule for f in ran.run.findings if f.host == name and f.severity != "info"}
    assert (host.verdict, rules) == EXPECTED[name]


def test_the_two_healthy_hosts_differ_in_what_the_gate_says(ran: Ran) -> None:
    verdicts = [host.venvs[0].fusion.verdict for host in ran.run.hosts[:2] if host.venvs[0].fusion]
    assert verdicts == ["supported", "refused"]


def test_the_run_is_complete_and_valid(ran: Ran) -> None:
    jsonschema.validate(ran.run.to_json(), run_schema())
    assert exit_code(ran.run) == 4
    assert [host.name for host in ran.run.hosts] == sorted({*hosts.HOSTS, hosts.UNREACHABLE})


def test_no_file_of_any_host_is_touched(ran: Ran) -> None:
    assert ran.before == ran.after


def test_no_thread_and_no_process_is_left(ran: Ran) -> None:
    assert (ran.threads, ran.processes) == (set(), set())


def test_the_shipped_inventory_is_the_one_in_the_inventories_folder() -> None:
    root = Path(__file__).parents[2]
    assert (root / "inventories/demo.yaml").resolve() == root / "fleetcheck/demo/inventory.yaml"
