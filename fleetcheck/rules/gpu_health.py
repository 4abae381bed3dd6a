"""Rules on the health of GPUs that nvidia-smi lists: what asks for a reset, a repair or cooling."""

from __future__ import annotations

from collections.abc import Iterator

from fleetcheck.facts.records import Device
from fleetcheck.rules import text
from fleetcheck.rules.gpu import SMI, XID, last_xid
from fleetcheck.rules.rule import Hit, Look, rule

RECOVERY = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html"
MEMORY = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
SLOW = {
    "power-brake": "an external power brake",
    "heat-hardware": "the hardware's heat protection",
    "heat-software": "the driver's heat limit",
}


def which(device: Device) -> str:
    """Return a GPU in words: its index and bus id, as far as they are known."""
    number = "" if device.index is None else f" {device.index}"
    return f"GPU{number} ({text.brief(device.bus_id or device.uuid, 'without a bus id')})"


def at(device: Device) -> str:
    """Return nvidia-smi's argument that names a GPU: its uuid does not move when another one is lost."""
    return f"-i {text.quote(device.uuid or device.bus_id or '')}" if device.uuid or device.bus_id else ""


def listed(look: Look) -> Iterator[Device]:
    """Yield the GPUs that nvidia-smi lists."""
    yield from (device for device in look.facts.gpus.devices if device.uuid is not None)


def reset(device: Device) -> tuple[str, ...]:
    """Return the steps of a reset: who uses the GPU, then the reset, then a reboot where that is refused."""
    return (
        f"nvidia-smi {at(device)} --query-compute-apps=pid,process_name --format=csv  # stop these first",
        f"sudo nvidia-smi {at(device)} --gpu-reset  # stops what runs on this GPU",
        "Where NVLink links the GPUs, a reset may need all of them: stop what runs on each, then leave out -i.",
        f"{text.REBOOT}; where the reset is refused",
    )


@rule(
    "gpu-recovery",
    "gpu",
    "error",
    summary="The driver asks for a GPU to be recovered.",
    explanation=(
        "The driver keeps for each GPU what would bring it back: a reset, a reboot, or to drain it first. "
        "It asks after an error that it could not mend itself; the GPU may still be listed and answer. Drivers "
        "before 570 do not tell it."
    ),
    remedy="Stop what runs on the GPU, then do what the driver asks for.",
    references=(RECOVERY, XID),
)
def gpu_recovery(look: Look) -> Iterator[Hit]:
    """Fire for each GPU with an action."""
    for device in listed(look):
        if device.recovery_action:
            why = last_xid(look.facts.gpus, device.bus_id)
            yield Hit(
                f"The driver asks for {text.brief(device.recovery_action)} of {which(device)}.{why}",
                gpu=device.uuid,
                expected="None",
                seen=device.recovery_action,
                remedy=("sudo dmesg | grep -iE 'xid|nvrm'", *reset(device)),
            )


@rule(
    "memory-remap",
    "gpu",
    "warning",
    summary="Memory of a GPU waits to be replaced by spare memory, or could not be.",
    explanation=(
        "Broken rows (before Ampere: pages) of GPU memory are replaced at the next reset; until then the GPU "
        "runs with them set aside. A row that could not be replaced is an error: the spare ones are used up, "
        "which qualifies the board for replacement."
    ),
    remedy="Reset the GPU at the next chance; where a row could not be replaced, have the board exchanged.",
    references=(MEMORY, SMI),
)
def memory_remap(look: Look) -> Iterator[Hit]:
    """Fire for each GPU on which replacing failed, or is pending."""
    for device in listed(look):
        query = f"nvidia-smi {at(device)} -q -d ROW_REMAPPER,PAGE_RETIREMENT"
        if device.rows_failed:
            yield Hit(
                f"Memory of {which(device)} could not be replaced by spare memory.",
                gpu=device.uuid,
                severity="error",
                expected="replaced",
                seen="failed",
                remedy=(query, "Run NVIDIA's field diagnostic, and have the board exchanged."),
            )
        elif device.rows_pending:
            yield Hit(
                f"Memory of {which(device)} waits for a reset to be replaced by spare memory.",
                gpu=device.uuid,
                expected="nothing pending",
                seen="pending",
                remedy=(query, *reset(device)),
            )


@rule(
    "ecc-uncorrected",
    "gpu",
    "warning",
    summary="A GPU had memory errors that ECC could not correct.",
    explanation=(
        "They are counted since the driver was loaded. Each ended a process or made its result wrong. One that "
        "was contained and whose row was replaced is over; a number that grows is a failing board."
    ),
    remedy="Read the Xid of the error, reset the GPU, and watch whether the number grows again.",
    references=(MEMORY, XID),
)
def ecc_uncorrected(look: Look) -> Iterator[Hit]:
    """Fire for each GPU that counts some."""
    for device in listed(look):
        if device.ecc_uncorrected:
            errors = text.plural(device.ecc_uncorrected, "uncorrected memory error")
            yield Hit(
                f"{which(device)} counts {errors} since the driver was loaded.",
                gpu=device.uuid,
                expected=0,
                seen=device.ecc_uncorrected,
                remedy=(f"nvidia-smi {at(device)} -q -d ECC", "sudo dmesg | grep -iE 'xid|nvrm'", *reset(device)),
            )


@rule(
    "inforom-corrupt",
    "gpu",
    "warning",
    summary="The infoROM of a GPU is corrupted.",
    explanation=(
        "The infoROM holds the board's identity, its ECC counts and its settings. The GPU computes, but what it "
        "tells of itself may be wrong and settings may not last. nvidia-smi ends with 14 for it, and its rows are "
        "whole."
    ),
    remedy="Update the board's firmware with its maker's tool, or have the board exchanged.",
    references=("https://github.com/NVIDIA/gpu-operator/issues/20", SMI),
)
def inforom_corrupt(look: Look) -> Iterator[Hit]:
    """Fire for each GPU of which nvidia-smi says so, or once where it names none that is listed."""
    gpus = look.facts.gpus
    corrupt = [device for device in listed(look) if device.inforom_corrupt]
    for device in corrupt:
        yield Hit(
            f"The infoROM of {which(device)} is corrupted.",
            gpu=device.uuid,
            expected="intact",
            seen="corrupted",
            remedy=(f"nvidia-smi {at(device)} -q | grep -iA4 inforom", "Update the board's firmware."),
        )
    said = next((line for line in gpus.diagnostics if "inforom is corrupted" in line.lower()), None)
    if said is not None and not corrupt:
        yield Hit(
            f"nvidia-smi warns of a corrupted infoROM: {text.brief(said)}.",
            expected="intact",
            seen="corrupted",
            remedy=("nvidia-smi -q | grep -iA4 inforom", "Update the board's firmware."),
        )


@rule(
    "gpu-slowdown",
    "gpu",
    "warning",
    summary="Heat or a power brake holds a GPU's clocks down.",
    explanation=(
        "The hardware slows the GPU down because it is too hot, or because the host's power supply asked for it. "
        "It is what held at the moment of the audit. The driver's own, softer heat limit is information: a busy "
        "board in a warm case meets it. A power limit that somebody set is not reported."
    ),
    remedy="See to fans, airflow and power supply; move work off the host meanwhile.",
    references=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html", SMI),
)
def gpu_slowdown(look: Look) -> Iterator[Hit]:
    """Fire for each GPU that is slowed down."""
    for device in listed(look):
        if device.slowdown:
            heat = "" if device.temperature is None else f" at {device.temperature} °C"
            why = text.listing([SLOW[word] for word in device.slowdown])
            yield Hit(
                f"{why[0].upper()}{why[1:]} slows {which(device)} down{heat}.",
                gpu=device.uuid,
                severity="info" if device.slowdown == ("heat-software",) else None,
                expected="full clocks",
                seen=device.slowdown,
                remedy=(f"nvidia-smi {at(device)} -q -d PERFORMANCE,TEMPERATURE,POWER",),
            )


RULES = (gpu_recovery, memory_remap, ecc_uncorrected, inforom_corrupt, gpu_slowdown)
