"""What is known of a host, typed. These records are the ``hosts`` of the JSON document; the names are promises.

A field says in its definition whether it is ``volatile`` (never compared) or an ``identity`` (compared only with
the same host's past); :func:`kind_of` reads it. All records of the room are to be had from here.
"""

from __future__ import annotations

from fleetcheck.facts.fact import IDENTITY, VOLATILE, Basis, Fact, kind_of
from fleetcheck.facts.gpu_records import Device, DeviceState, GpuProcess, Gpus, GpuState, MigDevice, Slowdown, Xid
from fleetcheck.facts.host_records import (
    Cache,
    CacheFolder,
    CacheLock,
    CacheModule,
    DiskFile,
    Library,
    NamedCsrc,
    Process,
    System,
    UnreadProcess,
)
from fleetcheck.facts.package_records import (
    CsrcState,
    Distribution,
    FileFact,
    FlashInfer,
    Framework,
    FrameworkGate,
    Fusion,
    FusionEffective,
    FusionVerdict,
    Hidden,
    ImportState,
    Install,
    Shadow,
    StartFile,
    Torch,
)
from fleetcheck.facts.venv_records import Toolchain, Toolkit, Venv, VenvState

__all__ = [
    "IDENTITY",
    "VOLATILE",
    "Basis",
    "Cache",
    "CacheFolder",
    "CacheLock",
    "CacheModule",
    "CsrcState",
    "Device",
    "DeviceState",
    "DiskFile",
    "Distribution",
    "Fact",
    "FileFact",
    "FlashInfer",
    "Framework",
    "FrameworkGate",
    "Fusion",
    "FusionEffective",
    "FusionVerdict",
    "GpuProcess",
    "GpuState",
    "Gpus",
    "Hidden",
    "HostFacts",
    "ImportState",
    "Install",
    "Library",
    "MigDevice",
    "NamedCsrc",
    "Process",
    "Shadow",
    "Slowdown",
    "StartFile",
    "System",
    "Toolchain",
    "Toolkit",
    "Torch",
    "UnreadProcess",
    "Venv",
    "VenvState",
    "Xid",
    "kind_of",
]


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
    scanned: int | None = None
    """How many files of ``scan:`` were searched; None where none were asked for, or no answer came."""
    scan_unread: tuple[str, ...] = ()
    """What of ``scan:`` was not there, could not be read, or was left out, a line each."""
    expected_files: tuple[FileFact, ...] = ()
    """The files of ``expect.files`` as they lie on the host; ``record``: ``missing``, ``unreadable``, or read."""
    processes_unread: tuple[str, ...] = ()
    """Processes that may serve and could not be looked at, with the reason, and why there may be more."""
    unread: tuple[UnreadProcess, ...] = ()
    """Those of them that are known one by one, at most 20."""
    processes_hidden: str | None = None
    """Why the processes of other users are not to be seen at all (``hidepid``), an errno name."""
