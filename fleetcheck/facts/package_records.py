"""What is known of the packages of an environment: FlashInfer, the frameworks that call it, torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetcheck.facts.fact import VOLATILE, Basis, Fact

CsrcState = Literal["complete", "incomplete", "empty", "missing", "unreadable", "unknown"]
FusionVerdict = Literal["absent", "refused", "supported", "unsafe-patch", "patched", "unreadable", "unknown"]
FusionEffective = Literal["off", "on", "on-unvalidated", "would-crash", "unknown"]
Install = Literal["wheel", "editable", "source", "unknown"]
ImportState = Literal["answered", "failed", "refused", "no-gpu", "unfinished", "not-made"]
"""How the real import (``--deep``) ended: ``failed`` of the environment itself, ``refused`` of what the guard does
not let through, ``no-gpu`` of no GPU being visible to it; ``unfinished`` hung or was killed."""


class FileFact(Fact):
    """A file that was looked at. ``record`` says how it stands to the wheel's RECORD.

    ``modified_at`` is the date that the file bears, ``changed_at`` when it was last touched: a copy keeps the one.
    """

    path: str
    sha256: str | None = None
    size: int | None = None
    modified_at: Annotated[float | None, VOLATILE] = None
    changed_at: Annotated[float | None, VOLATILE] = None
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


class Hidden(Fact):
    """The environment's own copy of a package, before which another one comes: put there ``by`` what."""

    by: Literal["activation", "start-up"]
    path: str


class StartFile(Fact):
    """A line of a file that Python runs at every start; ``word`` is what it names.

    ``sys.path``: any change; ``unread``: one that may put another package in front, and cannot be read as data;
    ``closed``: the file may not be read by the audit's user, and has no line.
    """

    file: str
    line: int | None = None
    word: Literal["FLASHINFER_CSRC_DIR", "flashinfer", "sys.path", "unread", "closed"] = "flashinfer"


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
    csrc_basis: Literal["recorded", "names"] | None = None
    """What vouches for the state: RECORD's list of files, or the names that the release must have."""
    csrc_error: str | None = None
    """Why the state is ``unknown`` or ``unreadable``, where a reason is known."""
    decoy: str | None = None
    """A hand-made ``<package root>/csrc`` that FlashInfer never reads."""
    decoy_files: int | None = None
    basis: Basis = "resolved"
    constants: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)
    env_record: Literal["match", "mismatch", "unlisted", "missing", "no-record", "unreadable"] = "no-record"
    env_error: str | None = None
    """Why ``jit/env.py`` could not be evaluated (syntax error with its line, not there, too large)."""
    modified: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Files that are gone, without which it cannot be imported, or its all-reduce cannot be built."""
    replaced: tuple[str, ...] = ()
    """Files that Python imports instead of a module of the release that lies beside them."""
    redirected: tuple[str, ...] = ()
    """Edited files that may move the sources or replace what builds from them; ``basis`` is ``guessed`` then."""
    files: tuple[FileFact, ...] = ()
    install: Install = "unknown"
    verified: bool | Literal["partly"] | None = None
    """Whether a RECORD vouches for the files that decide; an editable install has none that does. ``partly``: some
    of the sources were compared by their size alone (they are many, or changed late), or could not be read."""
    recorded_version: str | None = None
    """The version that pip recorded, where the package's own may differ."""
    distributions: tuple[Distribution, ...] = ()
    """Every metadata folder of it that is there; more than one is what a broken upgrade leaves."""
    shadows: tuple[Shadow, ...] = ()
    hidden: Hidden | None = None
    """The environment's own FlashInfer where this one comes before it."""
    start_files: tuple[StartFile, ...] = ()
    """Where files that Python runs at every start touch FlashInfer. They are read, never run."""
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
    """Why the real import failed, or gave no answer; None also where none was asked for."""
    imported_state: ImportState | None = None
    """How the real import ended; None where none was asked for."""
    pcie_ipc: bool | None = None
    """Whether this release has the all-reduce over PCIe (0.7.0 and newer), which no gate closes."""

    def file(self, name: str) -> FileFact | None:
        """Return a file that was told of by its name below the package's folder; its path may be whole or not."""
        return next((one for one in self.files if one.path == name or one.path.endswith(f"/{name}")), None)


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
    """Whether it can use FlashInfer's all-reduce over PCIe (sglang from 0.5.22 on, vLLM 0.33), off by default."""
    falls_back: bool = False
    """Whether it goes on without the fusion where FlashInfer refuses (vLLM from 0.17 on), instead of ending."""


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
    error_file: str | None = None
    """The file that ``gate_error`` speaks of, relative to the package; it may be another than the gate's."""
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
