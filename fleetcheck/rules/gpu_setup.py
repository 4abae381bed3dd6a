"""Rules on how GPUs and their driver are set up."""

from __future__ import annotations

from collections.abc import Iterator

from fleetcheck.facts import products
from fleetcheck.facts.records import Gpus
from fleetcheck.rules import text
from fleetcheck.rules.gpu import OPEN, SMI, UNCHECKED
from fleetcheck.rules.gpu_health import at, listed, which
from fleetcheck.rules.rule import Hit, Look, rule
from fleetcheck.rules.versions import parse

KNOWS_COMPUTE_CAP = "525"
"""The release from which nvidia-smi is known to have the field ``compute_cap``."""


def older(seen: str | None, than: str) -> bool:
    """Return whether a driver version is known to be below another one."""
    one, other = parse(seen or ""), parse(than)
    return one is not None and other is not None and one < other


@rule(
    "persistence-off",
    "gpu",
    "warning",
    summary="Persistence mode is off.",
    explanation=(
        "Without it the driver shuts a GPU down when its last process ends, and starts it again for the next: "
        "every start and every nvidia-smi takes seconds, with eight GPUs half a minute. It is slow, and no "
        "hang."
    ),
    remedy="Enable nvidia-persistenced, which keeps it on over a reboot.",
    references=(
        "https://docs.nvidia.com/deploy/driver-persistence/index.html",
        "https://github.com/Azure/aks-gpu/issues/105",
    ),
)
def persistence_off(look: Look) -> Iterator[Hit]:
    """Fire once where any GPU says so; under WSL there is no such mode."""
    devices = list(listed(look))
    off = [device for device in devices if device.persistence is False]
    if off and look.facts.gpus.surroundings != "wsl":
        yield Hit(
            f"Persistence mode is off on {len(off)} of {text.plural(len(devices), 'GPU')}.",
            expected="Enabled",
            seen="Disabled",
            remedy=(
                "sudo systemctl enable --now nvidia-persistenced",
                "Or until the next boot: sudo nvidia-smi -pm 1",
            ),
        )


@rule(
    "mig-enabled",
    "gpu",
    "warning",
    summary="A GPU is partitioned (MIG), or waits to be.",
    explanation=(
        "A process gets one slice of a partitioned GPU: less memory, fewer units, no peer access to other "
        "GPUs, so no all-reduce kernels between them. Where it is meant, waive the finding. A mode that was set "
        "and waits for a reset is told too."
    ),
    remedy="If MIG is meant, waive the finding. Otherwise note the slices, turn MIG off and reset the GPU.",
    references=("https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",),
    causes=("p2p-unavailable",),
)
def mig_enabled(look: Look) -> Iterator[Hit]:
    """Fire for each GPU on which MIG is on or will be."""
    for device in listed(look):
        if not device.mig and not device.mig_pending:
            continue
        if device.mig:
            cut = text.listing([one.profile for one in device.mig_devices]) if device.mig_devices else "no slice"
            message = f"MIG is on at {which(device)}, with {cut}."
        else:
            message = f"MIG will be on at {which(device)} after the next reset."
        yield Hit(
            message,
            gpu=device.uuid,
            expected="Disabled",
            seen="Enabled" if device.mig else "pending",
            remedy=(
                "If MIG is meant, waive this finding in the inventory; do nothing.",
                "nvidia-smi mig -lgi; nvidia-smi mig -lci  # note the slices: they are lost",
                text.APPS,
                f"sudo nvidia-smi {at(device)} -mig 0  # removes the slices",
                f"sudo nvidia-smi {at(device)} --gpu-reset  # stops what runs on this GPU",
            ),
        )


@rule(
    "ecc-pending",
    "gpu",
    "info",
    summary="A change of the ECC mode waits for a reset.",
    explanation=(
        "ECC was turned on or off, and the GPU still runs in the old mode. After the next reset or reboot it will "
        "be in the other one, with another amount of usable memory on some products."
    ),
    remedy="Reset the GPU or reboot the host when it suits, or set the mode back.",
    references=(SMI,),
)
def ecc_pending(look: Look) -> Iterator[Hit]:
    """Fire for each GPU whose mode now and after the next reset differ."""
    words = {True: "on", False: "off"}
    for device in listed(look):
        now, then = device.ecc, device.ecc_pending
        if now is not None and then is not None and now != then:
            yield Hit(
                f"ECC is {words[now]} at {which(device)}, and will be {words[then]} after the next reset.",
                gpu=device.uuid,
                expected=words[now],
                seen=words[then],
                remedy=(
                    (
                        f"Either: sudo nvidia-smi {at(device)} -e {int(now)}  # keeps ECC {words[now]}, cancels "
                        "the change"
                    ),
                    "Or let it happen at the next reboot, after draining the host.",
                ),
            )


@rule(
    "gpu-mixed",
    "gpu",
    "warning",
    summary="The host has GPUs of different models.",
    explanation=(
        "A model that is spread over unlike GPUs runs at the pace and the memory of the weakest, and kernels are "
        "chosen by the first. `RTX PRO 6000` alone is the name of three products; the whole names are compared."
    ),
    remedy="Serve from GPUs of one model (CUDA_VISIBLE_DEVICES with uuids), or see which board is the wrong one.",
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",),
)
def gpu_mixed(look: Look) -> Iterator[Hit]:
    """Fire where nvidia-smi gives more than one name."""
    counts: dict[str, int] = {}
    for device in listed(look):
        if device.name:
            counts[device.name] = counts.get(device.name, 0) + 1
    if len(counts) > 1:
        models = [f"{number} × {name}" for name, number in counts.items()]
        yield Hit(
            f"The GPUs are of {len(counts)} models: {text.listing(models)}.",
            expected="one model",
            seen=counts,
            remedy=(
                "nvidia-smi -L",
                (
                    "Serve one model from GPUs of one kind: set CUDA_VISIBLE_DEVICES to their uuids where it "
                    "is started."
                ),
                (
                    "If one board is the wrong one, have it exchanged; if the mix is meant, waive this in the "
                    "inventory."
                ),
            ),
        )


@rule(
    "driver-minimum",
    "gpu",
    "warning",
    summary="The driver is older than the product needs, or does not know it.",
    explanation=(
        "For some products NVIDIA names the oldest driver that it validated. An older one may run them, with "
        "faults that have been fixed. A driver that calls a board `Graphics Device` does not know it; its "
        "compute capability holds all the same."
    ),
    remedy="Drain the host, install a newer driver and reboot.",
    references=(
        "https://docs.omniverse.nvidia.com/materials-and-rendering/latest/common/technical-requirements.html",
        "https://github.com/NVIDIA/open-gpu-kernel-modules#compatible-gpus",
    ),
)
def driver_minimum(look: Look) -> Iterator[Hit]:
    """Fire where the loaded driver is known to be below the validated one, and for a board without a name."""
    gpus = look.facts.gpus
    steps = (
        "cat /proc/driver/nvidia/version",
        text.APPS,
        "Drain the host, then install a newer driver.",
        text.REBOOT,
    )
    names = {device.name for device in listed(look) if device.name}
    for name in sorted(names):
        least = products.minimum_driver(name)
        if least is not None and older(gpus.driver, least):
            yield Hit(
                f"The driver {text.brief(gpus.driver)} is loaded; {least} is the oldest that is validated for "
                f"{text.brief(name)}.",
                expected=f">={least}",
                seen=gpus.driver,
                remedy=steps,
            )
        if name in products.GENERIC_NAMES:
            yield Hit(
                f"The driver {text.brief(gpus.driver, 'that is loaded')} does not know the product: "
                f"it calls it {text.brief(name)}.",
                seen=name,
                remedy=steps,
            )


@rule(
    "driver-proprietary",
    "gpu",
    "error",
    summary="The proprietary kernel module is loaded, which does not drive these GPUs.",
    explanation=(
        "From Blackwell on GPUs need the open kernel modules. With the proprietary ones nvidia-smi finds no "
        "device, though the driver is loaded and PCI lists the boards."
    ),
    remedy="Drain the host, install the open variant of the same driver release and reboot.",
    references=(f"{OPEN}/872", "https://github.com/NVIDIA/open-gpu-kernel-modules#compatible-gpus"),
    causes=("gpu-missing", "gpu-count", *UNCHECKED),
)
def driver_proprietary(look: Look) -> Iterator[Hit]:
    """Fire where that module is loaded, no GPU is listed, and PCI shows one that needs the other."""
    gpus = look.facts.gpus
    if gpus.kernel_module != "proprietary" or gpus.count != 0 or not needs_open(gpus):
        return
    yield Hit(
        f"The proprietary module of driver {text.brief(gpus.driver, 'that is loaded')} does not drive "
        f"{text.brief(needs_open(gpus))}.",
        expected="open",
        seen="proprietary",
        basis="guessed",
        remedy=(
            "cat /proc/driver/nvidia/version; sudo dmesg | grep -iE 'nvrm|nvidia'",
            text.HOLDERS,
            "Install the open kernel modules of the same release (nvidia-open).",
            text.REBOOT,
        ),
    )


def needs_open(gpus: Gpus) -> str | None:
    """Return the name of a GPU of PCI that only the open module drives, by its PCI id, or None."""
    for device in gpus.devices:
        major = (device.compute_capability or "").partition(".")[0]
        if device.uuid is None and major.isdigit() and int(major) >= products.OPEN_MODULE_FROM:
            return device.name or f"the GPU {device.bus_id}"
    return None


@rule(
    "smi-outdated",
    "gpu",
    "warning",
    summary="nvidia-smi is of another release than the loaded driver.",
    explanation=(
        "A second nvidia-smi stands before the driver's own, such as one that a package brought along. It "
        "answers, but what it does not know it cannot tell: an old one knows no compute capability, which is "
        "then guessed from the product."
    ),
    remedy="Remove the other nvidia-smi, or let PATH find the driver's own first.",
    references=("https://github.com/canonical/inference-snaps/issues/89", SMI),
)
def smi_outdated(look: Look) -> Iterator[Hit]:
    """Fire where both versions are known and differ, or where a field lacks that this driver's own knows."""
    gpus = look.facts.gpus
    if gpus.driver is None or gpus.state not in ("ok", "missing", "fault") or gpus.surroundings == "wsl":
        return
    own = gpus.driver_userspace
    # NVML gives two components of three.
    other = own is not None and not f"{gpus.driver}.".startswith(f"{own}.")
    lacks = "compute_cap" in gpus.unsupported and not older(gpus.driver, KNOWS_COMPUTE_CAP)
    if other or lacks:
        version = f" {text.brief(own)}" if other else ", which knows no compute capability,"
        yield Hit(
            f"The nvidia-smi{version} is not of the loaded driver {text.brief(gpus.driver)}.",
            expected=gpus.driver,
            seen=own,
            remedy=("command -v -a nvidia-smi; nvidia-smi --version; cat /proc/driver/nvidia/version",),
        )


RULES = (
    persistence_off,
    mig_enabled,
    ecc_pending,
    gpu_mixed,
    driver_minimum,
    driver_proprietary,
    smi_outdated,
)
