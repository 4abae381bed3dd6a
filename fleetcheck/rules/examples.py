"""One example for each rule: a host, or a small run, on which it fires. For documentation."""

from __future__ import annotations

from datetime import date
from typing import Any

from fleetcheck.facts.records import Gpus, HostFacts
from fleetcheck.inventory.model import Target, Waiver
from fleetcheck.rules.examples_base import (
    ADMITTED,
    BUILT,
    BUS,
    CACHE,
    CALLER,
    GPUS,
    ROOT,
    SGLANG,
    SHA,
    SITE,
    UUID,
    VENV,
    bare,
    fusion,
    gpus,
    host,
    mute,
    venv,
)
from fleetcheck.rules.examples_gpu import GPU_EXAMPLES
from fleetcheck.rules.examples_serving import SERVING_EXAMPLES, process
from fleetcheck.rules.finding import Finding
from fleetcheck.rules.judge import judge_fleet, judge_host
from fleetcheck.rules.rule import Member

EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "activate-mismatch": ({}, host(venv(activation_matches=False, activated_prefix="/root/old-env"))),
    "basis-disagrees": ({}, host(venv({"version": "0.6.2", "recorded_version": "0.6.17"}))),
    "companion-mismatch": (
        {},
        host(venv({"companions": [{"name": "flashinfer-cubin", "version": "0.6.1"}]})),
    ),
    "compute-capability": ({"compute_capability": "12.0"}, gpus(compute_capability=["9.0"])),
    "csrc-decoy": ({}, host(venv({"decoy": f"{ROOT}/csrc", "decoy_files": 2}))),
    "csrc-incomplete": (
        {},
        host(
            venv(
                {
                    "csrc_state": "incomplete",
                    "csrc_missing": ["trtllm_allreduce_fusion.cu"],
                    "csrc_missing_count": 1,
                }
            )
        ),
    ),
    "csrc-missing": ({}, host(venv({"csrc_state": "missing"}))),
    "csrc-outside-venv": (
        {},
        host(venv({"csrc_real": "/root/flashinfer/csrc", "install": "editable", "env_record": "no-record"})),
    ),
    "csrc-shadowed": (
        {},
        host(venv({"shadows": [{"by": "PYTHONPATH", "path": "/root/flashinfer/flashinfer"}]})),
    ),
    "csrc-startup": (
        {},
        host(
            venv({"start_files": [{"file": f"{SITE}/sitecustomize.py", "line": 3, "word": "FLASHINFER_CSRC_DIR"}]})
        ),
    ),
    "csrc-unreadable": (
        {},
        host(
            venv({"csrc_dir": None, "csrc_state": "unreadable", "env_record": "unreadable", "env_error": "EACCES"})
        ),
    ),
    "cubins-lack-arch": (
        {},
        host(
            venv(
                {
                    "version": "0.6.11",
                    "companions": [{"name": "flashinfer-cubin", "version": "0.6.11"}],
                    "cubins": {"100": 1412, "103": 96},
                }
            )
        ),
    ),
    "csrc-unexpected": ({"csrc_dir": f"{ROOT}/csrc"}, host(venv())),
    "driver-mismatch": ({}, mute("driver-mismatch", driver="570.169", driver_userspace="580.95")),
    "driver-unloaded": ({"gpus": 8}, mute("driver-unloaded")),
    "driver-version": ({"driver": ">=580.95.05"}, gpus(driver="570.169")),
    "env-edited": (
        {},
        host(
            venv(
                {
                    "env_record": "mismatch",
                    "csrc_dir": "/root/flashinfer/csrc",
                    "csrc_real": "/root/flashinfer/csrc",
                }
            )
        ),
    ),
    "expectation-unchecked": ({"sglang": ">=0.5.18"}, host(bare("ok", packages={"sglang": "main"}))),
    "expectation-unmet": ({"flashinfer": ">=0.6.17"}, host(venv())),
    "flashinfer-missing": ({}, host(bare("no-flashinfer"))),
    "flashinfer-mixed": (
        {},
        host(
            venv(
                {
                    "distributions": [
                        {
                            "name": "flashinfer-python",
                            "version": one,
                            "path": f"{SITE}/flashinfer_python-{one}.dist-info",
                        }
                        for one in ("0.6.0", "0.6.2")
                    ]
                }
            )
        ),
    ),
    "flashinfer-remnant": ({}, host(bare("remnant", flashinfer={"root": ROOT}))),
    "framework-patched": (
        {},
        host(
            venv(
                fusion=fusion(
                    "refused",
                    callers=[{**SGLANG, "admits": [9, 10, 12], "modified": ["srt/layers/communicator.py"]}],
                )
            )
        ),
    ),
    "fusion-gate-unreadable": (
        {},
        host(venv(fusion=fusion("unreadable", gate_state="unreadable", gate_error="SyntaxError in line 60"))),
    ),
    "fusion-patched": (
        {},
        host(
            venv({"verified": True}, fusion=fusion("patched", gate=[9, 10, 12], guards=0)),
            processes=[],
            caches=[{"path": CACHE, "exists": False}],
        ),
    ),
    "fusion-prebuilt-wins": (
        {"files": {"data/csrc/trtllm_allreduce.cu": SHA}},
        host(
            venv(
                {
                    "modified": ["data/csrc/trtllm_allreduce.cu"],
                    "files": [{"path": "data/csrc/trtllm_allreduce.cu", "sha256": SHA, "record": "mismatch"}],
                    "prebuilt": [f"{SITE}/flashinfer_jit_cache/jit_cache/trtllm_comm"],
                    "companions": [{"name": "flashinfer-jit-cache", "version": "0.6.2+cu130"}],
                }
            )
        ),
    ),
    "fusion-refused": ({}, host(venv(fusion=fusion("refused", gate=[9, 10], guards=13)))),
    "fusion-unsafe-patch": (
        {},
        host(
            venv({"modified": ["jit/comm.py"]}, fusion=fusion("unsafe-patch", **ADMITTED, callers=[CALLER])),
            processes=[process(user="serve")],
            caches=[{"path": CACHE, "exists": True, "user": "serve", "modules": [BUILT]}],
        ),
    ),
    "fusion-would-crash": (
        {},
        host(
            venv(
                {"version": "0.5.3"},
                fusion=fusion(
                    "refused",
                    effective="would-crash",
                    gate=[9, 10],
                    guards=13,
                    callers=[
                        {
                            **SGLANG,
                            "version": "0.5.7",
                            "admits": [7, 8, 9, 10, 11, 12],
                            "auto_enables": [9, 10, 12],
                        }
                    ],
                ),
            )
        ),
    ),
    "gpu-count": ({"gpus": 8}, gpus(count=7, pci_count=7)),
    "gpu-fault": (
        {},
        gpus(state="fault", count=7, devices=[{"bus_id": BUS, "state": "fault", "note": "GPU is lost."}]),
    ),
    "gpu-missing": (
        {"gpus": 8},
        gpus(
            state="missing",
            count=7,
            devices=[{"bus_id": BUS, "state": "missing", "serial": "1321524040017", "uuid": UUID}],
        ),
    ),
    "gpu-name": (
        {"gpu_name": "NVIDIA RTX PRO 6000 Blackwell Server Edition"},
        gpus(names=["NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"]),
    ),
    "gpu-unreadable": (
        {},
        mute("nvml-error", diagnostics=["Failed to initialize NVML: Unknown Error"]),
    ),
    "import-failed": (
        {},
        host(
            venv({"imported_state": "failed", "imported_error": "ModuleNotFoundError: No module named 'tvm_ffi'"})
        ),
    ),
    "import-unchecked": (
        {},
        host(venv({"imported_state": "no-gpu", "imported_error": "RuntimeError: No CUDA GPUs are available"})),
    ),
    "package-modified": ({}, host(venv({"modified": ["comm/mapping.py"]}))),
    "smi-hung": ({"gpus": 8}, mute("hung")),
    "smi-missing": ({"gpus": 8}, mute("smi-missing", driver="580.95.05")),
    "venv-broken": ({}, host(bare("broken", error="bin/python is a link to /usr/bin/python3.10, which is gone"))),
    "venv-missing": ({}, host(bare("missing"))),
    "venv-none": ({}, host()),
    "venv-unreadable": ({}, host(bare("unreadable", error="Permission denied"))),
    **{slug: (expect, gpus(**facts)) for slug, (expect, facts) in GPU_EXAMPLES.items()},
    **SERVING_EXAMPLES,
}
"""Rule to ``(expect, facts)``, as an inventory and the JSON document would give them."""
DAY = date(2027, 3, 2)
"""The day of the example runs."""


def member(number: int, driver: str = "580.95.05", **facts: Any) -> Member:
    """Return a host of an example run."""
    return Member(f"gpu{number:02d}", ("rtx",), gpus=Gpus.model_validate({**GPUS, "driver": driver}), **facts)


def waiver(until: date) -> Waiver:
    """Return a waiver for the first of the hosts."""
    return Waiver(rule="gpu-count", hosts="gpu01", reason="one board in repair", until=until)


RUNS: dict[str, tuple[list[Member], list[Waiver]]] = {
    "fleet-outlier": ([*(member(number) for number in range(1, 8)), member(8, "570.169")], []),
    "fleet-suspicious": (
        [member(number, outcome="auth-failed", stage="auth") for number in range(1, 8)] + [member(8)],
        [],
    ),
    "waiver-expired": ([member(1)], [waiver(date(2027, 3, 1))]),
    "waiver-unused": ([member(1)], [waiver(date(2027, 12, 31))]),
}
"""Rule over a whole run to its hosts and the waivers of its inventory."""


def example(slug: str) -> tuple[Finding, ...]:
    """Return what is found on the example of a rule, the rule's own finding first."""
    if slug in RUNS:
        members, waivers = RUNS[slug]
        return judge_fleet(members, {}, waivers=waivers, day=DAY)
    expect, facts = EXAMPLES[slug]
    listed = any(one["item"] == VENV for one in facts["venvs"])
    venvs = [{"path": VENV}] if listed else ["running", "usual"]
    target = Target.model_validate({"name": "gpu01", "venvs": venvs, "expect": expect})
    findings = judge_host(target, HostFacts.model_validate(facts))
    return tuple(sorted(findings, key=lambda finding: finding.rule != slug))
