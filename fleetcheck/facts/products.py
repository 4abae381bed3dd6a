"""Compute capability by product, for a nvidia-smi that does not know the field ``compute_cap``.

The field came after 470.256 and by 525.89; older binaries refuse the whole query (canonical/inference-snaps#89).
Names are whole: "RTX PRO 6000" alone would fit three editions and the 6000D. Sources: NVIDIA's list of CUDA GPUs
and its legacy page for the capability, the PCI ID Repository and open-gpu-kernel-modules' table for the ids.
"""

from __future__ import annotations

from functools import lru_cache

# capability: PCI device id: the name that nvidia-smi prints
BY_ID: dict[str, dict[int, str]] = {
    "7.0": {
        0x1DB1: "Tesla V100-SXM2-16GB",
        0x1DB4: "Tesla V100-PCIE-16GB",
        0x1DB5: "Tesla V100-SXM2-32GB",
        0x1DB6: "Tesla V100-PCIE-32GB",
        0x1DB8: "Tesla V100-SXM3-32GB",
        0x1DF6: "Tesla V100S-PCIE-32GB",
        0x1D81: "NVIDIA TITAN V",
        0x1DBA: "Quadro GV100",
    },
    "7.5": {
        0x1EB8: "Tesla T4",
        0x1E02: "NVIDIA TITAN RTX",
        0x1E04: "NVIDIA GeForce RTX 2080 Ti",
        0x1E30: "Quadro RTX 6000",
        0x1EB0: "Quadro RTX 5000",
        0x1EB1: "Quadro RTX 4000",
    },
    "8.0": {
        0x20B0: "NVIDIA A100-SXM4-40GB",
        0x20B2: "NVIDIA A100-SXM4-80GB",
        0x20B5: "NVIDIA A100 80GB PCIe",
        0x20F1: "NVIDIA A100-PCIE-40GB",
        0x20B7: "NVIDIA A30",
        0x20F3: "NVIDIA A800-SXM4-80GB",
        0x20F5: "NVIDIA A800 80GB PCIe",
    },
    "8.6": {
        0x2235: "NVIDIA A40",
        0x2236: "NVIDIA A10",
        0x2237: "NVIDIA A10G",
        0x2230: "NVIDIA RTX A6000",
        0x2231: "NVIDIA RTX A5000",
        0x2232: "NVIDIA RTX A4500",
        0x24B0: "NVIDIA RTX A4000",
        0x2204: "NVIDIA GeForce RTX 3090",
        0x2203: "NVIDIA GeForce RTX 3090 Ti",
    },
    "8.9": {
        0x27B8: "NVIDIA L4",
        0x26B5: "NVIDIA L40",
        0x26B9: "NVIDIA L40S",
        0x26BA: "NVIDIA L20",
        0x26B1: "NVIDIA RTX 6000 Ada Generation",
        0x26B2: "NVIDIA RTX 5000 Ada Generation",
        0x2684: "NVIDIA GeForce RTX 4090",
    },
    "9.0": {
        0x2330: "NVIDIA H100 80GB HBM3",
        0x2331: "NVIDIA H100 PCIe",
        0x2321: "NVIDIA H100 NVL",
        0x2335: "NVIDIA H200",
        0x233B: "NVIDIA H200 NVL",
        0x2329: "NVIDIA H20",
        0x2322: "NVIDIA H800 PCIe",
        0x2324: "NVIDIA H800",
        0x2342: "NVIDIA GH200 480GB",
    },
    "10.0": {0x2901: "NVIDIA B200", 0x2941: "NVIDIA GB200"},
    "10.3": {0x3182: "NVIDIA B300 SXM6 AC", 0x31C2: "NVIDIA GB300"},
    "12.0": {
        0x2BB1: "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        0x2BB4: "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        0x2BB5: "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        0x2BB3: "NVIDIA RTX PRO 5000 Blackwell",
        0x2BB2: "NVIDIA RTX PRO 6000D Blackwell Workstation Edition",
        0x2BB9: "NVIDIA RTX 6000D",
        0x2BBC: "NVIDIA RTX PRO 6000D Blackwell Max-Q Workstation Edition",
        0x2C31: "NVIDIA RTX PRO 4500 Blackwell",
        0x2C34: "NVIDIA RTX PRO 4000 Blackwell",
        0x2D30: "NVIDIA RTX PRO 2000 Blackwell",
        0x2B85: "NVIDIA GeForce RTX 5090",
        0x2C02: "NVIDIA GeForce RTX 5080",
        0x2C05: "NVIDIA GeForce RTX 5070 Ti",
        0x2F04: "NVIDIA GeForce RTX 5070",
    },
    "12.1": {0x2E12: "NVIDIA GB10"},
}
# Names whose id is shared with another product, or is not known here. The first two are what JetPack's prints.
_NAMES: dict[str, tuple[str, ...]] = {
    "8.7": ("Orin (nvgpu)",),
    "11.0": ("NVIDIA Thor",),
    "7.0": ("Tesla V100-DGXS-32GB", "Tesla V100-DGXS-16GB", "Tesla V100-SXM2-32GB-LS"),
    "7.5": (
        "Quadro RTX 8000", "Quadro RTX 3000", "NVIDIA T400", "NVIDIA T600", "NVIDIA T1000",
        "NVIDIA GeForce GTX 1650", "NVIDIA GeForce GTX 1650 SUPER", "NVIDIA GeForce GTX 1660",
        "NVIDIA GeForce GTX 1660 SUPER", "NVIDIA GeForce GTX 1660 Ti", "NVIDIA GeForce RTX 2060",
        "NVIDIA GeForce RTX 2060 SUPER", "NVIDIA GeForce RTX 2070", "NVIDIA GeForce RTX 2070 SUPER",
        "NVIDIA GeForce RTX 2080", "NVIDIA GeForce RTX 2080 SUPER",
    ),
    "8.0": ("NVIDIA A100-SXM-80GB", "NVIDIA A100-SXM-64GB", "NVIDIA A800 40GB Active"),
    "8.6": (
        "NVIDIA A16", "NVIDIA A2", "NVIDIA RTX A2000", "NVIDIA RTX A2000 12GB", "NVIDIA RTX A5500",
        "NVIDIA GeForce RTX 3050", "NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3060 Ti",
        "NVIDIA GeForce RTX 3070", "NVIDIA GeForce RTX 3070 Ti", "NVIDIA GeForce RTX 3080",
        "NVIDIA GeForce RTX 3080 Ti",
    ),
    "8.9": (
        "NVIDIA RTX 2000 Ada Generation", "NVIDIA RTX 4000 Ada Generation", "NVIDIA RTX 4500 Ada Generation",
        "NVIDIA RTX 4000 SFF Ada Generation", "NVIDIA RTX 5880 Ada Generation", "NVIDIA GeForce RTX 4060",
        "NVIDIA GeForce RTX 4060 Ti", "NVIDIA GeForce RTX 4070", "NVIDIA GeForce RTX 4070 SUPER",
        "NVIDIA GeForce RTX 4070 Ti", "NVIDIA GeForce RTX 4070 Ti SUPER", "NVIDIA GeForce RTX 4080",
        "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 4090 D",
    ),
    "9.0": (
        "NVIDIA GH200 120GB", "NVIDIA GH200 144G HBM3e", "NVIDIA H100 80GB HBM2e", "NVIDIA H20-3e",
    ),
    "12.0": (
        "NVIDIA RTX PRO 6000D", "NVIDIA GeForce RTX 5050", "NVIDIA GeForce RTX 5060", "NVIDIA GeForce RTX 5060 Ti",
        "NVIDIA GeForce RTX 5090 D",
    ),
}  # fmt: skip
BY_NAME = {name: capability for capability, names in _NAMES.items() for name in names}


@lru_cache(maxsize=1)
def _by_name() -> dict[str, str]:
    whole = {name: capability for capability, ids in BY_ID.items() for name in ids.values()}
    return {name.casefold(): capability for name, capability in {**whole, **BY_NAME}.items()}


def compute_capability(name: str | None, device: int | None) -> str | None:
    """Return the capability of a product by its whole name, else by its PCI device id, else None."""
    folded = " ".join(name.split()).casefold() if name else ""
    known = _by_name()
    # "Tesla" and "NVIDIA" in front came and went with the driver releases.
    for spelling in (folded, f"nvidia {folded}", folded.removeprefix("nvidia ")):
        if spelling in known:
            return known[spelling]
    return next((capability for capability, ids in BY_ID.items() if device in ids), None)


def name(device: int | None) -> str | None:
    """Return the product name of a PCI device id, or None."""
    return next((ids[device] for ids in BY_ID.values() if device is not None and device in ids), None)


# The oldest release that NVIDIA validated for a product (Omniverse's requirements); older ones may run it.
MINIMUM_DRIVER: dict[str, str] = {
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "570.169",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "580.95.05",
}
# What a driver calls a board that it does not know, or that was not released yet.
GENERIC_NAMES = frozenset({"Graphics Device", "NVIDIA Graphics Device"})
OPEN_MODULE_FROM = 10
"""The major compute capability from which only the open kernel module drives a GPU (Blackwell)."""


def minimum_driver(name: str | None) -> str | None:
    """Return the oldest driver that is validated for a product, None where none is known."""
    return MINIMUM_DRIVER.get(" ".join((name or "").split()))
