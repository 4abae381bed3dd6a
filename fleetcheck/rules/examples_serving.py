"""Examples for the rules on what serves, on its cache and its compilers."""

from __future__ import annotations

from typing import Any

VENV = "/opt/venvs/serve"
OTHER = "/root/old-env"
SITE = f"{VENV}/lib/python3.12/site-packages"
ROOT = f"{SITE}/flashinfer"
CACHE = "/root/.cache/flashinfer"
GPUS: dict[str, Any] = {"state": "ok", "count": 8, "pci_count": 8, "compute_capability": ["12.0"]}


def host(venv: dict[str, Any] | None = None, **facts: Any) -> dict[str, Any]:
    """Return the facts of a host with one environment in good order, but for what is given."""
    package = {
        "version": "0.6.17", "root": ROOT, "csrc_dir": f"{ROOT}/data/csrc", "csrc_real": f"{ROOT}/data/csrc",
        "csrc_default": f"{ROOT}/data/csrc", "csrc_state": "complete", "env_record": "match", "install": "wheel",
        "constants": {"FLASHINFER_WORKSPACE_DIR": f"{CACHE}/0.6.17/120f"},
    }  # fmt: skip
    own = {"path": VENV, "item": VENV, "flashinfer": package, **(venv or {})}
    return {"gpus": GPUS, "venvs": [own], "venvs_known": True, **facts}


def process(pid: int = 4711, **facts: Any) -> dict[str, Any]:
    """Return a process of sglang that serves from the environment, but for what is given."""
    usual = {
        "pid": pid, "user": "root", "server": "sglang", "place": "host", "started_at": 1_795_000_000.0,
        "venv": VENV, "venv_basis": "mapped", "named_venv": VENV,
    }  # fmt: skip
    return {**usual, **facts}


def tools(**facts: Any) -> dict[str, Any]:
    """Return a toolchain in good order, but for what is given."""
    usual = {
        "cuda_home": "/usr/local/cuda-13.0", "nvcc": "13.0", "nvcc_path": "/usr/local/cuda-13.0/bin/nvcc",
        "found": True, "named_by": "CUDA_HOME", "searched": True,
    }  # fmt: skip
    return {"toolchain": {**usual, **facts}}


MODULE = {
    "name": "trtllm_comm", "path": f"{CACHE}/0.6.17/120f/cached_ops/trtllm_comm", "version": "0.6.17",
    "arch": "120f", "built": True,
    "csrc": [{"path": f"{OTHER}/lib/python3.12/site-packages/flashinfer/data/csrc", "exists": False}],
}  # fmt: skip
SERVING_EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "arch-list-excludes-gpu": (
        {}, host(tools(arch_list="9.0a", arch_list_from="FLASHINFER_CUDA_ARCH_LIST")),
    ),
    "csrc-hardcoded": (
        {},
        host(
            named_csrc=[
                {"file": "/etc/systemd/system/sglang.service", "line": 9, "kind": "unit", "path": f"{ROOT}/csrc"}
            ]
        ),
    ),
    "csrc-running-elsewhere": ({}, host(processes=[process(venv=OTHER), process(4712, venv=OTHER)])),
    "csrc-stale-cache": ({}, host(caches=[{"path": CACHE, "exists": True, "modules": [MODULE]}])),
    "cuda-mismatch": ({}, host({**tools(), "torch": {"version": "2.8.0+cu128", "cuda": "12.8"}})),
    "fusion-memory-differs": (
        {},
        host(
            processes=[
                process(
                    files=[{
                        "name": "jit/comm.py", "path": f"{ROOT}/jit/comm.py", "modified_at": 1_795_003_600.0,
                        "changed_at": 1_795_003_600.0, "links": 1,
                    }]
                )
            ]
        ),
    ),
    "nvcc-missing": (
        {},
        host(
            processes=[
                process(
                    **tools(
                        cuda_home=":/usr/local/cuda-12.8", nvcc=None, nvcc_path=":/usr/local/cuda-12.8/bin/nvcc",
                        found=False, problem="CUDA_HOME holds a colon: :/usr/local/cuda-12.8",
                    )
                )
            ]
        ),
    ),
    "nvcc-too-old": (
        {},
        host(processes=[process(**tools(cuda_home="/usr/local/cuda-12.8", nvcc="12.8"))]),
    ),
    "serving-unseen": (
        {},
        host(
            {"origin": "usual", "item": "usual"},
            system={"user": "audit"},
            processes=[
                process(
                    venv=None, venv_basis=None, named_venv=None, place="unknown",
                    unseen=["mapped files: EACCES", "environment: EACCES", "namespace: EACCES"],
                )
            ],
        ),
    ),
    "torch-lacks-arch": ({}, host({"torch": {"version": "2.6.0+cu124", "cuda": "12.4"}})),
    "venv-not-serving": ({}, host(processes=[process(venv=OTHER, named_venv=OTHER)])),
}  # fmt: skip
