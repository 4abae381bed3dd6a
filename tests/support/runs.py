"""Runs made by hand: every outcome, every severity, and hosts that lie."""

from __future__ import annotations

from typing import Any, get_args

from fleetcheck.agent.evidence import OUTCOMES
from fleetcheck.facts.records import Device, FlashInfer, Fusion, Gpus, Torch, Venv
from fleetcheck.rules.finding import Finding, Severity, Waived
from fleetcheck.run import HostResult, Run, RunInfo, Verdict, summarise

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
INFO = RunInfo(
    id="20300101T000000Z-abcdef",
    started="2030-01-01T00:00:00.000Z",
    finished="2030-01-01T00:00:09.000Z",
    version="0.1.0",
    inventory="fleet.yaml",
    complete=True,
)
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def gpus(count: int | None = 8, **more: Any) -> Gpus:
    return Gpus(**{
        "state": "ok", "count": count, "compute_capability": ("12.0",), "names": (NAME,), "driver": "580.95.05",
        "devices": tuple(Device(index=i, uuid=f"GPU-{i}", name=NAME, state="ok") for i in range(count or 0)),
        **more,
    })  # fmt: skip


def venv(path: str = "/root/ml-env", *, verdict: str = "refused", effective: str = "off", **flash: Any) -> Venv:
    root = f"{path}/lib/python3.11/site-packages/flashinfer"
    facts = {
        "version": "0.6.2", "root": root, "csrc_dir": f"{root}/data/csrc", "csrc_default": f"{root}/data/csrc",
        "csrc_state": "complete", **flash,
    }  # fmt: skip
    return Venv.model_validate({
        "path": path, "python": "3.11.2", "flashinfer": FlashInfer(**facts), "torch": Torch(version="2.9.1"),
        "fusion": Fusion.model_validate({"verdict": verdict, "effective": effective, "gate": (9, 10)}),
    })  # fmt: skip


def host(name: str, verdict: Verdict = "ok", **more: Any) -> HostResult:
    seen = verdict in ("ok", "findings")
    return HostResult.model_validate({
        "name": name, "address": "192.0.2.1", "groups": ("rtx",), "outcome": "checked" if seen else verdict,
        "stage": None if seen else "connect", "detail": None, "message": None, "verdict": verdict, "attempts": 1,
        "seconds": 0.5, "system": None, "gpus": gpus() if seen else Gpus(), "toolkits": (),
        "venvs": (venv(),) if seen else (), "caches": None, "processes": None, **more,
    })  # fmt: skip


def finding(host: str | None, rule: str = "csrc-missing", severity: Severity = "error", **more: Any) -> Finding:
    return Finding(**{"rule": rule, "severity": severity, "host": host, "message": f"{rule} says so", **more})


def run(*hosts: HostResult, findings: tuple[Finding, ...] = (), complete: bool = True) -> Run:
    info = INFO.model_copy(update={"complete": complete})
    return Run(run=info, summary=summarise(hosts), hosts=hosts, findings=findings)


def every_kind() -> Run:
    """Return a run that holds every outcome, every verdict, every severity, and a finding of each shape."""
    failed = [
        host(f"bad-{outcome}", outcome, detail="why", message=f"{outcome}: the reason") for outcome in OUTCOMES[1:]
    ]
    decoy = "/root/ml-env/lib/python3.11/site-packages/flashinfer/csrc"
    hosts = [
        *(host(f"gpu{number:02d}.lab") for number in range(1, 17)),
        host("gpu17.lab", venvs=(venv("/opt/venvs/b", effective="on", verdict="supported", version="0.6.18"),)),
        host("gpu18.lab", "findings", venvs=(venv(csrc_dir=decoy, csrc_state="missing"), venv("/opt/other"))),
        host("gpu19.lab", "findings", venvs=(venv(verdict="unsafe-patch", effective="unknown"),)),
        host("gpu20.lab", "findings", gpus=Gpus(state="hung", driver="580.95.05"), venvs=()),
        host("gpu21.lab", "findings", venvs=(Venv(path="/root/ml-env", state="missing"),)),
        *failed,
    ]
    remedy = ("cp -a env.py env.py.bak", "pip install --force-reinstall flashinfer-python==0.6.2")
    findings = (
        *(finding(f"gpu{number:02d}.lab", "fusion-refused", "info") for number in range(1, 17)),
        finding("gpu17.lab", "persistence-off", "warning"),
        finding(
            "gpu18.lab", "csrc-missing", "error", venv="/root/ml-env", expected="a folder", seen=decoy,
            basis="resolved", remedy=remedy, reference="flashinfer#3903",
        ),
        finding("gpu18.lab", "env-edited", "warning", venv="/root/ml-env", cause="csrc-missing"),
        finding("gpu19.lab", "fusion-unsafe-patch", "critical", venv="/root/ml-env", expected=[9], seen=[9, 12]),
        finding("gpu20.lab", "smi-hung", "error", gpu="GPU-0", seen={"pid": 7}),
        finding("gpu21.lab", "venv-missing", "error", venv="/root/ml-env"),
        finding("gpu01.lab", "pcie-width", "error", waived=Waived(reason="slot wired x8", until="2031-03-01")),
        finding(None, "fleet-outlier", "warning"),
    )  # fmt: skip
    return run(*hosts, findings=findings)
