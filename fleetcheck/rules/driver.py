"""Rules on the GPU driver, and on nvidia-smi's silence."""

from __future__ import annotations

from collections.abc import Iterator

from fleetcheck.rules import text
from fleetcheck.rules.gpu import BLIND, OPEN, SMI, XID, absence, last_xid, said
from fleetcheck.rules.rule import Hit, Look, rule
from fleetcheck.rules.versions import admits


@rule(
    "driver-version",
    "gpu",
    "error",
    summary="The GPU driver's version is not one of those expected.",
    explanation=(
        "The loaded kernel driver counts, not the libraries that are installed beside it. `expect.driver` is a "
        "range such as `>=580.95.05`. Where no driver is known to be loaded, the expectation is "
        "`expectation-unchecked`."
    ),
    remedy="Drain the host, install the expected driver and reboot; or correct `driver` in the inventory.",
    references=(
        "https://docs.nvidia.com/datacenter/tesla/drivers/",
        "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
    ),
)
def driver_version(look: Look) -> Iterator[Hit]:
    """Fire where both the range and the driver parse, and the range does not admit it."""
    expected, seen = look.target.expect.driver, look.facts.gpus.driver
    if expected is None or seen is None or admits(expected, seen) is not False:
        return
    yield Hit(
        f"The driver {text.brief(seen)} is loaded, {text.brief(expected)} is expected.",
        expected=expected,
        seen=seen,
        remedy=(
            "cat /proc/driver/nvidia/version",
            text.APPS,
            "Drain the host, then install the expected driver from the source that this host uses.",
            text.REBOOT,
        ),
    )


@rule(
    "driver-mismatch",
    "gpu",
    "error",
    summary="The loaded kernel driver and the installed driver libraries are of different versions.",
    explanation=(
        "The driver's packages were updated while the old kernel module stayed loaded. Processes that run "
        "go on; no new one can use a GPU. Nothing was counted or asked of the GPUs."
    ),
    remedy="Drain the host and reboot it, or unload and reload the kernel modules with no process on the GPUs.",
    references=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/", SMI),
    causes=(*BLIND, "driver-version"),
)
def driver_mismatch(look: Look) -> Iterator[Hit]:
    """Fire where nvidia-smi says so."""
    gpus = look.facts.gpus
    if gpus.state != "driver-mismatch":
        return
    loaded = text.brief(gpus.driver, "another version")
    brought = text.brief(gpus.driver_userspace, "another one")
    yield Hit(
        f"The kernel driver loaded is {loaded}, the installed libraries are {brought}: "
        "no new process can use a GPU.",
        expected=gpus.driver_userspace,
        seen=gpus.driver,
        remedy=(
            "cat /proc/driver/nvidia/version; ls -l /usr/lib/*/libnvidia-ml.so.*",
            text.HOLDERS,
            text.REBOOT,
        ),
    )


@rule(
    "driver-unloaded",
    "gpu",
    "error",
    summary="The GPU driver is not loaded.",
    explanation=(
        "nvidia-smi is installed and cannot reach the kernel driver. Often a new kernel was booted for "
        "which the module was not built. It is information where no GPU is on PCI and the "
        "inventory expects none."
    ),
    remedy="Build the module for the running kernel, load it, and read why it fails where it does.",
    references=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/", SMI),
    causes=(*BLIND, "driver-version"),
)
def driver_unloaded(look: Look) -> Iterator[Hit]:
    """Fire where nvidia-smi says so."""
    if look.facts.gpus.state == "driver-unloaded":
        kernel = look.facts.system.kernel if look.facts.system is not None else None
        running = f" under kernel {text.brief(kernel)}" if kernel else ""
        yield Hit(
            f"The GPU driver is not loaded{running}: nvidia-smi cannot communicate with it.",
            severity=absence(look),
            expected="loaded",
            seen="driver-unloaded",
            remedy=(
                "lsmod | grep nvidia; uname -r; dkms status",
                (
                    "sudo dkms autoinstall  # builds the module for the running kernel, where the driver came "
                    "with DKMS"
                ),
                "sudo modprobe nvidia",
                "sudo dmesg | grep -iE 'nvidia|nvrm'",
            ),
        )


@rule(
    "smi-missing",
    "gpu",
    "error",
    summary="nvidia-smi is not on the host.",
    explanation=(
        "No nvidia-smi lies in PATH or in the usual places, though a GPU is on PCI. Nothing was "
        "counted or asked of the GPUs. It is information where no GPU is on PCI and the inventory expects none."
    ),
    remedy="Install the utilities of the driver that is loaded; they must be of the same version.",
    references=(SMI, "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"),
    causes=(*BLIND, "driver-version"),
)
def smi_missing(look: Look) -> Iterator[Hit]:
    """Fire where no nvidia-smi was found."""
    gpus = look.facts.gpus
    if gpus.state != "smi-missing":
        return
    loaded = f"the driver {text.brief(gpus.driver)} is loaded" if gpus.driver else "no loaded driver was seen"
    pci = "" if gpus.pci_count is None else f", and PCI lists {text.plural(gpus.pci_count, 'GPU')}"
    yield Hit(
        f"nvidia-smi was not found on this host; {loaded}{pci}.",
        severity=absence(look),
        expected="nvidia-smi",
        seen=gpus.diagnostics[0] if gpus.diagnostics else None,
        remedy=(
            "cat /proc/driver/nvidia/version; ldconfig -p | grep nvidia-ml",
            "Install the driver's utilities (nvidia-utils), of the same version as the driver that is loaded.",
        ),
    )


@rule(
    "smi-hung",
    "gpu",
    "error",
    summary="nvidia-smi did not come back.",
    explanation=(
        "nvidia-smi was abandoned at its limit, or one that cannot be killed was there already, and no "
        "further one was started. The driver or a GPU hangs. Processes in state D cannot be killed; only a reboot "
        "frees them. A hang of B200 after about 66 days of uptime is known (see the reference). Nothing was "
        "counted or asked of the GPUs. "
        "A busy host without persistence mode may take 30 s; the limit is 60 s and can be set."
    ),
    remedy=(
        "Look for processes in state D and for an Xid; drain the host and power-cycle it if a reboot hangs too."
    ),
    references=(f"{OPEN}/971", XID),
    causes=(*BLIND, "driver-version"),
)
def smi_hung(look: Look) -> Iterator[Hit]:
    """Fire where nvidia-smi did not end."""
    gpus = look.facts.gpus
    if gpus.state == "hung":
        why = f" ({said(gpus)})" if gpus.diagnostics else ""
        yield Hit(
            f"nvidia-smi did not come back{why}: the driver or a GPU hangs.{last_xid(gpus)}",
            expected="ok",
            seen="hung",
            remedy=(
                "ps -eo pid,stat,wchan:30,args | awk '$2 ~ /^D/'  # cannot be killed; only a reboot frees them",
                "sudo dmesg | grep -iE 'xid|nvrm'",
                "uptime",
                text.HOLDERS,
                f"{text.REBOOT}; power-cycle it if that hangs",
            ),
        )


RULES = (driver_version, driver_mismatch, driver_unloaded, smi_missing, smi_hung)
