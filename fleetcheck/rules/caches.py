"""Rules on the JIT cache: what was compiled there, and whether a process would use it as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from posixpath import normpath

from fleetcheck.facts.guards import FUSED, HEADER
from fleetcheck.facts.in_force import serves_from
from fleetcheck.facts.records import Cache, CacheModule, FileFact, FlashInfer, Process, Venv
from fleetcheck.facts.wrapper import MODULE
from fleetcheck.rules import text
from fleetcheck.rules.csrc import aliases
from fleetcheck.rules.rule import Hit, Look, rule

SHARED = "https://github.com/flashinfer-ai/flashinfer/issues/1920"
STALE = "https://github.com/flashinfer-ai/flashinfer/issues/4489"
BASE = "/.cache/flashinfer"


def workspace(found: FlashInfer) -> str | None:
    """Return the part of FlashInfer's workspace below the cache, ``0.6.2/120a``; None where it is not known."""
    folder = found.constants.get("FLASHINFER_WORKSPACE_DIR")
    if not isinstance(folder, str) or BASE not in folder:
        return None
    return folder.rpartition(BASE)[2].strip("/")


def of_workspace(cache: Cache, inside: str) -> tuple[CacheModule, ...]:
    """Return the modules of one workspace."""
    start = "/".join(part for part in (cache.path.rstrip("/"), inside) if part)
    return tuple(one for one in cache.modules if one.path.rpartition("/")[0].endswith(f"{start}/cached_ops"))


def used_by(look: Look, cache: Cache, venv: Venv) -> bool:
    """Return whether an environment would use a cache: its user serves from it, or it is the login's."""
    users = {process.user for process in look.facts.processes or () if serves_from(process, venv)}
    return cache.user in users if users else cache.user is None and cache.pid is None


def aside(look: Look, venv: Venv, found: FlashInfer, suffix: str, name: str | None = None) -> tuple[str, ...]:
    """Return the steps that move what was built for an environment away: one module of it, or all of this release.

    They name the caches of those who serve from it, which need not be in the login's home; nothing where these
    are known to hold no such module. Where no cache was looked at, the variables of who serves tell the place,
    else the login's own is named as such.
    """
    known = [cache for cache in look.facts.caches or () if used_by(look, cache, venv)]
    if known:
        return tuple(step for cache in known for step in _of_cache(cache, found, suffix, name))
    own = [process for process in look.facts.processes or () if serves_from(process, venv)]
    places = {_base(process): None if process.place == "host" else process.pid for process in own}
    inside = workspace(found)
    if own:
        if not all(places) or inside is None:
            return (text.BUILT,)
        below = "/".join(part for part in (inside, "cached_ops", name) if part)
        return tuple(_moved(f"{base}{BASE}/{below}", suffix, pid) for base, pid in places.items())
    built = found.constants.get("FLASHINFER_JIT_DIR")
    if not isinstance(built, str):
        return (text.BUILT,)
    path = f"{built}/{name}" if name else built
    return (f"mv {text.quote(path)} {text.quote(path + suffix)}  # its build, if the audit's login is who serves",)


def _of_cache(cache: Cache, found: FlashInfer, suffix: str, name: str | None) -> Iterator[str]:
    paths = dict.fromkeys(
        module.path if name else module.path.rpartition("/")[0]
        for module in cache.modules
        if name in (None, module.name) and (found.version is None or module.version in (None, found.version))
    )
    if not paths and cache.exists is not False and (cache.exists is None or cache.truncated or cache.error):
        paths = {cache.path: None}
    for path in paths:
        yield _moved(path, suffix, cache.pid)


def _base(process: Process) -> str | None:
    """Return the folder below which a process keeps its cache, None where its variables do not tell."""
    base = process.environment.get("FLASHINFER_WORKSPACE_BASE") or process.environment.get("HOME")
    return base.rstrip("/") if base and base.startswith("/") else None


def _moved(path: str, suffix: str, pid: int | None) -> str:
    where = f", in the container of process {pid}" if pid is not None else ""
    return f"mv {text.quote(path)} {text.quote(path + suffix)}  # its build{where}"


def state(module: CacheModule, own: set[str], headers: Sequence[FileFact] = ()) -> tuple[str, str] | None:
    """Return what is wrong with a module: a slug and the folder or file that tells it.

    ``headers`` are the edited ones that the module includes.
    """
    dead = [folder.path for folder in module.csrc if folder.exists is False]
    foreign = [folder.path for folder in module.csrc if normpath(folder.path) not in own]
    if dead:
        return "dead", dead[0]
    if foreign and own:
        return "foreign", foreign[0]
    newer = module.built_at is not None and module.newest_source_at is not None
    if newer and module.newest_source_at > module.built_at + 1 and module.newest_source:  # type: ignore[operator]
        return "older", module.newest_source
    if module.built_at is None:
        return None
    later = [one for one in headers if one.changed_at is not None and one.changed_at > module.built_at + 1]
    # ninja builds anew where a date is newer than the library's; a copy that keeps its date is passed by.
    hidden = [one for one in later if one.modified_at is not None and one.modified_at < module.built_at]
    if hidden:
        return "unnoticed", hidden[0].path
    return ("older", later[0].path) if later else None


def edited_headers(found: FlashInfer, module: str) -> list[FileFact]:
    """Return the headers of a module that are not the release's."""
    told = [found.file(name) for name in (HEADER, FUSED)] if module == MODULE else []
    return [file for file in told if file is not None and file.record == "mismatch"]


WORDS = {
    "dead": "were built from {0}, which is not there any more",
    "foreign": "were built from {0}, the sources of another environment",
    "older": "are older than their source {0}",
    "unnoticed": "were built before {0} was edited, and it bears an older date: nothing builds them anew, so that "
    "what runs is what was there before the edit",
}


@rule(
    "csrc-stale-cache",
    "csrc",
    "warning",
    summary="Compiled modules that this environment would use were built from other sources than its own.",
    explanation=(
        "FlashInfer keeps compiled modules by release and GPU architecture, not by environment: two environments "
        "of one user with the same release share them, and rebuild them for each other, for minutes at each "
        "start. "
        "A module whose sources are gone is rebuilt at its next use. One that is older than its source is rebuilt "
        "too, as far as ninja notices it: ninja compares dates, so that a file that was copied with its older "
        "date (`rsync -a`, `cp -p`) is not noticed, and the kernels of before go on running. "
        "Only the folder of this release and architecture is judged, in the cache of the user who serves."
    ),
    remedy=(
        "Move the modules away, so that they are built anew, or give each environment its "
        "FLASHINFER_WORKSPACE_BASE."
    ),
    references=(STALE, SHARED),
)
def csrc_stale_cache(look: Look) -> Iterator[Hit]:
    """Fire once for each environment, cache and kind."""
    for venv, found in look.installed():
        inside = workspace(found)
        own = {
            spelling
            for path in (found.csrc_dir, found.csrc_real, found.csrc_default)
            if path
            for spelling in aliases(venv, path)
        }
        for cache in look.facts.caches or () if inside is not None else ():
            if not used_by(look, cache, venv):
                continue
            kinds: dict[str, list[tuple[CacheModule, str]]] = {}
            for module in of_workspace(cache, str(inside)):
                what = state(module, own, edited_headers(found, module.name))
                if what is not None:
                    kinds.setdefault(what[0], []).append((module, what[1]))
            for kind, modules in kinds.items():
                names = text.listing([module.name for module, _ in modules])
                folder = modules[0][0].path.rpartition("/")[0]
                moved = [text.quote(module.path) for module, _ in modules[:3]]
                yield Hit(
                    f"Modules in {text.brief(folder)} ({names}) {WORDS[kind].format(text.brief(modules[0][1]))}.",
                    venv=venv.path,
                    key=kind,
                    severity="info" if kind == "older" else None,
                    expected=found.csrc_real or found.csrc_dir,
                    seen=modules[0][1],
                    basis="resolved",
                    remedy=(*(f"mv {path} {path}.old" for path in moved), text.RESTART),
                )


RULES = (csrc_stale_cache,)
