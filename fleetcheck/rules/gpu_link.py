"""Rules on how GPUs are linked: to the host by PCIe, and to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetcheck.facts.records import Device
from fleetcheck.rules import text
from fleetcheck.rules.gpu import SMI
from fleetcheck.rules.gpu_health import at, listed, which
from fleetcheck.rules.rule import Hit, Look, rule

LINK_FIELDS = "pcie.link.gen.current,pcie.link.gen.max,utilization.gpu"
BUSY = 50
"""Utilization in % from which a link is not idle."""
PRODUCT = ("GNS", "NS")
"""What ``topo -p2p`` says where the product itself has no peer access; GeForce boards say it."""
P2P = {
    "CNS": "the chipset does not support it",
    "GNS": "the GPUs do not support it",
    "TNS": "the topology does not support it",
    "NS": "it is not supported",
    "DR": "it is disabled in the driver's settings",
}
_LANES = re.compile(r"(?:^|\s)x(\d{1,2})(?=\s|$)", re.IGNORECASE)


def wanted_lanes(expected: str | None) -> int | None:
    """Return the width that ``expect.link`` gives (``x8``, ``PHB x8``), or None."""
    match = _LANES.search(expected or "")
    return int(match.group(1)) if match else None


def wanted_class(expected: str | None) -> str | None:
    """Return what ``expect.link`` gives beside a width, or None."""
    return _LANES.sub(" ", expected or "").strip() or None


def best_width(device: Device) -> int | None:
    """Return the widest link that both the GPU and its slot's port have, None where neither is known."""
    known = [lanes for lanes in (device.pcie_width_max, device.port_width) if lanes]
    return min(known) if known else None


@rule(
    "pcie-width",
    "gpu",
    "warning",
    summary="A GPU's PCIe link has fewer lanes than it could have.",
    explanation=(
        "The number of lanes is compared with what both the GPU and its slot can, or with `expect.link` where "
        "that gives a width (`x8`). Some drivers narrow an idle link too, and a slot may be wired for fewer lanes "
        "by design: then expect that width, or waive the finding. A lower generation of an idle link is "
        "normal and is not reported."
    ),
    remedy="Look at the link under load; reseat the board or its riser; expect the width if the slot is wired so.",
    references=(SMI, "https://docs.kernel.org/admin-guide/abi-testing-files.html"),
)
def pcie_width(look: Look) -> Iterator[Hit]:
    """Fire for each GPU whose link is narrower than it should be."""
    expected = wanted_lanes(look.target.expect.link)
    for device in listed(look):
        lanes = expected or best_width(device)
        if lanes is not None and device.pcie_width is not None and device.pcie_width < lanes:
            short = (device.bus_id or "").lower().removeprefix("0000")
            yield Hit(
                f"The PCIe link of {which(device)} is x{device.pcie_width}, "
                f"x{lanes} is {'expected' if expected else 'possible'}.",
                gpu=device.uuid,
                expected=lanes,
                seen=device.pcie_width,
                remedy=(
                    f"sudo lspci -vvs {text.quote(short)} | grep -E 'LnkCap|LnkSta'",
                    f"If the slot is wired so, set expect.link to x{device.pcie_width} in the inventory.",
                    "Reseat the board and its riser, with the host powered off.",
                ),
            )


@rule(
    "pcie-generation",
    "gpu",
    "warning",
    summary="A busy GPU's PCIe link runs below its speed.",
    explanation=(
        "An idle link runs at the first generation to save power, which is normal and never reported. One that "
        f"stays below what GPU and system can while the GPU is busy ({BUSY} % and more) halves or quarters every "
        "copy over PCIe."
    ),
    remedy="Look again under load; turn off the link's power management, or fix the generation in the firmware.",
    references=(SMI,),
)
def pcie_generation(look: Look) -> Iterator[Hit]:
    """Fire for each busy GPU whose link runs at a lower generation."""
    for device in listed(look):
        now, best = device.pcie_generation, device.pcie_generation_max
        busy = device.utilization is not None and device.utilization >= BUSY
        if busy and now is not None and best is not None and now < best:
            yield Hit(
                f"The PCIe link of {which(device)} runs at generation {now} of {best} "
                f"while the GPU is {device.utilization} % busy.",
                gpu=device.uuid,
                expected=best,
                seen=now,
                remedy=(
                    f"nvidia-smi {at(device)} --query-gpu={LINK_FIELDS} --format=csv -l 1",
                    (
                        "cat /sys/module/pcie_aspm/parameters/policy  # powersave and powersupersave are bad; "
                        "performance is right"
                    ),
                ),
            )


@rule(
    "p2p-unavailable",
    "gpu",
    "warning",
    summary="GPUs of one host cannot read each other's memory directly.",
    explanation=(
        "nvidia-smi says for each pair whether peer access works. Without it, collectives copy through the host's "
        "memory, and all-reduce kernels that need it are refused or hang. Where the product itself has no peer "
        "access, as GeForce boards, it is information."
    ),
    remedy="See which pairs it is, and what lies between them; with MIG on there is no peer access at all.",
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#peer-to-peer-memory-access", SMI),
)
def p2p_unavailable(look: Look) -> Iterator[Hit]:
    """Fire where a pair is known not to have peer access."""
    pairs = {pair: word for pair, word in look.facts.gpus.p2p.items() if word in P2P}
    if not pairs:
        return
    words = sorted(set(pairs.values()))
    yield Hit(
        f"{text.plural(len(pairs), 'pair')} of GPUs without peer access ({text.listing(list(pairs))}): "
        f"{text.listing([P2P[word] for word in words])}.",
        severity="info" if set(words) <= set(PRODUCT) else None,
        expected="OK",
        seen=pairs,
        remedy=(
            "nvidia-smi topo -p2p r; nvidia-smi topo -m",
            "Look between these GPUs for MIG, ACS and an IOMMU that translates (lspci -vv, /proc/cmdline).",
            "If none is found, serve with the framework's custom all-reduce off (--disable-custom-all-reduce).",
        ),
    )


@rule(
    "iommu-on",
    "gpu",
    "warning",
    summary="The IOMMU translates what GPUs without NVLink send each other.",
    explanation=(
        "Between GPUs on PCIe, peer access goes through the IOMMU where it translates. It becomes slow, "
        "and may hang, while nvidia-smi shows nothing wrong. It is information where the mode of the IOMMU is not "
        "known. Nothing is said of one GPU, of pairs with NVLink, and of an IOMMU that is off or passes through."
    ),
    remedy=(
        "Boot with `iommu=pt`, or with the IOMMU off; not on a host that passes GPUs to virtual machines. ACS "
        "on the "
        "ports above the GPUs sends their traffic through the CPU: turn it off in the firmware where it is on."
    ),
    references=(
        "https://github.com/NVIDIA/nccl/issues/2079",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
)
def iommu_on(look: Look) -> Iterator[Hit]:
    """Fire on a host with several GPUs, not all linked by NVLink, where the IOMMU is on."""
    gpus = look.facts.gpus
    several = len(list(listed(look))) > 1 and gpus.nvlink is not True
    if several and gpus.iommu in ("translated", "on"):
        yield Hit(
            "The IOMMU translates between GPUs that have no NVLink."
            if gpus.iommu == "translated"
            else "The IOMMU is on, its mode is not known, and the GPUs have no NVLink.",
            severity=None if gpus.iommu == "translated" else "info",
            expected=("off", "passthrough"),
            seen=gpus.iommu,
            remedy=(
                "cat /proc/cmdline; cat /sys/bus/pci/drivers/nvidia/*/iommu_group/type",
                "sudo lspci -vv | grep -i acsctl  # SrcValid+ sends what GPUs exchange through the CPU",
                "Add iommu=pt to the kernel's command line; not on a host that passes GPUs to virtual machines.",
                text.APPS,
                text.REBOOT,
            ),
        )


RULES = (pcie_width, pcie_generation, p2p_unavailable, iommu_on)
