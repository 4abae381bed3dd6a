"""Rules on the GPUs of a host."""

from __future__ import annotations

from collections.abc import Iterator

from fleetcheck.facts.records import Gpus
from fleetcheck.rules import text
from fleetcheck.rules.finding import Severity
from fleetcheck.rules.rule import Hit, Look, rule

SMI = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
XID = "https://docs.nvidia.com/deploy/xid-errors/index.html"
OPEN = "https://github.com/NVIDIA/open-gpu-kernel-modules/issues"
GPU_KEYS = ("gpus", "gpu_name", "compute_capability", "driver", "link")
LIST_PCI = "lspci -d 10de: -nn | grep -E '\\[030[02]\\]'"
WRAPPER = 'file -L "$(command -v nvidia-smi)"  # a script there may drop the arguments it is given'
COUNTED = ("ok", "missing", "fault", "no-gpu")
"""States in which nvidia-smi answered, so that its rows can be counted."""
UNCHECKED = tuple(f"expectation-unchecked/{key}" for key in (*GPU_KEYS, "allreduce_fusion"))
BLIND = ("gpu-count", "gpu-name", "compute-capability", "gpu-missing", "gpu-fault", *UNCHECKED)


def counted(gpus: Gpus) -> int | None:
    """Return how many GPUs there are, None where nvidia-smi did not tell: a silent host does not have 0 of 8.

    One that hung half-way gave some rows, which are no count either.
    """
    if gpus.count is None:
        return None
    rows = gpus.state == "unknown" and any(device.uuid for device in gpus.devices)
    return gpus.count if gpus.state in COUNTED or rows else None


def absence(look: Look) -> Severity:
    """Return how grave a mute driver is: no fault where no GPU is expected and PCI shows none."""
    return "info" if look.target.expect.gpus == 0 and not look.facts.gpus.pci_count else "error"


def said(gpus: Gpus) -> str:
    """Return the first lines that nvidia-smi printed beside rows."""
    return text.brief("; ".join(gpus.diagnostics[:2]), "it gave no reason")


def last_xid(gpus: Gpus, bus_id: str | None = None, *, meaning: bool = True) -> str:
    """Return a sentence with the last Xid of this boot, of one GPU where its bus id is given; else nothing.

    Its meaning is left out where the same was said already.
    """
    found = [xid.code for xid in gpus.xids if bus_id is None or xid.bus_id in (None, bus_id)]
    if not found:
        return ""
    return f" The last Xid of this boot is {text.xid(found[-1]) if meaning else found[-1]}."


@rule(
    "gpu-count",
    "gpu",
    "error",
    summary="The number of GPUs is not the expected one.",
    explanation=(
        "nvidia-smi's rows are counted and compared with `expect.gpus`. Where nvidia-smi did not answer, "
        "nothing was counted, and the expectation is `expectation-unchecked` under what kept it from "
        "answering. A host without any GPU, for which no number is expected, is a warning."
    ),
    remedy=(
        "Look for the lost GPU on PCI and in the kernel log; drain the host, then reboot or power-cycle it, which "
        "usually brings it back."
    ),
    references=(XID, SMI),
    causes=("expectation-unchecked/gpu_name", "expectation-unchecked/compute_capability"),
)
def gpu_count(look: Look) -> Iterator[Hit]:
    """Fire where GPUs were counted and their number differs."""
    gpus, expected = look.facts.gpus, look.target.expect.gpus
    count = counted(gpus)
    if expected is None and gpus.state == "no-gpu":
        yield Hit(
            "No GPU was found on this host.",
            severity="warning",
            seen=0,
            remedy=(LIST_PCI, "If this host is to have none, set expect.gpus to 0 in the inventory."),
        )
    if expected is None or count is None or count == expected:
        return
    pci = "" if gpus.pci_count is None else f"; PCI lists {gpus.pci_count}"
    yield Hit(
        f"{count} of {expected} expected GPUs are there{pci}."
        if count < expected
        else f"{text.plural(count, 'GPU')} {'is' if count == 1 else 'are'} there, {expected} expected{pci}.",
        expected=expected,
        seen=count,
        remedy=(
            LIST_PCI,
            "sudo dmesg | grep -iE 'xid|nvrm'",
            *(
                ("If the number is meant, set expect.gpus in the inventory.",)
                if count > expected
                else (text.APPS, text.REBOOT)
            ),
        ),
    )


@rule(
    "gpu-unreadable",
    "gpu",
    "error",
    summary="nvidia-smi answered, but could not say what GPUs there are.",
    explanation=(
        "NVML or its library could not be loaded, or the audit's user may not open the devices. In a "
        "container this happens after `systemctl daemon-reload` on its host, and a restart of the "
        "container mends it."
    ),
    remedy="Give the user access to `/dev/nvidia*`, restart the container, or see why NVML does not start.",
    references=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/251", SMI),
    causes=BLIND,
)
def gpu_unreadable(look: Look) -> Iterator[Hit]:
    """Fire where nvidia-smi ran and gave no rows for a reason without a rule of its own."""
    gpus = look.facts.gpus
    if gpus.state not in ("no-permission", "nvml-error") and not (gpus.state == "unknown" and gpus.diagnostics):
        return
    listed = "could not be listed in full" if gpus.count else "could not be listed"
    what = "may not be asked by the audit's user" if gpus.state == "no-permission" else listed
    place = "" if gpus.surroundings is None else f" in a container ({text.brief(gpus.surroundings)})"
    yield Hit(
        f"The GPUs {what}{' under WSL' if gpus.surroundings == 'wsl' else place}: {said(gpus)}.",
        expected="ok",
        seen=gpus.state,
        remedy=("ls -l /dev/nvidia*; id", "nvidia-smi -L", "sudo dmesg | grep -iE 'xid|nvrm'", *mend(gpus)),
    )


def mend(gpus: Gpus) -> tuple[str, ...]:
    """Return what gives nvidia-smi its GPUs back: its own arguments, the container's restart, the user's group."""
    restart = "On the container's host: docker restart CONTAINER  # ends what runs in the container"
    group = "sudo usermod -aG GROUP USER  # the group that owns /dev/nvidia*; it holds from the next login on"
    contained = gpus.surroundings not in (None, "wsl")
    other = any(line.endswith("was not asked for") for line in gpus.diagnostics)
    return (
        *((WRAPPER,) if other else ()),
        *((restart,) if contained else ()),
        *((group,) if gpus.state == "no-permission" else ()),
    )


@rule(
    "gpu-name",
    "gpu",
    "error",
    summary="A GPU is of another model than expected.",
    explanation=(
        "The full name is compared: `RTX PRO 6000` begins the names of three products that differ in "
        "power, cooling and MIG."
    ),
    remedy=(
        "Correct `gpu_name` in the inventory to the name that nvidia-smi prints, or see which board is in "
        "the host."
    ),
    references=("https://github.com/NVIDIA/open-gpu-kernel-modules#compatible-gpus", SMI),
)
def gpu_name(look: Look) -> Iterator[Hit]:
    """Fire where a name is known and is another one."""
    gpus, expected = look.facts.gpus, look.target.expect.gpu_name
    others = [name for name in gpus.names if name != expected]
    if expected is not None and others:
        yield Hit(
            f"The GPUs are {text.listing(gpus.names)}, not {text.brief(expected)}.",
            expected=expected,
            seen=gpus.names,
            remedy=("nvidia-smi -L", "If the model is meant, set expect.gpu_name to the name that this prints."),
        )


@rule(
    "compute-capability",
    "gpu",
    "error",
    summary="A GPU has another compute capability than expected.",
    explanation=(
        "What kernels a GPU can run follows from its compute capability. It is what nvidia-smi reports; "
        "where that is too old to know the field, it is guessed from the product, and the finding is a "
        "warning."
    ),
    remedy="Correct `compute_capability` in the inventory, or see which board is in the host.",
    references=("https://developer.nvidia.com/cuda-gpus",),
)
def compute_capability(look: Look) -> Iterator[Hit]:
    """Fire where a compute capability is known and is another one."""
    gpus, expected = look.facts.gpus, look.target.expect.compute_capability
    others = [seen for seen in gpus.compute_capability if seen != expected]
    if expected is None or not others:
        return
    basis = [device.compute_capability_basis for device in gpus.devices if device.compute_capability in others]
    guessed = bool(basis) and all(one == "guessed" for one in basis)
    yield Hit(
        f"The GPUs have compute capability {text.listing(gpus.compute_capability)}, not {expected}.",
        severity="warning" if guessed else None,
        expected=expected,
        seen=gpus.compute_capability,
        basis="guessed" if guessed else None,
        remedy=(
            "nvidia-smi --query-gpu=index,name,compute_cap --format=csv",
            "If these GPUs are meant, set expect.compute_capability in the inventory.",
        ),
    )


RULES = (gpu_count, gpu_unreadable, gpu_name, compute_capability)
