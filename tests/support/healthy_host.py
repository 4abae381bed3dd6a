"""A healthy host, and how a case of the data files departs from it."""

from __future__ import annotations

from typing import Any

from fleetcheck.facts.records import HostFacts
from fleetcheck.inventory.model import Target

GPUS: dict[str, Any] = {
    "state": "ok",
    "count": 8,
    "pci_count": 8,
    "compute_capability": ["12.0"],
    "names": ["X"],
    "driver": "580.95.05",
    "driver_userspace": "580.95.05",
}
FLASHINFER: dict[str, Any] = {
    "version": "0.6.2",
    "root": "/opt/serve/fi",
    "csrc_dir": "/opt/serve/fi/data/csrc",
    "csrc_real": "/opt/serve/fi/data/csrc",
    "csrc_default": "/opt/serve/fi/data/csrc",
    "csrc_state": "complete",
    "env_record": "match",
    "install": "wheel",
}
VENV: dict[str, Any] = {"path": "/opt/serve", "item": "/opt/serve", "activation_matches": True}


def target(case: dict[str, Any]) -> Target:
    """Return the target of a case: one listed environment unless it says otherwise."""
    venvs = case.get("venvs", [{"path": "/opt/serve"}])
    return Target.model_validate({"name": "gpu01", "venvs": venvs, "expect": case.get("expect", {})})


def facts(case: dict[str, Any]) -> HostFacts:
    """Return the facts of a case: those of a healthy host, with what the case gives laid over them."""
    venv = {**VENV, "flashinfer": {**FLASHINFER, **case.get("flashinfer", {})}, **case.get("venv", {})}
    whole = {
        "gpus": {**GPUS, **case.get("gpus", {})},
        "venvs": [venv],
        "venvs_known": True,
        **case.get("facts", {}),
    }
    return HostFacts.model_validate(whole)
