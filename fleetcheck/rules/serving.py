"""Rules on the processes that serve: whose packages they run, and whether the disk is still what they loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from posixpath import basename, normpath

from fleetcheck.facts.in_force import serves_from
from fleetcheck.facts.records import CacheModule, DiskFile, FlashInfer, Process, Venv
from fleetcheck.rules import text
from fleetcheck.rules.rule import Hit, Look, rule

PROC = "https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html"
GATE = "https://github.com/flashinfer-ai/flashinfer/pull/3903"
DECIDING = ("trtllm_comm", "pcie_ipc_comm")
MEND_FIRST = (
    "If another fusion-* or package-modified finding stands on this host, mend that first: a restart loads "
    "what is on "
    "the disk now."
)
TOUCHED = (
    "the disk holds the package's own file, which was moved there or had its owner or mode set after the start"
)
SLACK = 2.0
"""Seconds by which the start of a process may be off: the kernel counts it in ticks since a rounded boot time."""


def environment_of(look: Look, process: Process) -> Venv | None:
    """Return the environment that a process serves from, None where it was not looked at."""
    return next((venv for venv in look.facts.venvs if serves_from(process, venv)), None)


def pids(processes: Iterable[Process]) -> str:
    """Return ``Process 4711``, ``Processes 4711, 4712 and 3 more``."""
    numbers = [str(process.pid) for process in processes]
    return f"{'Process' if len(numbers) == 1 else 'Processes'} {text.listing(numbers)}"


def grouped(processes: Iterable[tuple[tuple[str, ...], Process]]) -> dict[tuple[str, ...], list[Process]]:
    """Return the processes of which the same is to be said: eight ranks of one server are one finding."""
    groups: dict[tuple[str, ...], list[Process]] = {}
    for key, process in processes:
        groups.setdefault(key, []).append(process)
    return groups


def same(venvs: Sequence[Venv], one: str, other: str) -> bool:
    """Return whether two paths name one environment, as far as the environments that were looked at tell."""
    if normpath(one) == normpath(other):
        return True
    for venv in venvs:
        paths = {normpath(path) for path in (venv.path, venv.real, venv.prefix) if path}
        if normpath(one) in paths and normpath(other) in paths:
            return True
    return False


@rule(
    "csrc-running-elsewhere",
    "csrc",
    "error",
    summary="A process that serves has loaded packages of another environment than the one it was started from.",
    explanation=(
        "What a process mapped is the strongest word on what it uses: `/proc/PID/maps` names the files. "
        "Where they "
        "lie in another environment than the one that its interpreter or VIRTUAL_ENV names, PYTHONPATH, a `.pth` "
        "file or a leftover variable put that one first, and whatever is patched in the named one has no effect. "
        "The same holds for a module of the JIT cache that was built from the sources of another environment."
    ),
    remedy=(
        "Take the other environment out of the way of the server (PYTHONPATH, `.pth`, its unit), then restart it."
    ),
    references=(PROC,),
    causes=("venv-not-serving",),
)
def csrc_running_elsewhere(look: Look) -> Iterator[Hit]:
    """Fire for packages of another environment, another FlashInfer, and modules built from elsewhere."""
    processes = look.facts.processes or ()
    loaded = (
        ((process.named_venv, process.venv), process)
        for process in processes
        if process.venv and process.named_venv and process.venv_basis == "mapped"
        if not same(look.facts.venvs, process.venv, process.named_venv)
    )
    for (named, venv), group in grouped(loaded).items():
        verb = "runs" if len(group) == 1 else "run"
        yield Hit(
            f"{pids(group)} {verb} with packages of {text.brief(venv)}, though started from {text.brief(named)}.",
            venv=named,
            expected=named,
            seen=venv,
            basis="running",
            remedy=(
                maps(group[0]),
                environ(group[0]),
                f"grep -l / {text.quote(named)}/lib/python*/site-packages/*.pth",
                (
                    "Remove what steps 2 and 3 show (PYTHONPATH in the unit, or a .pth file in site-packages), "
                    "then restart."
                ),
                text.RESTART,
            ),
        )
    yield from _modules(look, processes)


def maps(process: Process) -> str:
    """Return the command that shows which packages a process mapped."""
    return f"grep -oE '/[^ ]*(site|dist)-packages' /proc/{process.pid}/maps | sort | uniq -c"


def environ(process: Process) -> str:
    """Return the command that shows what put another environment first."""
    return f"tr '\\0' '\\n' </proc/{process.pid}/environ | grep -E '^(PYTHONPATH|VIRTUAL_ENV|PATH)='"


def _modules(look: Look, processes: Sequence[Process]) -> Iterator[Hit]:
    built = {module.path: module for cache in look.facts.caches or () for module in cache.modules}
    found: list[tuple[tuple[str, ...], Process]] = []
    for process in processes:
        venv = environment_of(look, process)
        csrc = venv.flashinfer if venv is not None else None
        for library in process.libraries:
            module = built.get(library.path.rpartition("/")[0])
            foreign = _foreign(module, csrc) if module is not None and csrc is not None else None
            if foreign and venv is not None:
                found.append(((venv.path, basename(library.path), foreign), process))
    for (path, name, foreign), group in grouped(found).items():
        verb = "runs" if len(group) == 1 else "run"
        yield Hit(
            f"{pids(group)} of {text.brief(path)} {verb} {text.brief(name)}, which was built from "
            f"{text.brief(foreign)}.",
            venv=path,
            key="module",
            seen=foreign,
            basis="running",
            remedy=(f"grep cached_ops /proc/{group[0].pid}/maps", text.RESTART),
        )


def _foreign(module: CacheModule, found: FlashInfer) -> str | None:
    own = {normpath(path) for path in (found.csrc_dir, found.csrc_real, found.csrc_default) if path}
    others = [folder.path for folder in module.csrc if normpath(folder.path) not in own]
    return others[0] if own and others and len(others) == len(module.csrc) else None


@rule(
    "venv-not-serving",
    "venv",
    "warning",
    summary="Processes serve on the host, and none of them from an environment that the inventory lists.",
    explanation=(
        "A listed environment is one that production is believed to use. Where sglang or vLLM serves from "
        "another, "
        "what is said of the listed one says nothing about production. Where processes could not be looked at, or "
        "nothing serves at all, this rule says nothing."
    ),
    remedy="List the environment that serves, or restart the server from the listed one.",
    references=(PROC,),
)
def venv_not_serving(look: Look) -> Iterator[Hit]:
    """Fire for each listed environment with FlashInfer, where all that serves does so from others."""
    servers = [process for process in look.facts.processes or () if process.server]
    known = [process for process in servers if process.venv]
    if not known or len(known) < len(servers) or look.facts.processes_unread:
        return
    listed = [venv for venv, _ in look.installed() if venv.origin == "listed"]
    if any(serves_from(process, venv) for venv in listed for process in known):
        return
    verb = "serves" if len(known) == 1 else "serve"
    others = sorted({process.venv for process in known if process.venv})
    for venv in listed:
        yield Hit(
            f"Nothing serves from {text.brief(venv.path)}; {pids(known).lower()} {verb} from "
            f"{text.listing(others)}.",
            venv=venv.path,
            expected=venv.path,
            seen=others[0],
            basis="running",
            remedy=(
                maps(known[0]),
                f"List {text.brief(others[0])} under venvs, or serve from the listed environment.",
            ),
        )


@rule(
    "fusion-memory-differs",
    "fusion",
    "warning",
    summary="A file that decides on the all-reduce fusion changed after the process that serves had started.",
    explanation=(
        "A process keeps what it loaded. Where the gate, `jit/env.py`, a header or a compiled module changed on "
        "the disk afterwards, the disk says one thing and the memory may hold the other: a patch that is not in "
        "force yet, or one that was taken back and still is. The later of mtime and ctime counts, since a file "
        "that is moved into place keeps its mtime. Where every file is the package's own and only its ctime "
        "moved, as `chown -R` does, it is information. A hard link whose ctime alone moved is passed by: tools "
        "that share files between environments move it."
    ),
    remedy=(
        "Mend first what else is found of this host's files: a restart loads what is on the disk. Then restart "
        "what "
        "serves; disk and memory are the same again."
    ),
    references=(GATE, PROC),
)
def fusion_memory_differs(look: Look) -> Iterator[Hit]:
    """Fire once for each process that has an older deciding file, or module, in memory than the disk has."""
    found: list[tuple[tuple[str, ...], Process]] = []
    for process in look.facts.processes or ():
        venv = environment_of(look, process)
        records = _records(venv.flashinfer) if venv is not None and venv.flashinfer is not None else {}
        old = {file.name: _direction(file, process, records) for file in process.files if changed(file, process)}
        alone = [file.name for file in process.files if (file.links or 1) == 1]
        whole = len(alone) > 1 and list(old) == alone and set(old.values()) == {TOUCHED}
        for library in process.libraries:
            if library.replaced and any(name in library.path for name in DECIDING):
                state = "is gone from" if library.deleted else "was replaced on"
                old[basename(library.path)] = f"the file that is mapped {state} the disk"
                whole = False
        if old:
            where = (venv.path if venv is not None else process.venv) or ""
            found.append(
                ((where, "info" if whole else "", *(f"{name}\0{how}" for name, how in old.items())), process)
            )
    for (where, mild, *told), group in grouped(found).items():
        yield _older(where or None, mild, dict(one.split("\0", 1) for one in told), group)


def _older(where: str | None, mild: str, old: Mapping[str, str], group: Sequence[Process]) -> Hit:
    """Return the finding of processes that have the same files (by name: what became of it) from before."""
    by_how: dict[str, list[str]] = {}
    for name, how in old.items():
        by_how.setdefault(how, []).append(name)
    only = len(by_how) == 1
    said = "; ".join(how if only else f"of {text.listing(names)}, {how}" for how, names in by_how.items())
    verb = "has" if len(group) == 1 else "have"
    return Hit(
        f"{pids(group)} {verb} {text.listing(list(old))} in memory from before a change: {said}.",
        venv=where,
        severity="info" if mild else None,
        key=",".join(sorted(old)),
        expected="as on the disk",
        seen=next(iter(old)) if len(old) == 1 else list(old),
        basis="running",
        remedy=(
            f"ps -o pid,lstart,args -p {','.join(str(one.pid) for one in group[:8])}",
            MEND_FIRST,
            text.RESTART,
        ),
    )


def changed(file: DiskFile, process: Process) -> bool:
    """Return whether a file surely changed, in content or place, after the process started."""
    start = process.started_at
    if start is None or file.changed_at is None or file.changed_at <= start + SLACK:
        return False
    by_content = file.modified_at is not None and file.modified_at > start + SLACK
    return by_content or (file.links or 1) == 1


def _records(found: FlashInfer) -> Mapping[str, str]:
    return {text.inside(found, file.path): file.record for file in found.files}


def _direction(file: DiskFile, process: Process, records: Mapping[str, str]) -> str:
    state = records.get(file.name)
    if state in ("mismatch", "unlisted"):
        return "the disk holds a local edit, made after the start"
    # The agent lists files that are not as RECORD has them, and a few that are.
    if state == "match":
        written = file.modified_at is not None and file.modified_at > (process.started_at or 0.0) + SLACK
        return "the disk holds the package's own file, written after the start" if written else TOUCHED
    return "the disk holds a file that came there after the start"


RULES = (csrc_running_elsewhere, venv_not_serving, fusion_memory_differs)
