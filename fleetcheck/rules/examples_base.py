"""What the examples of the rules are made of: hosts, GPUs and environments in good order."""

from __future__ import annotations

from typing import Any

VENV = "/opt/venvs/serve"
SITE = f"{VENV}/lib/python3.12/site-packages"
ROOT = f"{SITE}/flashinfer"
SHA = "3f" * 32
SGLANG = {"name": "sglang", "version": "0.5.20", "admits": [9, 10], "auto_enables": [9, 10]}
HEADER = "data/include/flashinfer/comm/trtllm_allreduce.cuh"
GPUS: dict[str, Any] = {
    "state": "ok",
    "count": 8,
    "pci_count": 8,
    "compute_capability": ["12.0"],
    "names": ["NVIDIA RTX PRO 6000 Blackwell Server Edition"],
    "driver": "580.95.05",
}


def venv(flashinfer: dict[str, Any] | None = None, **facts: Any) -> dict[str, Any]:
    """Return an environment with FlashInfer 0.6.2 in good order, but for what is given."""
    package = {
        "version": "0.6.2",
        "root": ROOT,
        "csrc_dir": f"{ROOT}/data/csrc",
        "csrc_real": f"{ROOT}/data/csrc",
        "csrc_default": f"{ROOT}/data/csrc",
        "csrc_state": "complete",
        "env_record": "match",
        "install": "wheel",
    }
    return {"path": VENV, "item": VENV, "flashinfer": {**package, **(flashinfer or {})}, **facts}


def fusion(verdict: str, **facts: Any) -> dict[str, Any]:
    """Return an environment of which the facts give this verdict on all-reduce fusion."""
    return {"verdict": verdict, "gate_state": "read", "gate_file": "jit/comm.py", **facts}


def bare(state: str, **facts: Any) -> dict[str, Any]:
    """Return an environment without FlashInfer."""
    return {"path": VENV, "item": VENV, "state": state, **facts}


def gpus(**facts: Any) -> dict[str, Any]:
    """Return the facts of a host with these GPUs and an environment in good order."""
    return {"gpus": {**GPUS, **facts}, "venvs": [venv()], "venvs_known": True}


def mute(state: str, **facts: Any) -> dict[str, Any]:
    """Return the facts of a host whose nvidia-smi listed nothing."""
    return {"gpus": {"state": state, "pci_count": 8, **facts}, "venvs": [venv()], "venvs_known": True}


def host(*venvs: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """Return the facts of a host with its GPUs in good order and these environments."""
    return {"gpus": GPUS, "venvs": list(venvs), "venvs_known": True, **facts}


CALLER = {
    **SGLANG,
    "gates": [
        {
            "kind": "call",
            "file": "srt/layers/communicator.py",
            "function": "apply_flashinfer_allreduce_fusion",
            "majors": [9, 10],
        }
    ],
}
CACHE = "/home/serve/.cache/flashinfer"
BUILT = {
    "name": "trtllm_comm",
    "path": f"{CACHE}/0.6.2/120a/cached_ops/trtllm_comm",
    "version": "0.6.2",
    "arch": "120a",
    "built": True,
}
ADMITTED = {"gate": [9, 10, 12], "guards": 13}
BUS = "00000000:05:00.0"
UUID = "GPU-6d2f0c1a-4b7e-4f0e-9a51-0c8a54be21d7"
