"""Rules on the JIT cache: what was compiled there, and whether a process would use it as it is."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import normpath

from fleetcheck.facts.in_force import serves_from
from fleetcheck.facts.records import Cache, CacheModule, FlashInfer, Venv
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


def state(module: CacheModule, own: set[str]) -> tuple[str, str] | None:
    """Return what is wrong with a module: a slug and the folder or file that tells it."""
    dead = [folder.path for folder in module.csrc if folder.exists is False]
    foreign = [folder.path for folder in module.csrc if normpath(folder.path) not in own]
    if dead:
        return "dead", dead[0]
    if foreign and own:
        return "foreign", foreign[0]
    newer = module.built_at is not None and module.newest_source_at is not None
    if newer and module.newest_source_at > module.built_at + 1 and module.newest_source:  # type: ignore[operator]
        return "older", module.newest_source
    return None


WORDS = {
    "dead": "were built from {0}, which is not there any more",
    "foreign": "were built from {0}, the sources of another environment",
    "older": "are older than their source {0}",
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
        "too, as far as ninja notices it: ninja compares dates, so that restored older files are not noticed. "
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
                what = state(module, own)
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
