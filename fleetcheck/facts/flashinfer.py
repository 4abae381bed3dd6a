"""FlashInfer as one environment's interpreter would resolve it: paths, constants, sources, local edits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename, dirname, normpath
from typing import Any

from packaging.utils import canonicalize_name

from fleetcheck.facts import csrc, deciders, flashinfer_env, shape, source, toolchain
from fleetcheck.facts.expressions import World
from fleetcheck.facts.records import FileFact, FlashInfer, Hidden, Install, StartFile

ENV = "jit/env.py"
CSRC, INCLUDE = "FLASHINFER_CSRC_DIR", "FLASHINFER_INCLUDE_DIR"
# What decides whether this env.py is run at all.
BEFORE_ENV = ("__init__.py", "jit/__init__.py", ENV)
MAX_FILES = 200
MAX_STARTS = 50
STARTS = ("FLASHINFER_CSRC_DIR", "flashinfer", "unread", "closed")
RECORDS = ("match", "mismatch", "unlisted", "missing", "no-record", "unreadable")


@dataclass(frozen=True, slots=True)
class Around:
    """What is known of the environment: variables after activation, compute capabilities, nvcc, other packages."""

    env: Mapping[str, str] | None
    capabilities: tuple[str, ...]
    nvcc: str | None
    packages: Mapping[str, bool]


def files(package: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the looked-at files of a package by their names relative to its root."""
    entries = [shape.mapping(item) for item in shape.items(package.get("files"))]
    return {name: entry for entry in entries if (name := shape.name(entry.get("name")))}


def resolved(package: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the package without the metadata folders of the environment's own copy, where another is in front."""
    own = shape.name(shape.mapping(package.get("hidden")).get("path"))
    if own is None:
        return package
    dists = [
        dist
        for dist in shape.items(package.get("dists"), 50)
        if dirname(shape.name(shape.mapping(dist).get("dir")) or "") != dirname(own)
    ]
    return {**package, "dists": dists}


def distributions(package: Mapping[str, Any]) -> dict[str, str]:
    """Return normalised distribution names and versions; of two installed the first, as Python does."""
    found: dict[str, str] = {}
    for item in shape.items(package.get("dists"), 50):
        dist = shape.mapping(item)
        name, version = shape.name(dist.get("name"), 200), shape.name(dist.get("version"), 100)
        if name and version:
            found.setdefault(canonicalize_name(name), version)
    return found


def version(package: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the version to show, and ``flashinfer.__version__`` as a process would see it (None: unknown)."""
    by_name = files(package)
    dists = distributions(package)
    shown = dists.get("flashinfer-python") or dists.get("flashinfer")
    for name in ("_build_meta.py", "version.py"):
        text = shape.source(by_name.get(name, {}).get("text"))
        said = shape.name(source.literals(text).get("__version__"), 100) if text else None
        if said:
            # The fallback of a checkout that was never built; its metadata may tell more.
            fallback = name == "version.py"
            return (shown or said if fallback else said), said
    return shown, shown


def flashinfer(package: Mapping[str, Any], around: Around) -> FlashInfer:
    """Type the evidence of an importable ``flashinfer`` package."""
    by_name = files(package)
    shown, running = version(package)
    root = shape.name(package.get("root"))
    env_file = by_name.get(ENV, {})
    real_root = shape.name(package.get("root_real")) or root
    file = shape.name(env_file.get("real")) or (f"{real_root}/{ENV}" if real_root else None)
    replaced = deciders.replaced(by_name)
    instead = next((replaced[name] for name in BEFORE_ENV if name in replaced), None)
    constants = (
        flashinfer_env.Constants(error=f"never run: {instead} is imported instead")
        if instead
        else _constants(env_file, file, _world(running, around))
    )
    base = dirname(dirname(file)) if file else None
    csrc_dir = constants.values.get("FLASHINFER_CSRC_DIR")
    csrc_dir = csrc_dir if isinstance(csrc_dir, str) else None
    entries = [shape.mapping(item) for item in shape.items(package.get("csrc"), 50)]
    # An environment behind a link: FlashInfer names the link's target, the agent looked through the link.
    behind = bool(root and base and csrc_dir and csrc_dir.startswith(f"{base}/"))
    alias = f"{root}{csrc_dir[len(base) :]}" if behind and csrc_dir and base else None
    install = _install(package, root)
    env_record = _record(env_file) if env_file else "missing"
    default = f"{base}/data/csrc" if base else None
    # A folder that an edited env.py names has no RECORD either, and other rules tell of the edit.
    by_names = install in ("editable", "source") or (default is not None and csrc_dir != default)
    below = _below(package, (root, base), csrc_dir, by_names=by_names)
    state = csrc.folder(entries, csrc_dir, alias, shown, below)
    if csrc_dir is None and env_record == "unreadable":
        state = csrc.Csrc("unreadable", error=f"{ENV}: {constants.error}")
    lost = deciders.lost(by_name, shown)
    state = csrc.without_included(state, [name for name in lost if name.startswith("data/")])
    start_files = _start_files(package)
    set_at_start = any(one.word in ("FLASHINFER_CSRC_DIR", "unread", "closed") for one in start_files)
    fake = csrc.decoy(entries, root, csrc_dir, state.real) or csrc.decoy(entries, base, csrc_dir, state.real)
    return FlashInfer(
        version=shown,
        root=root,
        csrc_dir=csrc_dir,
        csrc_real=state.real,
        csrc_default=default,
        csrc_state=state.state,
        csrc_missing=state.missing,
        csrc_missing_count=state.missing_count,
        csrc_basis=state.basis,
        csrc_error=state.error,
        decoy=fake[0] if fake else None,
        decoy_files=fake[1] if fake else None,
        # What runs before a program's first line, or beside env.py, may set the folder anew: the files then tell
        # what is likely.
        basis="guessed" if set_at_start or instead or deciders.moved(by_name) else "resolved",
        constants=dict(constants.values),
        env_record=env_record,
        env_error=constants.error,
        modified=_modified(by_name, entries, (root, base)),
        absent=lost,
        replaced=tuple(sorted(replaced.values())),
        redirected=deciders.edited(by_name),
        files=tuple(_fact(name, entry) for name, entry in list(by_name.items())[:MAX_FILES]),
        install=install,
        hidden=_hidden(package),
        start_files=start_files,
    )


def sources_doubt(found: FlashInfer, package: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """Return why it is not certain that trtllm_comm is built from the package's own folders, or None.

    With it comes the file of the package that leaves the doubt. The verdict on the fusion rests on these folders,
    and a ``jit/env.py`` that is as RECORD lists it leads there in every release.
    """
    if touched := next((one for one in found.start_files if one.word == CSRC), None):
        return f"{touched.file}, which runs at every start, names {CSRC}", None
    if moving := next((one for one in found.start_files if one.word in ("unread", "closed")), None):
        where = f"{moving.file}:{moving.line}" if moving.line else moving.file
        return f"{where}, which runs at every start, may put another package in front", None
    env = files(package).get(ENV)
    if env is None or found.env_record in ("match", "missing") or found.replaced:
        return None  # what is missing, or not run, is told by the look at the modules
    if found.csrc_dir is None:
        return f"{ENV}, which names the sources, cannot be followed: {found.env_error}", ENV
    base = dirname(dirname(found.csrc_default)) if found.csrc_default else None
    own = {normpath(path) for path in (found.root, shape.name(package.get("root_real")), base) if path}
    if normpath(found.csrc_dir) not in {f"{path}/data/csrc" for path in own}:
        return f"{ENV} moves the sources to {found.csrc_dir}", ENV
    include = found.constants.get(INCLUDE)
    if include is None and INCLUDE not in (shape.source(env.get("text")) or ""):
        return None
    led = normpath(include) if isinstance(include, str) else "a folder that is computed"
    return None if led in {f"{path}/data/include" for path in own} else (f"{ENV} moves the headers to {led}", ENV)


def _hidden(package: Mapping[str, Any]) -> Hidden | None:
    said = shape.mapping(package.get("hidden"))
    path, by = shape.name(said.get("path")), said.get("by")
    return Hidden(by=by, path=path) if path and by in ("activation", "start-up") else None


def _start_files(package: Mapping[str, Any]) -> tuple[StartFile, ...]:
    """Return what start-up files touch. That one changes the path counts where another package came in front."""
    moved = shape.mapping(package.get("hidden")).get("by") == "start-up"
    found = []
    for raw in shape.items(package.get("start_files"), MAX_STARTS):
        item = shape.mapping(raw)
        file, word = shape.name(item.get("file")), item.get("word")
        if item.get("unread") is True and word != "FLASHINFER_CSRC_DIR":
            word = "closed" if item.get("error") else "unread"
        if file and (word in STARTS or (word == "sys.path" and moved)):
            found.append(StartFile(file=file, line=shape.integer(item.get("line"), 1), word=word))
    return tuple(found)


def _world(running: str | None, around: Around) -> World:
    arch = toolchain.arch_folder(running, around.capabilities, around.env, around.nvcc)
    return World(around.env, arch, running, around.packages)


def _constants(entry: Mapping[str, Any], file: str | None, world: World) -> flashinfer_env.Constants:
    error = shape.line(entry.get("error"))
    if not entry or error in ("ENOENT", "ENOTDIR") or entry.get("record") == "missing":
        return flashinfer_env.Constants(error="jit/env.py is not there")
    text = shape.source(entry.get("text"))
    if entry.get("cut"):
        return flashinfer_env.Constants(error="jit/env.py is too large to be read whole")
    if text is None or file is None:
        return flashinfer_env.Constants(error=error or "the text of jit/env.py did not come back")
    if entry.get("record") != "match" and (reason := flashinfer_env.skipped(text)):
        return flashinfer_env.Constants(error=reason)
    return flashinfer_env.constants(text, shape.name(entry.get("path")) or file, file, world)


def _below(
    package: Mapping[str, Any], parents: tuple[str | None, str | None], csrc_dir: str | None, *, by_names: bool
) -> csrc.Seen:
    """What was looked at below csrc; ``parents`` are the package's root, and the one that env.py starts from."""
    inside = next(
        (csrc_dir[len(p) + 1 :] for p in parents if p and csrc_dir and csrc_dir.startswith(p + "/")), None
    )
    dists = [shape.mapping(item) for item in shape.items(package.get("dists"), 50)]
    closed = any(dist.get("record") == "unreadable" for dist in dists)
    why = "RECORD, which lists its files, could not be read" if closed else None
    if inside is None:
        return csrc.Seen(why=why)
    by_name = files(package)
    below = {name[len(inside) + 1 :]: entry for name, entry in by_name.items() if name.startswith(inside + "/")}
    there = frozenset(
        n for n, entry in below.items() if entry.get("record") != "missing" and not entry.get("error")
    )
    # The agent tells of each watched file that does not match RECORD: without a RECORD, of each.
    unrecorded = all(entry.get("record") == "no-record" for entry in by_name.values())
    every = unrecorded and inside == "data/csrc" and not package.get("error") and bool(there)
    return csrc.Seen(there, every, by_names and not closed, why)


def _modified(
    by_name: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], roots: tuple[str | None, str | None]
) -> tuple[str, ...]:
    names = [name for name, entry in by_name.items() if entry.get("record") == "mismatch"]
    for entry in entries:
        path = normpath(shape.name(entry.get("path")) or "")
        inside = next((path[len(root) + 1 :] for root in roots if root and path.startswith(root + "/")), None)
        for name in shape.texts(entry.get("size_differs"), csrc.MAX_NAMES) if inside else ():
            names.append(name if name.startswith(f"{inside}/") else f"{inside}/{name}")
    return tuple(sorted(set(names)))[:MAX_FILES]


def _record(entry: Mapping[str, Any]) -> Any:
    said = entry.get("record")
    return said if said in RECORDS else "no-record"


def _fact(name: str, entry: Mapping[str, Any]) -> FileFact:
    return FileFact(
        path=shape.name(entry.get("path")) or name,
        sha256=shape.name(entry.get("sha256"), 64),
        size=shape.integer(entry.get("size")),
        modified_at=shape.number(entry.get("mtime")),
        changed_at=shape.number(entry.get("ctime")),
        record=_record(entry),
    )


def _install(package: Mapping[str, Any], root: str | None) -> Install:
    dists = [shape.mapping(item) for item in shape.items(package.get("dists"), 50)]
    own = [
        d
        for d in dists
        if canonicalize_name(shape.name(d.get("name"), 200) or "") in ("flashinfer-python", "flashinfer")
    ]
    for dist in own:
        try:
            url = shape.mapping(json.loads(shape.text(shape.mapping(dist.get("direct_url")).get("text")) or "{}"))
        except (ValueError, RecursionError):
            continue
        if shape.mapping(url.get("dir_info")).get("editable") is True:
            return "editable"
    if root is None:
        return "unknown"
    beside = [d for d in own if dirname(shape.name(d.get("dir")) or "") == dirname(root)]
    if any(dist.get("record") in ("present", "too-large") for dist in beside):
        return "wheel"
    packaged = basename(dirname(root)) in ("site-packages", "dist-packages")
    return "unknown" if packaged else "source"
