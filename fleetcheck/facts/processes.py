"""Processes that serve, typed: where each takes its packages from, and what it was started with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fleetcheck.facts import shape, toolchain
from fleetcheck.facts.records import DiskFile, GpuProcess, Library, NamedCsrc, Process, UnreadProcess
from fleetcheck.facts.redact import redacted

MAX_PROCESSES = 100
MAX_LIBRARIES = 100
UNANSWERED = ("processes:", "venvs: running:", "no Python of 3.8")
"""How lines of the part ``end`` begin that tell why what serves was not looked at."""
PACKAGES = re.compile(r"/(?:lib|lib64|local/lib)/python3(?:\.\d{1,2})?/(?:site|dist)-packages$")
# Two slashes, then a name with a dot, a port or a user: `//opt/x` is a path as well.
ADDRESS = re.compile(r"//[^/]*[.@:][^/]*/")

Basis = Literal["mapped", "VIRTUAL_ENV", "argv", "CONDA_PREFIX"]
Places = Mapping[tuple[str, str], str]
"""The path under which an environment is listed: of a container by its namespace and its path in there.

Those of the host itself stand under an empty namespace, by their real paths.
"""


def processes(part: object, gpus: Sequence[GpuProcess] = (), places: Places | None = None) -> tuple[Process, ...]:
    """Type the part ``processes``; ``gpus`` is what nvidia-smi tells of processes."""
    whole = shape.mapping(part)
    views = [shape.mapping(view) for view in shape.items(whole.get("views"), MAX_PROCESSES)]
    by_pid: dict[int, list[str]] = {}
    for one in gpus:
        by_pid.setdefault(one.pid, []).append(one.gpu or "")
    found = []
    for raw in shape.items(whole.get("items"), MAX_PROCESSES):
        item = shape.mapping(raw)
        pid = shape.integer(item.get("pid"), 1)
        if pid is not None:
            number = shape.integer(item.get("view"), 0, len(views) - 1) if views else None
            view = {} if number is None else views[number]
            found.append(_process(item, pid, view, shape.unique(by_pid.get(pid, ())), places or {}))
    return tuple(found)


def named_csrc(part: object) -> tuple[NamedCsrc, ...]:
    """Return the paths of sources that files name: of the part ``processes``, or of ``scan``."""
    found = []
    for raw in shape.items(shape.mapping(part).get("named"), MAX_PROCESSES):
        item = shape.mapping(raw)
        file, path, kind = shape.name(item.get("file")), shape.name(item.get("path")), item.get("kind")
        if file and path and kind in ("unit", "script", "environment", "scan") and not is_address(path):
            line = shape.integer(item.get("line"), 1)
            found.append(NamedCsrc(file=redacted(file), line=line, kind=kind, path=redacted(path)))
    return tuple(found)


def is_address(path: str) -> bool:
    """Return whether a path is of a server, such as what is behind the colon of ``https://github.com/x``."""
    return "://" in path or bool(ADDRESS.match(path))


def scan_unread(part: object) -> tuple[str, ...]:
    """Return, as lines, what of the part ``scan`` was not there, could not be read, or was left out."""
    whole = shape.mapping(part)
    lines = [f"{path} matches nothing" for path in shape.texts(whole.get("unmatched"), 100)]
    lines += [line for raw in shape.texts(whole.get("errors"), 20) if (line := shape.line(raw, 400))]
    cut = shape.line(whole.get("truncated"))
    return (*lines, *((cut,) if cut else ()))


def unread_processes(part: object) -> tuple[UnreadProcess, ...]:
    """Return the processes that may serve and could not be looked at, as far as they are named."""
    found = []
    for raw in shape.items(shape.mapping(part).get("unread"), 20):
        item = shape.mapping(raw)
        pid = shape.integer(item.get("pid"))
        if pid is not None:
            user, error = shape.name(item.get("user"), 60), shape.line(item.get("error"), 60)
            found.append(UnreadProcess(pid=pid, user=user, error=error))
    return tuple(found)


def hidden(part: object) -> str | None:
    """Return why the processes of other users are not to be seen, None where they are or nothing tells."""
    return shape.line(shape.mapping(part).get("hidden"), 60)


def unread(part: object, end: object = None) -> tuple[str, ...]:
    """Return, as lines, the processes that may serve and could not be looked at, and why there may be more.

    ``end`` is the part of that name: it tells why a part that is absent is absent.
    """
    whole = shape.mapping(part)
    lines = [
        f"process {one.pid} of {one.user or 'another user'}: {one.error or 'no reason'}"
        for one in unread_processes(part)
    ]
    count = shape.integer(whole.get("unread_count")) or 0
    if count > len(lines):
        lines.append(f"{count - len(lines)} more")
    why = hidden(part)
    lines += [f"the processes of other users: hidden ({why})"] if why else []
    error = shape.line(whole.get("error"))
    told = (shape.line(raw) for raw in shape.texts(shape.mapping(end).get("errors"), 40))
    lost = (line for line in told if line and line.startswith(UNANSWERED))
    return (*lines, *((error,) if error else ()), *lost)


def _process(
    item: Mapping[str, Any], pid: int, view: Mapping[str, Any], gpus: tuple[str, ...], at: Places
) -> Process:
    launcher = shape.mapping(item.get("launcher"))
    environment = _texts(launcher.get("env")) | _texts(item.get("env"))
    mapped = shape.unique(
        shape.name(shape.mapping(one).get("path")) for one in shape.items(item.get("mapped"), 20)
    )
    named, basis = _named(item, launcher, environment)
    flashinfer = shape.name(view.get("root"))
    loaded = _loaded(mapped, named, flashinfer)
    place = _place(item)
    space = shape.name(item.get("namespace_id"), 60)
    if place in ("container", "namespace") and space:
        named = at.get((space, named), named) if named else None
        loaded = at.get((space, loaded), loaded) if loaded else None
    version = None
    tools = shape.mapping(view.get("tools"))
    return Process(
        pid=pid,
        user=shape.name(item.get("user"), 100),
        started_at=shape.number(item.get("started")),
        server=_server(item.get("server")) or _server(launcher.get("server")),
        title=shape.name(item.get("title"), 100),
        launcher=shape.integer(launcher.get("pid"), 1),
        place=place,
        container=shape.name(item.get("container"), 40),
        venv=loaded or _by_link(item, launcher, basis, at) or named,
        venv_basis="mapped" if loaded else basis if named else None,
        named_venv=named,
        mapped=mapped,
        libraries=_libraries(item),
        flags=_texts(launcher.get("flags")) | _texts(item.get("flags")),
        environment=environment,
        flashinfer_root=flashinfer,
        files=_files(view),
        toolchain=toolchain.resolved(tools, environment, version) if tools else None,
        uses_gpu=shape.flag(item.get("gpu")) is True or bool(gpus),
        gpus=gpus,
        unseen=_unseen(item, view),
    )


def _loaded(mapped: Sequence[str], named: str | None, flashinfer: str | None) -> str | None:
    """Return the environment that a process runs from, as its mapped files tell; None where they do not.

    Several may be mapped, and rightly: a ``.pth`` file lends an environment the torch of another. FlashInfer maps
    nothing by itself, so where its package lies decides between them, then the environment that was started.
    """
    prefixes = [prefix for folder in mapped if (prefix := prefix_of(folder))]
    of_flashinfer = prefix_of(flashinfer.rpartition("/")[0]) if flashinfer else None
    for wanted in (of_flashinfer, named):
        if wanted in prefixes:
            return wanted
    return prefixes[0] if prefixes else None


def prefix_of(folder: str) -> str | None:
    """Return the environment that a folder of packages belongs to, None for one outside of any."""
    match = PACKAGES.search(folder)
    return folder[: match.start()] or "/" if match else None


def _named(
    item: Mapping[str, Any], launcher: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[str | None, Basis | None]:
    # The interpreter that was started decides; VIRTUAL_ENV may be left over from the shell that started it.
    for value, basis in (
        (shape.name(item.get("argv_prefix")), "argv"),
        (shape.name(launcher.get("argv_prefix")), "argv"),
        (shape.name(environment.get("VIRTUAL_ENV")), "VIRTUAL_ENV"),
        (shape.name(environment.get("CONDA_PREFIX")), "CONDA_PREFIX"),
    ):
        if value and value.startswith("/"):
            return value.rstrip("/") or "/", basis  # type: ignore[return-value]  # one of the words above
    return None, None


def _by_link(item: Mapping[str, Any], launcher: Mapping[str, Any], basis: Basis | None, at: Places) -> str | None:
    """Return the environment that an interpreter's path leads to by a link, where it was looked at."""
    if basis != "argv":
        return None
    by = item if shape.name(item.get("argv_prefix")) else launcher
    return at.get(("", shape.name(by.get("argv_real")) or ""))


def _place(item: Mapping[str, Any]) -> Literal["host", "namespace", "container", "unknown"]:
    if shape.flag(item.get("other_root")) is True:
        return "container"
    space = item.get("namespace")
    if space == "other":
        return "container" if shape.name(item.get("container"), 40) not in (None, "machine") else "namespace"
    return "host" if space == "same" else "unknown"


def _server(value: object) -> Literal["sglang", "vllm"] | None:
    return "sglang" if value == "sglang" else "vllm" if value == "vllm" else None


def _texts(value: object) -> dict[str, str]:
    return {
        key[:100]: redacted(f"{key[:100]}={text}").partition("=")[2]
        for key, raw in list(shape.mapping(value).items())[:200]
        if isinstance(key, str) and (text := shape.text(raw)) is not None
    }


def _libraries(item: Mapping[str, Any]) -> tuple[Library, ...]:
    found = []
    for raw in shape.items(item.get("libraries"), MAX_LIBRARIES):
        one = shape.mapping(raw)
        path = shape.name(one.get("path"))
        if path:
            found.append(
                Library(
                    path=path,
                    deleted=shape.flag(one.get("deleted")) is True,
                    replaced=shape.flag(one.get("replaced")),
                    modified_at=shape.number(one.get("mtime")),
                )
            )
    return tuple(found)


def _files(view: Mapping[str, Any]) -> tuple[DiskFile, ...]:
    found = []
    for raw in shape.items(view.get("files"), 50):
        one = shape.mapping(raw)
        name, path = shape.name(one.get("name"), 300), shape.name(one.get("path"))
        times = [at for key in ("mtime", "ctime") if (at := shape.number(one.get(key))) is not None]
        if name and path:
            found.append(
                DiskFile(
                    name=name,
                    path=path,
                    sha256=shape.name(one.get("sha256"), 64),
                    modified_at=shape.number(one.get("mtime")),
                    changed_at=max(times, default=None),
                    links=shape.integer(one.get("links")),
                    error=shape.line(one.get("error"), 60),
                )
            )
    return tuple(found)


def _unseen(item: Mapping[str, Any], view: Mapping[str, Any]) -> tuple[str, ...]:
    said = {
        "mapped files": item.get("maps_error"),
        "environment": item.get("env_error"),
        "namespace": item.get("namespace_error"),
        "files on its disk": view.get("error"),
    }
    return tuple(f"{what}: {line}" for what, why in said.items() if (line := shape.line(why, 100)))
