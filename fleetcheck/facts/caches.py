"""FlashInfer's JIT caches, typed: which modules are there, and what they were built from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleetcheck.facts import shape
from fleetcheck.facts.records import Cache, CacheFolder, CacheLock, CacheModule

MAX_CACHES = 20
MAX_MODULES = 1000
VERSION = re.compile(r"\d{1,3}\.\d{1,3}")


def caches(part: object) -> tuple[Cache, ...]:
    """Type the part ``caches``."""
    found = []
    for raw in shape.items(shape.mapping(part).get("items"), MAX_CACHES):
        item = shape.mapping(raw)
        path = shape.name(item.get("path"))
        if path is None:
            continue
        error = shape.line(item.get("error"))
        found.append(
            Cache(
                path=path,
                user=shape.name(item.get("user"), 100),
                pid=shape.integer(item.get("pid"), 1),
                exists=shape.flag(item.get("exists")),
                owner=shape.integer(item.get("uid")),
                modules=tuple(
                    module
                    for one in shape.items(item.get("modules"), MAX_MODULES)
                    if (module := _module(shape.mapping(one)))
                ),
                undetected=_undetected(item),
                locks=_locks(item),
                truncated=shape.line(item.get("truncated")),
                error=None if error in ("ENOENT", "ENOTDIR") else error,
            )
        )
    return tuple(found)


def folders(first: object, second: object) -> tuple[str | None, str | None]:
    """Return version and arch of a workspace: ``CACHE/V/A`` from 0.4.1 on, ``CACHE/A`` before; A may be empty."""
    one, two = shape.name(first, 100), shape.name(second, 100)
    if one and VERSION.match(one):
        return one, two
    return None, one


def _module(item: Mapping[str, Any]) -> CacheModule | None:
    name, path = shape.name(item.get("name"), 300), shape.name(item.get("dir"))
    if not name or not path:
        return None
    version, arch = folders(item.get("first"), item.get("second"))
    library, newest = shape.mapping(item.get("library")), shape.mapping(item.get("newest"))
    return CacheModule(
        name=name,
        path=path,
        version=version,
        arch=arch,
        csrc=_folders(item.get("csrc")),
        includes=_folders(item.get("includes")),
        cuda_home=shape.name(item.get("cuda_home")),
        gencode=shape.texts(item.get("gencode"), 64),
        built=bool(library),
        built_at=shape.number(library.get("mtime")),
        newest_source=shape.name(newest.get("path")),
        newest_source_at=shape.number(newest.get("mtime")),
        error=shape.line(item.get("error"), 100),
    )


def _folders(value: object) -> tuple[CacheFolder, ...]:
    found = [shape.mapping(one) for one in shape.items(value, 50)]
    return tuple(
        CacheFolder(path=path, exists=shape.flag(one.get("exists")))
        for one in found
        if (path := shape.name(one.get("path")))
    )


def _undetected(item: Mapping[str, Any]) -> tuple[str, ...]:
    names = []
    for raw in shape.items(item.get("folders"), 300):
        one = shape.mapping(raw)
        first, second = shape.name(one.get("first"), 100) or "", shape.name(one.get("second"), 100) or ""
        if "noarch" in (first, second) or (not second and (not first or VERSION.match(first))):
            names.append("/".join(part for part in (first, second) if part) or ".")
    return shape.unique(names)


def _locks(item: Mapping[str, Any]) -> tuple[CacheLock, ...]:
    found = []
    for raw in shape.items(item.get("locks"), 100):
        one = shape.mapping(raw)
        path, kind = shape.name(one.get("path")), one.get("kind")
        if path and kind in ("file", "flock"):
            held, at = shape.flag(one.get("held")), shape.number(one.get("mtime"))
            found.append(CacheLock(path=path, kind=kind, held=held, modified_at=at))
    return tuple(found)
