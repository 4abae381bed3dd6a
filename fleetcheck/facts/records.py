"""What is known of a host, typed. These records are the ``hosts`` of the JSON document; the names are promises.

A field says in its definition whether it is ``volatile`` (never compared) or an ``identity`` (compared only with
the same host's past); :func:`kind_of` reads it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

VOLATILE = Field(json_schema_extra={"fact": "volatile"})
IDENTITY = Field(json_schema_extra={"fact": "identity"})

Basis = Literal["running", "resolved", "recorded", "imported", "guessed"]
GpuState = Literal[
    "hung", "driver-mismatch", "driver-unloaded", "smi-missing", "no-gpu", "no-permission", "nvml-error",
    "fault", "missing", "ok", "unknown",
]  # fmt: skip
DeviceState = Literal["ok", "fault", "missing", "unknown"]
CsrcState = Literal["complete", "incomplete", "empty", "missing", "unreadable", "unknown"]
VenvState = Literal["ok", "missing", "unreadable", "broken", "no-flashinfer", "remnant"]
FusionVerdict = Literal["absent", "refused", "supported", "unsafe-patch", "patched", "unreadable", "unknown"]
FusionEffective = Literal["off", "on", "on-unvalidated", "would-crash", "unknown"]
Install = Literal["wheel", "editable", "source", "unknown"]


class Fact(BaseModel):
    """A frozen fact. Unknown keys are refused where facts are made, ignored where old documents are read."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def kind_of(model: type[Fact], name: str) -> Literal["plain", "volatile", "identity"]:
    """Return how the field ``name`` of ``model`` may be compared."""
    extra: Any = model.model_fields[name].json_schema_extra
    kind = extra.get("fact") if isinstance(extra, dict) else None
    return "volatile" if kind == "volatile" else "identity" if kind == "identity" else "plain"


class Device(Fact):
    """One GPU as nvidia-smi lists it, or as PCI alone shows it (then ``index`` and ``uuid`` are None).

    ``bus_id`` is normalised: eight digits of domain, upper case. ``memory_mib`` is MiB.
    """

    index: int | None = None
    uuid: Annotated[str | None, IDENTITY] = None
    serial: Annotated[str | None, IDENTITY] = None
    bus_id: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    compute_capability_basis: Literal["reported", "guessed"] | None = None
    memory_mib: int | None = None
    state: DeviceState = "unknown"
    note: str | None = None
    """What nvidia-smi said of a device that is not ``ok``."""


class Gpus(Fact):
    """The GPUs of one host. ``count`` is None where nothing could count them, 0 where there are none.

    ``driver`` is the loaded kernel driver, ``driver_userspace`` what nvidia-smi or NVML brings.
    ``pci_count`` counts NVIDIA functions of PCI class 0300 and 0302.
    """

    state: GpuState = "unknown"
    count: int | None = None
    compute_capability: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    driver: str | None = None
    driver_userspace: str | None = None
    kernel_module: Literal["open", "proprietary"] | None = None
    link: str | None = None
    pci_count: int | None = None
    devices: tuple[Device, ...] = ()
    diagnostics: tuple[str, ...] = ()
    """Lines of nvidia-smi that are not rows, classified or not, bounded."""


class Toolkit(Fact):
    """A CUDA toolkit on the host; ``nvcc`` is its version, None where it has no compiler."""

    path: str
    nvcc: str | None = None


class FileFact(Fact):
    """A file that was looked at. ``record`` says how it stands to the wheel's RECORD."""

    path: str
    sha256: str | None = None
    size: int | None = None
    modified_at: Annotated[float | None, VOLATILE] = None
    record: Literal["match", "mismatch", "unlisted", "missing", "no-record", "unreadable"] = "no-record"


class FlashInfer(Fact):
    """FlashInfer as one environment's interpreter would resolve it.

    ``csrc_dir`` is the value that ``flashinfer.jit.env.FLASHINFER_CSRC_DIR`` would print, ``csrc_real`` its real
    path. ``constants`` are all the constants of ``jit/env.py`` that could be evaluated. ``modified`` are package
    files whose content is not what RECORD lists.
    """

    version: str | None = None
    root: str | None = None
    csrc_dir: str | None = None
    csrc_real: str | None = None
    csrc_default: str | None = None
    """``<package root>/data/csrc``, where every release keeps its sources."""
    csrc_state: CsrcState = "unknown"
    csrc_missing: tuple[str, ...] = ()
    """Files under csrc that RECORD lists, or the version needs, and that are absent (bounded)."""
    csrc_missing_count: int = 0
    decoy: str | None = None
    """A hand-made ``<package root>/csrc`` that FlashInfer never reads."""
    decoy_files: int | None = None
    basis: Basis = "resolved"
    constants: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)
    env_record: Literal["match", "mismatch", "unlisted", "missing", "no-record", "unreadable"] = "no-record"
    env_error: str | None = None
    """Why ``jit/env.py`` could not be evaluated (syntax error with its line, not there, too large)."""
    modified: tuple[str, ...] = ()
    files: tuple[FileFact, ...] = ()
    install: Install = "unknown"


class Fusion(Fact):
    """FlashInfer's TRT-LLM all-reduce on this host's GPUs. ``gate`` are the majors it admits, None = no gate.

    ``guards`` counts the preprocessor conditions of ``trtllm_allreduce.cuh`` that leave a kernel empty for
    compute capability 12.x. ``gate_basis`` tells where the gate was read, or why it was not.
    """

    verdict: FusionVerdict = "unknown"
    effective: FusionEffective = "unknown"
    gate: tuple[int, ...] | None = None
    gate_state: Literal["read", "no-gate", "absent", "unreadable"] = "unreadable"
    gate_file: str | None = None
    gate_error: str | None = None
    guards: int | None = None
    gates: dict[str, tuple[int, ...] | None] = Field(default_factory=dict)
    frameworks: dict[str, str | None] = Field(default_factory=dict)
    """Installed frameworks that may call it: name to version."""


class Torch(Fact):
    """The installed torch, read from its files; torch is never imported."""

    version: str | None = None
    cuda: str | None = None


class Toolchain(Fact):
    """The CUDA toolchain as FlashInfer's JIT would find it from this environment."""

    cuda_home: str | None = None
    nvcc: str | None = None


class Venv(Fact):
    """One Python environment of one host.

    ``activated_python`` is what ``python3`` means after activation, ``activated_prefix`` its ``sys.prefix``;
    ``activation_matches`` is None where it could not be asked.
    """

    path: str
    real: str | None = None
    item: str | None = None
    """The inventory entry that named it."""
    origin: Literal["listed", "running", "usual"] = "listed"
    state: VenvState = "ok"
    error: str | None = None
    """Why the state is not ``ok``: what the interpreter or the system said, bounded."""
    python: str | None = None
    prefix: str | None = None
    executable: str | None = None
    activated_python: str | None = None
    activated_prefix: str | None = None
    activation_matches: bool | None = None
    activation_error: str | None = None
    flashinfer: FlashInfer | None = None
    fusion: Fusion | None = None
    torch: Torch | None = None
    toolchain: Toolchain | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    """Versions of the distributions that matter: name to version."""


class System(Fact):
    """The host itself."""

    hostname: str | None = None
    kernel: str | None = None
    machine_id: Annotated[str | None, IDENTITY] = None
    boot_time: Annotated[float | None, VOLATILE] = None
    user: str | None = None
    python: str | None = None


class HostFacts(Fact):
    """All that is known of one host. ``venvs_known`` is False where no list of environments came back.

    ``caches`` and ``processes`` are None where they were not examined.
    """

    system: System | None = None
    gpus: Gpus = Gpus()
    toolkits: tuple[Toolkit, ...] = ()
    venvs: tuple[Venv, ...] = ()
    venvs_known: bool = False
    unmatched: tuple[str, ...] = ()
    """Globs of the inventory that matched nothing on this host."""
    caches: tuple[dict[str, Any], ...] | None = None
    processes: tuple[dict[str, Any], ...] | None = None
