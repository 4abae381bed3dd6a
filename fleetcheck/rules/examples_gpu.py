"""Examples for the rules on the health, the links and the set-up of GPUs: expectations, and facts of the GPUs."""

from __future__ import annotations

from typing import Any

SERVER = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
BUS = "00000000:05:00.0"


def one(**facts: Any) -> dict[str, Any]:
    """Return the facts of GPUs of which the first is so."""
    return {"devices": [device(0, **facts), device(1)]}


def device(index: int, **facts: Any) -> dict[str, Any]:
    """Return a GPU in good order, but for what is given."""
    place = f"00000000:{5 + index:02X}:00.0"
    named = {"index": index, "uuid": f"GPU-{index:08d}-0000-4000-8000-000000000000", "bus_id": place}
    return {**named, "name": SERVER, "state": "ok", **facts}


GPU_EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "driver-minimum": ({}, {**one(), "driver": "575.57.08"}),
    "driver-proprietary": (
        {"gpus": 8},
        {
            "state": "missing",
            "count": 0,
            "names": [],
            "compute_capability": [],
            "kernel_module": "proprietary",
            "devices": [{"bus_id": BUS, "name": SERVER, "compute_capability": "12.0", "state": "missing"}],
        },
    ),
    "ecc-pending": ({}, one(ecc=True, ecc_pending=False)),
    "ecc-uncorrected": ({}, one(ecc_uncorrected=3)),
    "gpu-mixed": ({}, {"devices": [device(0), device(1, name="NVIDIA H100 PCIe")]}),
    "gpu-recovery": ({}, one(recovery_action="GPU Reset")),
    "gpu-slowdown": ({}, one(slowdown=["power-brake"], temperature=61)),
    "inforom-corrupt": ({}, one(inforom_corrupt=True)),
    "iommu-on": ({}, {**one(), "iommu": "translated", "nvlink": False}),
    "memory-remap": ({}, one(rows_pending=True)),
    "mig-enabled": ({}, one(mig=True, mig_devices=[{"index": 0, "profile": "2g.48gb"}])),
    "p2p-unavailable": ({}, {"p2p": {"0-1": "CNS"}}),
    "pcie-generation": ({}, one(pcie_generation=2, pcie_generation_max=5, utilization=97)),
    "pcie-width": ({}, one(pcie_width=8, pcie_width_max=16)),
    "persistence-off": ({}, one(persistence=False)),
    "smi-outdated": ({}, {"driver_userspace": "470.256.02"}),
}
"""Rule to ``(expect, facts of gpus)``."""
