"""The folder from which FlashInfer's JIT takes its CUDA sources: which, whole, confused with another?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Any, Literal

from fleetcheck.facts import releases, shape
from fleetcheck.facts.records import CsrcState

MAX_NAMES = 50


@dataclass(frozen=True, slots=True)
class Csrc:
    """State of the folder that is read; ``missing`` are names relative to it, bounded."""

    state: CsrcState = "unknown"
    real: str | None = None
    missing: tuple[str, ...] = ()
    missing_count: int = 0
    basis: Literal["recorded", "names"] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """Names of files that were looked at under csrc, relative to it.

    ``every_trtllm`` is True where each file ``trtllm_*`` that is there would be among them. ``by_names`` is True
    where no RECORD is to be expected, as in a checkout: then the names that a release must have decide. ``why``
    tells why nothing is listed, where a RECORD is there.
    """

    names: frozenset[str] = frozenset()
    every_trtllm: bool = False
    by_names: bool = False
    why: str | None = None


def folder(
    entries: Sequence[Mapping[str, Any]], path: str | None, alias: str | None, version: str | None, seen: Seen
) -> Csrc:
    """Judge the folder ``path``, to which ``alias`` leads as well, by the entry that looked at it."""
    entry = find(entries, path, alias)
    if entry is None:
        return Csrc()
    real, error = shape.name(entry.get("real")), shape.line(entry.get("error"))
    files, listed = shape.integer(entry.get("files")), shape.integer(entry.get("listed"))
    missing = shape.texts(entry.get("missing"), MAX_NAMES)
    count = max(shape.integer(entry.get("missing_count")) or 0, len(missing))
    if error in ("ENOENT", "ENOTDIR") or (entry.get("exists") is False and not error):
        return Csrc("missing", real, missing, count)
    if error or entry.get("exists") is not True or files is None:
        return Csrc("unreadable" if error else "unknown", real, error=error)
    if files == 0:
        return Csrc("empty", real, missing, count)
    if listed:
        return Csrc("incomplete" if count else "complete", real, missing, count, "recorded")
    link = _linked(entries, entry, files) if listed is None else None
    if link is not None:
        missing = shape.texts(link.get("missing"), MAX_NAMES)
        count = max(shape.integer(link.get("missing_count")) or 0, len(missing))
        return Csrc("incomplete" if count else "complete", real, missing, count, "recorded")
    return _by_version(entry, real, files, version, seen)


def without_included(found: Csrc, names: Sequence[str]) -> Csrc:
    """Return the state where files below ``data`` are gone that the sources in the folder are compiled with.

    They are headers beside it (``data/include/…``), or in it, and folders of other projects (``data/cutlass``).
    """
    if not names or found.state != "complete":
        return found
    inside, data = "data/csrc/", "data/"
    missing = tuple(
        name.removeprefix(inside) if name.startswith(inside) else f"../{name.removeprefix(data)}" for name in names
    )
    return Csrc("incomplete", found.real, missing[:MAX_NAMES], len(missing), found.basis)


def _linked(
    entries: Sequence[Mapping[str, Any]], entry: Mapping[str, Any], files: int
) -> Mapping[str, Any] | None:
    """Return the entry of a tree of links (uv's link mode) that ``entry`` is the folder behind, or None.

    RECORD speaks of the links: they lead to what it lists, and there are as many as files behind them.
    """
    for other in entries:
        listed = shape.integer(other.get("listed"))
        if (
            other is not entry
            and listed
            and other.get("exists") is True
            and not other.get("error")
            and shape.integer(other.get("extra_count")) == 0
            and shape.integer(other.get("files")) == files
        ):
            return other
    return None


def _by_version(entry: Mapping[str, Any], real: str | None, files: int, version: str | None, seen: Seen) -> Csrc:
    """Without a RECORD only the sources that the release must have can be missed."""
    needed = releases.csrc_files(version)
    names = seen.names | set(shape.texts(entry.get("extra"), MAX_NAMES))
    missing = tuple(name for name in needed if name not in names)
    whole = len(names) >= files
    certain = tuple(name for name in missing if whole or (seen.every_trtllm and name.startswith("trtllm_")))
    if certain:
        return Csrc("incomplete", real, certain, len(certain), "names")
    if needed and not missing and seen.by_names:
        return Csrc("complete", real, basis="names")
    why = seen.why or "no RECORD lists its files"
    why = why if needed else f"{why}, and the release is not known"
    return Csrc("unknown", real, error=why)


def find(
    entries: Sequence[Mapping[str, Any]], path: str | None, alias: str | None = None
) -> Mapping[str, Any] | None:
    """Return the entry that looked at ``path``: by its path, by its real path, or by another way there."""
    for key, wanted in (("path", path), ("real", path), ("path", alias)):
        for entry in entries if wanted else ():
            if normpath(shape.name(entry.get(key)) or "") == normpath(wanted or ""):
                return entry
    return None


def decoy(
    entries: Sequence[Mapping[str, Any]], root: str | None, csrc_dir: str | None, csrc_real: str | None
) -> tuple[str, int | None] | None:
    """Return ``<package root>/csrc`` and its number of files where it is there and FlashInfer never reads it.

    A link to the folder that is read is none: what is edited there takes effect.
    """
    if root is None or csrc_dir is None:
        return None
    path = normpath(f"{root}/csrc")
    entry = find(entries, path)
    if entry is None or entry.get("exists") is not True or shape.integer(entry.get("listed")):
        return None
    if path == normpath(csrc_dir) or (csrc_real and shape.name(entry.get("real")) == csrc_real):
        return None
    return path, shape.integer(entry.get("files"))
