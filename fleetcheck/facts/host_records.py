"""What is known of a host, of the processes that serve on it, and of the JIT caches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetcheck.facts.fact import IDENTITY, VOLATILE, Fact
from fleetcheck.facts.venv_records import Toolchain


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


class UnreadProcess(Fact):
    """A process that may serve and could not be looked at. ``error`` is an errno name, or ``state D``."""

    pid: Annotated[int, VOLATILE]
    user: str | None = None
    error: str | None = None


class NamedCsrc(Fact):
    """A path of CUDA sources that is written down: in a file which starts what serves, or one of ``scan:``."""

    file: str
    line: int | None = None
    kind: Literal["unit", "script", "environment", "scan"] = "script"
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
