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
Slowdown = Literal["power-brake", "heat-hardware", "heat-software"]
CsrcState = Literal["complete", "incomplete", "empty", "missing", "unreadable", "unknown"]
VenvState = Literal["ok", "missing", "unreadable", "broken", "no-flashinfer", "remnant"]
FusionVerdict = Literal["absent", "refused", "supported", "unsafe-patch", "patched", "unreadable", "unknown"]
FusionEffective = Literal["off", "on", "on-unvalidated", "would-crash", "unknown"]
Install = Literal["wheel", "editable", "source", "unknown"]


class Fact(BaseModel):
    """A frozen fact. Unknown keys are refused where facts are made, ignored where old documents are read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002  # pydantic's signature
        """Forget which fields were given: a set a record, half of what a thousand hosts' facts take."""
        object.__setattr__(self, "__pydantic_fields_set__", _FORGOTTEN)


_FORGOTTEN: set[str] = set()
"""Shared by all facts: a frozen record adds nothing to it, and a copy of one copies it."""


def kind_of(model: type[Fact], name: str) -> Literal["plain", "volatile", "identity"]:
    """Return how the field ``name`` of ``model`` may be compared."""
    extra: Any = model.model_fields[name].json_schema_extra
    kind = extra.get("fact") if isinstance(extra, dict) else None
    return "volatile" if kind == "volatile" else "identity" if kind == "identity" else "plain"


class MigDevice(Fact):
    """A slice of a GPU that is partitioned. ``profile`` is such as ``1g.24gb``."""

    index: int
    profile: str
    uuid: Annotated[str | None, IDENTITY] = None


class Device(Fact):
    """One GPU as nvidia-smi lists it, or as PCI alone shows it (then ``index`` and ``uuid`` are None).

    ``bus_id`` is normalised: eight digits of domain, upper case. ``memory_mib`` is MiB. None is always "not
    known", also where the product has no such thing (ECC on a GeForce, MIG on a workstation board).
    ``pcie_width`` and ``pcie_generation`` are the link's now, ``…_max`` what GPU and system can; an idle link
    runs at a lower generation. ``port_width`` is what the slot's port can. ``power_limit`` is W, ``utilization``
    %, ``temperature`` °C.
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
    vbios: str | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    port_width: int | None = None
    pcie_generation: Annotated[int | None, VOLATILE] = None
    pcie_generation_max: int | None = None
    power_limit: float | None = None
    power_limit_max: float | None = None
    utilization: Annotated[int | None, VOLATILE] = None
    temperature: Annotated[int | None, VOLATILE] = None
    slowdown: Annotated[tuple[Slowdown, ...], VOLATILE] = ()
    """What holds the clocks down now, beside idleness and the power limit."""
    persistence: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    """The ECC mode after the next reset."""
    ecc_uncorrected: Annotated[int | None, VOLATILE] = None
    """Errors since the driver was loaded."""
    mig: bool | None = None
    mig_pending: bool | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    rows_pending: bool | None = None
    """Whether rows (before Ampere: pages) of memory will be replaced at the next reset."""
    rows_failed: bool | None = None
    """Whether a row could not be replaced."""
    inforom_corrupt: bool | None = None
    recovery_action: str | None = None
    """What the driver asks for, None where it asks for nothing or cannot tell."""


class GpuProcess(Fact):
    """A process that computes on a GPU, as nvidia-smi lists it. ``memory_mib`` is MiB."""

    pid: int
    gpu: str | None = None
    """The uuid of the GPU, or of the slice."""
    memory_mib: int | None = None
    name: str | None = None


class Xid(Fact):
    """An error that the driver wrote to the kernel's log. ``seconds`` is since boot, where the log tells it."""

    code: int
    bus_id: str | None = None
    seconds: float | None = None
    text: str = ""


class Gpus(Fact):
    """The GPUs of one host. ``count`` is None where nothing could count them, 0 where there are none.

    ``driver`` is the loaded kernel driver, ``driver_userspace`` what nvidia-smi or NVML brings.
    ``pci_count`` counts NVIDIA functions of PCI class 0300 and 0302. ``link`` is the worst of ``links`` (``SYS``,
    ``NODE``, ``PHB``, ``PXB``, ``PIX``, ``NV18``), ``nvlink`` whether every pair has NVLink. ``links`` and
    ``p2p`` have a pair as key (``0-1``, the indices) and ``topo``'s word as value.
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
    unsupported: tuple[str, ...] = ()
    """Fields that this nvidia-smi does not know; what they would tell is unknown, not absent."""
    nvlink: bool | None = None
    links: dict[str, str] = Field(default_factory=dict)
    p2p: dict[str, str] = Field(default_factory=dict)
    iommu: Literal["off", "passthrough", "translated", "on"] | None = None
    """How the IOMMU treats the GPUs; ``on`` where it is on and its mode is not known."""
    surroundings: str | None = None
    """``wsl``, or the kind of container (``docker``); None on a plain host."""
    processes: Annotated[tuple[GpuProcess, ...], VOLATILE] = ()
    xids: Annotated[tuple[Xid, ...], VOLATILE] = ()
    """The driver's errors of this boot, the last last, bounded."""
    blocked: Annotated[tuple[str, ...], VOLATILE] = ()
    """Processes that stay in uninterruptible sleep: ``nvidia-smi (4711)``."""


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


class Distribution(Fact):
    """One metadata folder of a package: what pip recorded. ``path`` is the folder."""

    name: str
    version: str
    path: str | None = None
    installer: str | None = None


class Shadow(Fact):
    """A package of the same name that a process started otherwise would import instead (``by`` what)."""

    by: Literal["PYTHONPATH", "user-site", "cwd"]
    path: str


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
    verified: bool | None = None
    """Whether a RECORD vouches for the files that decide; an editable install has none that does."""
    recorded_version: str | None = None
    """The version that pip recorded, where the package's own may differ."""
    distributions: tuple[Distribution, ...] = ()
    """Every metadata folder of it that is there; more than one is what a broken upgrade leaves."""
    shadows: tuple[Shadow, ...] = ()
    companions: tuple[Distribution, ...] = ()
    """flashinfer-cubin, flashinfer-jit-cache and the providers of the latter."""
    prebuilt: tuple[str, ...] = ()
    """Folders of prebuilt modules that are loaded before anything is compiled from csrc, as ``<dir>/<module>``."""
    cubins: dict[str, int] | None = None
    """Cubins of flashinfer-cubin by arch (``{"100": 1412}``); None where they were not counted."""
    imported_csrc_dir: str | None = None
    """What the real import says (``--deep``)."""
    imported_version: str | None = None
    imported_error: str | None = None
    """Why the real import failed; None also where none was made."""
    pcie_ipc: bool | None = None
    """Whether this release has the all-reduce over PCIe (0.7.0 and newer), which no gate closes."""


class FrameworkGate(Fact):
    """One place where a framework decides on the fusion.

    ``kind``: it calls the fused kernel (``call``), leaves its all-reduce to the next layer (``next-layer``),
    chooses a backend or raises (``backend``), switches the fusion on unasked (``auto-enable``). ``majors`` are
    those of 7 to 12 for which it may; None where it cannot be told (``error`` says why).
    """

    kind: Literal["call", "next-layer", "backend", "auto-enable"]
    file: str
    function: str
    majors: tuple[int, ...] | None = None
    error: str | None = None


class Framework(Fact):
    """An installed framework that may call FlashInfer's all-reduce, as its files say.

    ``admits`` are the majors for which it can come to a call, ``auto_enables`` those for which it may switch the
    fusion on unasked; None: not known. ``pins`` are the versions that its wheel requires, by distribution.
    """

    name: str
    version: str | None = None
    gates: tuple[FrameworkGate, ...] = ()
    admits: tuple[int, ...] | None = None
    auto_enables: tuple[int, ...] | None = None
    pins: dict[str, str] = Field(default_factory=dict)
    modified: tuple[str, ...] = ()
    """Files that decide on the fusion and are not what RECORD lists."""
    files: tuple[FileFact, ...] = ()
    """The same files, with what they are."""
    verified: bool | None = None
    pcie_ipc: bool | None = None
    """Whether it can use FlashInfer's all-reduce over PCIe (sglang 0.5.22 and newer, off by default)."""


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
    callers: tuple[Framework, ...] = ()
    """The same frameworks with their own gates."""
    closed: tuple[str, ...] | None = None
    """``gen_*`` functions of this FlashInfer whose gate misses a GPU of this host; None where no GPU is known."""


class Torch(Fact):
    """The installed torch, read from its files; torch is never imported."""

    version: str | None = None
    cuda: str | None = None


class Toolchain(Fact):
    """The CUDA toolchain as FlashInfer's JIT would find it from this environment."""

    cuda_home: str | None = None
    nvcc: str | None = None
    nvcc_path: str | None = None
    """The compiler that would be called, whether it is there or not."""
    found: bool | None = None
    """Whether that compiler is there; None where it was not looked for."""
    named_by: Literal["FLASHINFER_NVCC", "PYTORCH_NVCC", "CUDA_HOME", "CUDA_PATH", "PATH", "default"] | None = None
    problem: str | None = None
    """What is wrong with the variable that names the toolkit, such as a path that begins with a colon."""
    compiler: str | None = None
    ninja: str | None = None
    python_headers: bool | None = None
    arch_list: str | None = None
    """The architectures that a variable (``arch_list_from``) names in place of those of the GPUs."""
    arch_list_from: str | None = None
    searched: bool = False
    """Whether host compiler, ninja and headers were looked for."""


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


class Library(Fact):
    """A file that a process mapped. ``replaced``: the disk holds another one by now, or none."""

    path: str
    deleted: bool = False
    replaced: bool | None = None
    modified_at: Annotated[float | None, VOLATILE] = None


class DiskFile(Fact):
    """A deciding file as it lies on a process's disk. ``changed_at`` is the later of mtime and ctime.

    ``links`` above 1: a hard link, whose ctime also moves when another environment links to it.
    """

    name: str
    path: str
    sha256: str | None = None
    modified_at: Annotated[float | None, VOLATILE] = None
    changed_at: Annotated[float | None, VOLATILE] = None
    links: Annotated[int | None, VOLATILE] = None
    error: str | None = None


class Process(Fact):
    """A process that serves, or holds a GPU. ``pid`` and times are the host's; seconds since the epoch.

    ``venv`` is the environment whose packages it mapped (``venv_basis`` ``mapped``), else the one that its
    variables or its interpreter name. ``named_venv`` is what those name, where it is another. ``flags`` and
    ``environment`` hold what an allowlist lets through, nothing else. ``unseen`` tells what could not be read.
    """

    pid: Annotated[int, VOLATILE]
    user: str | None = None
    started_at: Annotated[float | None, VOLATILE] = None
    server: Literal["sglang", "vllm"] | None = None
    title: str | None = None
    launcher: Annotated[int | None, VOLATILE] = None
    """The process that started it, whose arguments these are."""
    place: Literal["host", "namespace", "container", "unknown"] = "unknown"
    """``namespace``: it has mounts of its own over the host's root folder, as units with PrivateTmp do."""
    container: str | None = None
    venv: str | None = None
    venv_basis: Literal["mapped", "VIRTUAL_ENV", "argv", "CONDA_PREFIX"] | None = None
    named_venv: str | None = None
    mapped: tuple[str, ...] = ()
    """Folders of packages that files are mapped from, the one with most first."""
    libraries: tuple[Library, ...] = ()
    flags: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    flashinfer_root: str | None = None
    files: tuple[DiskFile, ...] = ()
    toolchain: Toolchain | None = None
    uses_gpu: bool = False
    gpus: Annotated[tuple[str, ...], VOLATILE] = ()
    """Uuids of the GPUs on which nvidia-smi lists it."""
    unseen: tuple[str, ...] = ()


class NamedCsrc(Fact):
    """A path of CUDA sources that is written down in a file which starts what serves."""

    file: str
    line: int | None = None
    kind: Literal["unit", "script", "environment"] = "script"
    path: str


class CacheFolder(Fact):
    """A folder that a build.ninja names, and whether it is there."""

    path: str
    exists: bool | None = None


class CacheModule(Fact):
    """A module in a JIT cache. ``version`` and ``arch`` are the folders it lies in, None where there is none."""

    name: str
    path: str
    version: str | None = None
    arch: str | None = None
    csrc: tuple[CacheFolder, ...] = ()
    includes: tuple[CacheFolder, ...] = ()
    cuda_home: str | None = None
    gencode: tuple[str, ...] = ()
    built: bool = False
    built_at: Annotated[float | None, VOLATILE] = None
    newest_source: str | None = None
    newest_source_at: Annotated[float | None, VOLATILE] = None
    error: str | None = None


class CacheLock(Fact):
    """A lock file. ``file``: that it exists is the lock (torch's, up to 0.2.5). ``held``: someone holds it now."""

    path: str
    kind: Literal["file", "flock"]
    held: Annotated[bool | None, VOLATILE] = None
    modified_at: Annotated[float | None, VOLATILE] = None


class Cache(Fact):
    """A JIT cache of FlashInfer: the login's, or that of a user who serves (``user``)."""

    path: str
    user: str | None = None
    pid: Annotated[int | None, VOLATILE] = None
    """The process in whose container it lies; None on the host itself."""
    exists: bool | None = None
    owner: int | None = None
    modules: tuple[CacheModule, ...] = ()
    undetected: tuple[str, ...] = ()
    """Workspaces that tell of a failed detection of the GPUs: of an empty arch, or ``noarch``."""
    locks: tuple[CacheLock, ...] = ()
    truncated: str | None = None
    """Why not all of it was looked at."""
    error: str | None = None


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
    caches: tuple[Cache, ...] | None = None
    processes: tuple[Process, ...] | None = None
    named_csrc: tuple[NamedCsrc, ...] = ()
    processes_unread: tuple[str, ...] = ()
    """Processes that may serve and could not be looked at, with the reason."""
