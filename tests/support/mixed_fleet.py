"""A fleet as one finds it: eight RTX PRO 6000 a host, most in order. Facts by hand, findings by the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from hashlib import sha256
from itertools import combinations
from typing import Any

from fleetcheck.agent.evidence import Evidence, Outcome, Stage
from fleetcheck.facts.records import HostFacts
from fleetcheck.inventory.model import Expect, Target, VenvItem, Waiver
from fleetcheck.judge import (
    Policy,
    _joined,
    _member,
    _result,
    _verdict,
)  # the pipeline's own steps, without evidence to parse
from fleetcheck.policy import accepted, waive
from fleetcheck.rules.judge import judge_fleet, judge_host
from fleetcheck.run import HostDone, Run, RunInfo, summarise

NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
VENV = "/opt/venvs/serve"
SITE = f"{VENV}/lib/python3.12/site-packages"
ROOT = f"{SITE}/flashinfer"
DAY = date(2030, 1, 14)
BOOTED = 1_893_000_000.0
INFO = RunInfo(
    id="20300114T021500Z-5c1e07", started="2030-01-14T02:15:00.000Z", finished="2030-01-14T02:16:12.000Z",
    version="0.1.0", inventory="fleet.yaml", complete=True, fail_on="error",
)  # fmt: skip
EXPECT = Expect(gpus=8, compute_capability="12.0", gpu_name=NAME, driver=">=580.95.05")
HEADER = "data/include/flashinfer/comm/trtllm_allreduce.cuh"
Facts = dict[str, Any]
Lost = tuple[Outcome, Stage, str, str]


def device(index: int, number: int, **more: Any) -> Facts:
    return {
        "index": index, "uuid": f"GPU-{number:08x}-7c1d-4f0e-9a52-{index:012x}", "name": NAME,
        "serial": f"17605240{number:04d}{index}", "bus_id": f"00000000:{0x20 * index + 1:02X}:00.0",
        "compute_capability": "12.0", "compute_capability_basis": "reported", "memory_mib": 97887, "state": "ok",
        "vbios": "98.02.8D.00.01", "pcie_width": 16, "pcie_width_max": 16, "pcie_generation": 5,
        "pcie_generation_max": 5, "power_limit": 600.0, "power_limit_max": 600.0, "temperature": 44 + index % 5,
        "utilization": 87 + index, "persistence": True, "ecc": True, "ecc_pending": True, "ecc_uncorrected": 0,
        "mig": False, "mig_pending": False, "rows_pending": False, "rows_failed": False, **more,
    }  # fmt: skip


def way(low: int, high: int) -> str:
    """Return how two GPUs of a board with two sockets and two PCIe switches a socket are linked."""
    return "PIX" if low // 2 == high // 2 else "NODE" if low // 4 == high // 4 else "SYS"


def gpus(number: int, count: int = 8, **more: Any) -> Facts:
    listed = [device(index, number) for index in range(count)]
    return {
        "state": "ok", "count": count, "pci_count": 8, "compute_capability": ["12.0"], "names": [NAME],
        "driver": "580.95.05", "driver_userspace": "580.95.05", "kernel_module": "open", "devices": listed,
        "link": "SYS", "nvlink": False, "iommu": "passthrough",
        "links": {f"{low}-{high}": way(low, high) for low, high in combinations(range(count), 2)},
        "p2p": {f"{low}-{high}": "OK" for low, high in combinations(range(count), 2)}, **more,
    }  # fmt: skip


def venv(version: str = "0.6.18", flash: Facts | None = None, **more: Any) -> Facts:
    new = version == "0.6.18"
    gate = [9, 10, 12] if new else [9, 10]
    files = ("jit/comm.py", "jit/env.py", "jit/core.py", HEADER, "compilation_context.py", "version.py")
    package = {
        "version": version, "root": ROOT, "csrc_dir": f"{ROOT}/data/csrc", "csrc_real": f"{ROOT}/data/csrc",
        "csrc_default": f"{ROOT}/data/csrc", "csrc_state": "complete", "env_record": "match", "install": "wheel",
        "verified": True, "recorded_version": version,
        "distributions": [
            {"name": "flashinfer-python", "version": version, "installer": "uv",
             "path": f"{SITE}/flashinfer_python-{version}.dist-info"},
        ],
        "files": [
            {"path": f"{ROOT}/{name}", "sha256": f"{hash_of(version + name)}", "size": 900 + 31 * place,
             "modified_at": BOOTED - 86400 * 9, "record": "match"}
            for place, name in enumerate(files)
        ],
        "constants": {
            "FLASHINFER_CACHE_DIR": "/var/lib/serve/.cache/flashinfer", "FLASHINFER_CSRC_DIR": f"{ROOT}/data/csrc",
            "FLASHINFER_INCLUDE_DIR": f"{ROOT}/data/include",
        },
    }  # fmt: skip
    fusion = {
        "verdict": "supported" if new else "refused", "effective": "off", "gate": gate, "gate_state": "read",
        "gate_file": "jit/comm.py", "guards": 0 if new else 13, "frameworks": {"sglang": "0.5.20"},
        "gates": {"gen_trtllm_comm_module": gate, "gen_vllm_comm_module": None},
        "closed": [] if new else ["gen_trtllm_comm_module"],
    }  # fmt: skip
    return {
        "path": VENV, "real": VENV, "item": VENV, "python": "3.12.11", "prefix": VENV, "activated_prefix": VENV,
        "executable": f"{VENV}/bin/python", "activated_python": f"{VENV}/bin/python3", "activation_matches": True,
        "flashinfer": {**package, **(flash or {})}, "fusion": fusion,
        "torch": {"version": "2.9.1+cu129", "cuda": "12.9"},
        "toolchain": {"cuda_home": "/usr/local/cuda-12.9", "nvcc": "12.9.86", "found": True, "named_by": "default",
                      "nvcc_path": "/usr/local/cuda-12.9/bin/nvcc", "searched": True, "python_headers": True,
                      "compiler": "/usr/bin/c++", "ninja": f"{VENV}/bin/ninja"},
        "packages": {"flashinfer-python": version, "sglang": "0.5.20", "torch": "2.9.1+cu129"}, **more,
    }  # fmt: skip


def hash_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def host(number: int, **more: Any) -> Facts:
    """Return a host in good order that serves, with what is given laid over it."""
    server = {
        "pid": 4100 + number, "user": "serve", "started_at": BOOTED + 900, "server": "sglang", "place": "host",
        "title": "sglang::scheduler_TP0", "venv": VENV, "venv_basis": "mapped", "mapped": [ROOT], "uses_gpu": True,
        "flags": {"--tp-size": "8", "--model-path": "/models/llama-70b-fp8", "--attention-backend": "flashinfer"},
        "environment": {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "NCCL_P2P_LEVEL": "SYS"},
    }  # fmt: skip
    cache = {
        "path": "/var/lib/serve/.cache/flashinfer", "user": "serve", "exists": True, "owner": 998,
        "modules": [
            {"name": name, "path": f"/var/lib/serve/.cache/flashinfer/0.6.18/120f/cached_ops/{name}",
             "version": "0.6.18", "arch": "120f", "built": True, "built_at": BOOTED + 1200 + place,
             "cuda_home": "/usr/local/cuda-12.9", "csrc": [{"path": f"{ROOT}/data/csrc", "exists": True}]}
            for place, name in enumerate(("batch_prefill", "norm", "page", "sampling"))
        ],
    }  # fmt: skip
    return {
        "system": {"hostname": name(number).partition(".")[0], "kernel": "6.8.0-87-generic", "boot_time": BOOTED,
                   "machine_id": hash_of(str(number)), "user": "audit", "python": "3.12.3"},
        "gpus": gpus(number), "toolkits": [{"path": "/usr/local/cuda-12.9", "nvcc": "12.9.86"}],
        "venvs": [venv()], "venvs_known": True, "processes": [server], "caches": [cache], **more,
    }  # fmt: skip


def edited(number: int) -> Facts:
    moved = f"{ROOT}/csrc"
    flash = {"csrc_dir": moved, "csrc_real": moved, "csrc_state": "missing", "env_record": "mismatch",
             "modified": ["jit/env.py"]}  # fmt: skip
    return host(number, venvs=[venv("0.6.2", flash)])


def decoy(number: int) -> Facts:
    return host(number, venvs=[venv("0.6.2", {"decoy": f"{ROOT}/csrc", "decoy_files": 3})])


def unsafe(number: int) -> Facts:
    made = venv("0.6.2", {"modified": ["jit/comm.py"]})
    made["fusion"] |= {"verdict": "unsafe-patch", "effective": "on-unvalidated", "gate": [9, 10, 12], "closed": []}
    return host(number, venvs=[made])


def lost(number: int) -> Facts:
    gone = {"bus_id": "00000000:E1:00.0", "name": None, "state": "missing"}
    listed = [device(index, number) for index in range(7)]
    xids = [{"code": 79, "bus_id": "00000000:E1:00.0", "seconds": 81233.1, "text": "GPU has fallen off the bus."}]
    return host(number, gpus=gpus(number, 7, state="missing", devices=[*listed, gone], xids=xids))


def narrow(number: int) -> Facts:
    listed = [device(index, number, **({"pcie_width": 8} if index == 2 else {})) for index in range(8)]
    return host(number, gpus=gpus(number, devices=listed))


def sleepy(number: int) -> Facts:
    return host(
        number, gpus=gpus(number, devices=[device(index, number, persistence=False) for index in range(8)])
    )


def behind(number: int) -> Facts:
    return host(number, gpus=gpus(number, driver="575.57.08", driver_userspace="575.57.08"))


def hung(number: int) -> Facts:
    return host(
        number, gpus={"state": "hung", "pci_count": 8, "driver": "580.95.05", "blocked": ["nvidia-smi (90411)"]}
    )


def older(number: int) -> Facts:
    return host(number, venvs=[venv("0.6.2")])


def gone(number: int) -> Facts:
    missing = {"path": VENV, "item": VENV, "state": "missing", "error": "No such file or directory"}
    return host(number, venvs=[missing], processes=[])


REFUSED: Lost = (
    "unreachable",
    "connect",
    "refused",
    "cannot connect: nothing listens there, or a firewall refuses it",
)
SILENT: Lost = ("timeout", "banner", "banner", "connected, but no SSH banner came in 15 s")
DENIED: Lost = ("auth-failed", "auth", "publickey", "the server accepts none of the offered keys (publickey)")
CHANGED: Lost = ("host-key-changed", "kex", "ssh-ed25519", "the host key is not the one in known_hosts")
RESTING: Lost = ("skipped", "queue", "maintenance", "maintenance until 2030-02-01: chassis swap")
Kind = Callable[[int], Facts] | Lost
KINDS: Mapping[int, Kind] = {
    3: edited, 7: narrow, 9: REFUSED, 12: unsafe, 14: older, 15: older, 18: lost, 21: decoy, 23: sleepy, 26: older,
    27: behind, 30: hung, 31: RESTING, 33: gone, 35: narrow, 36: older, 38: SILENT, 39: sleepy,
}  # fmt: skip
"""What the hosts of each forty are, where they are not in order; every other forty has fewer of them."""
RARE: Mapping[int, Kind] = {3: older, 12: older, 18: narrow, 27: DENIED, 31: CHANGED, 36: edited}


def name(number: int) -> str:
    return f"gpu{number + 1:03d}.rack{number // 8 + 1:02d}.lab"


def fleet(count: int) -> Run:
    """Return the run of so many hosts."""
    waivers = (Waiver(rule="pcie-width", hosts=name(7), reason="slot wired x8", until=date(2030, 6, 1)),)
    policy = Policy(waivers=waivers)
    by_host = accepted(policy, DAY)
    done = [looked(number, by_host) for number in range(count)]
    members = [_member(one.host) for one in done]
    known = {one.host.name: one.findings for one in done}
    whole = waive(judge_fleet(members, known, waivers=waivers, day=DAY), by_host)
    ended = [_joined(one, [item for item in whole if item.host == one.host.name], "error") for one in done]
    hosts = tuple(one.host for one in ended)
    findings = (*(item for item in whole if item.host is None), *(item for one in ended for item in one.findings))
    return Run(run=INFO, summary=summarise(hosts), hosts=hosts, findings=findings)


def looked(number: int, by_host: Mapping[str, Any]) -> HostDone:
    kind = (KINDS if number // 40 % 3 == 0 else RARE).get(number % 40, host)
    groups = ("rtx6000", f"rack{number // 8 + 1:02d}")
    items = (VenvItem(path=VENV),)
    address = f"10.20.{number // 250}.{number % 250 + 1}"
    target = Target(name=name(number), address=address, groups=groups, venvs=items, expect=EXPECT)
    look, facts = Evidence(target.name, "checked", seconds=1.4 + number % 7 / 10), HostFacts()
    if isinstance(kind, tuple):
        look = Evidence(target.name, *kind, attempts=2 if kind[0] == "timeout" else 1)
    else:
        facts = HostFacts.model_validate(kind(number))
    findings = waive(judge_host(target, facts), by_host)
    return HostDone(_result(target, look, facts, _verdict(look.outcome, findings, "error")), findings)
