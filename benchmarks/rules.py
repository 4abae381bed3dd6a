"""What it costs to judge, fold and search 5,000 hosts with full facts: CPU seconds and peak memory.

Run: ``python benchmarks/rules.py [HOSTS]``. The facts are typed before the clock starts, as evidence is typed
while the network is waited for. Ends with 1 above 10 s or 500 MB, facts included.
"""

from __future__ import annotations

import resource
import sys
import time
from datetime import date
from typing import Any

from fleetcheck.agent.evidence import Evidence
from fleetcheck.differences import fold
from fleetcheck.facts.records import HostFacts
from fleetcheck.inventory.model import Expect, Target, VenvItem, Waiver
from fleetcheck.judge import Policy, _member, _result  # the pipeline's own steps, one by one
from fleetcheck.policy import accepted, waive
from fleetcheck.rules.judge import judge_fleet, judge_host

SECONDS, MEGABYTES = 10.0, 500
EXPECT = Expect(
    gpus=8, compute_capability="12.0", driver=">=580", gpu_name="NVIDIA RTX PRO 6000 Blackwell Server Edition"
)
FILES = 10
"""As many files as the agent sends of FlashInfer 0.6.2 as installed."""


def venv(path: str, version: str) -> dict[str, Any]:
    """Return an environment with everything that can be known of it."""
    root = f"{path}/lib/python3.12/site-packages/flashinfer"
    files = [
        {
            "path": f"{root}/jit/file{number}.py",
            "sha256": f"{number:064x}",
            "size": 1000,
            "modified_at": 1.7e9,
            "record": "match",
        }
        for number in range(FILES)
    ]
    return {
        "path": path, "real": path, "item": path, "python": "3.12.3", "prefix": path, "activation_matches": True,
        "flashinfer": {
            "version": version, "root": root, "csrc_dir": f"{root}/data/csrc", "csrc_real": f"{root}/data/csrc",
            "csrc_default": f"{root}/data/csrc", "csrc_state": "complete", "env_record": "match",
            "install": "wheel",
            "constants": {f"FLASHINFER_{number}": f"{root}/{number}" for number in range(20)}, "files": files,
        },
        "fusion": {"verdict": "refused", "effective": "off", "gate": [9, 10], "guards": 13, "gate_state": "read"},
        "torch": {"version": "2.9.0+cu129", "cuda": "12.9"},
        "toolchain": {"cuda_home": "/usr/local/cuda", "nvcc": "12.9"},
        "packages": {"sglang": "0.5.9", "flashinfer-python": version, "flashinfer-cubin": version},
    }  # fmt: skip


def facts(number: int) -> HostFacts:
    """Return a host with eight GPUs and two environments; one in fifty differs, one in a hundred is broken."""
    devices = [
        {
            "index": index, "uuid": f"GPU-{number}-{index}", "serial": f"{number}{index}", "name": EXPECT.gpu_name,
            "bus_id": f"00000000:{index + 16:02X}:00.0", "compute_capability": "12.0", "memory_mib": 97887,
            "state": "ok",
        }
        for index in range(8)
    ]  # fmt: skip
    old = number % 50 == 0
    return HostFacts.model_validate({
        "system": {"hostname": f"gpu{number}", "kernel": "6.1", "machine_id": str(number), "boot_time": 1.7e9},
        "gpus": {
            "state": "ok" if number % 100 else "missing", "count": 8 if number % 100 else 7, "pci_count": 8,
            "compute_capability": ["12.0"], "names": [EXPECT.gpu_name], "devices": devices,
            "driver": "580.95.05" if not old else "580.65.06",
        },
        "toolkits": [{"path": "/usr/local/cuda-12.9", "nvcc": "12.9"}],
        "venvs": [venv("/opt/serve", "0.6.2" if not old else "0.5.3"), venv("/opt/next", "0.6.18")],
        "venvs_known": True,
    })  # fmt: skip


def main(count: int) -> int:
    """Judge, search and fold; print what each costs; return the exit code."""
    items = (VenvItem(path="/opt/serve"), VenvItem(path="/opt/next"))
    targets = [
        Target(name=f"gpu{number:05d}", groups=("site", f"rack{number // 40}"), expect=EXPECT, venvs=items)
        for number in range(count)
    ]
    known = [facts(number) for number in range(count)]
    waivers = (
        Waiver(rule="gpu-missing", hosts=f"gpu[00000-{count - 1:05d}]", reason="known", until=date(2999, 1, 1)),
    )
    policy = Policy(waivers=waivers)
    start = at = time.process_time()
    taken: dict[str, float] = {}

    def lap(name: str) -> None:
        nonlocal at
        now = time.process_time()
        taken[name], at = now - at, now

    by_host = accepted(policy, date(2026, 11, 30))
    findings = {
        target.name: waive(judge_host(target, one), by_host) for target, one in zip(targets, known, strict=True)
    }
    hosts = [
        _result(target, Evidence(target.name, "checked"), one, "ok")
        for target, one in zip(targets, known, strict=True)
    ]
    lap("judge")
    found = judge_fleet([_member(host) for host in hosts], findings, waivers=waivers, day=date(2026, 11, 30))
    lap("outliers")
    groups = fold(hosts)
    lap("fold")
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name, spent in taken.items():
        print(f"{name:10} {spent:6.2f} s")
    total = sum(map(len, findings.values()))
    print(f"{count} hosts: {seconds:.2f} s of CPU, {peak:.0f} MB at most")
    print(f"{total} findings of hosts, {len(found)} of the fleet, {len(groups)} groups of equal hosts")
    return int(seconds > SECONDS or peak > MEGABYTES)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
