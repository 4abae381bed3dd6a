"""The names of an inventory, quickly: what the shell completes.

In: the text behind ``-i``. Out: hosts and groups. They are kept in the user's cache folder beside the size and
time of every file that they come from; only where those differ is the inventory loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetcheck.inventory.model import Inventory

Names = tuple[list[str], list[str]]
VERSION = "1"
MAX_FILES = 200
DYNAMIC_SECONDS = 300.0
"""How long names of an Ansible inventory are believed: a plugin may ask a cloud."""


def known(source: str | None, *, execute: bool = False) -> Names:
    """Return hosts and groups of an inventory. Raises InputError where it cannot be loaded.

    Without a source it is the usual one, as for :func:`fleetcheck.inventory.load.load`. Standard input is never
    read.
    """
    path = _path(source)
    if path is None and (source or os.environ.get("FLEETCHECK_INVENTORY")) == "-":
        return [], []
    cached = None if path is None else _read(path)
    if cached is not None:
        return cached
    from fleetcheck.inventory.load import load  # noqa: PLC0415  (the cache is there to leave this out)

    inventory = load(source, execute=execute)
    remember(source, inventory)
    return _names(inventory)


def remember(source: str | None, inventory: Inventory) -> None:
    """Keep the names of an inventory that was loaded. A cache that cannot be written is no error."""
    path = _path(source)
    if path is None:
        return
    hosts, groups = _names(inventory)
    state = _state(path)
    if state is None:
        return
    until = time.time() + DYNAMIC_SECONDS if inventory.kind == "ansible" else 0
    file = _file(path)
    lines = [VERSION, state, str(until), "\t".join(groups), "\t".join(hosts)]
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write("\n".join(lines))
            Path(draft).replace(file)
        except OSError:
            Path(draft).unlink(missing_ok=True)
            raise


def _names(inventory: Inventory) -> Names:
    groups = dict.fromkeys(group for target in inventory.targets for group in target.groups)
    return [target.name for target in inventory.targets], sorted(groups)


def _read(path: Path) -> Names | None:
    try:
        version, state, until, groups, hosts = _file(path).read_text("utf-8").split("\n")
        fresh = float(until) == 0 or time.time() < float(until)
    except (OSError, ValueError):
        return None
    if version != VERSION or not fresh or state != _state(path):
        return None
    return hosts.split("\t"), groups.split("\t") if groups else []


def _path(source: str | None) -> Path | None:
    """Return the file or folder that is meant; None where names are given, or there is none."""
    source = source or os.environ.get("FLEETCHECK_INVENTORY")
    if source is None:
        from platformdirs import user_config_path  # noqa: PLC0415  (only without any other)

        path = user_config_path("fleetcheck") / "inventory.yaml"
    else:
        path = Path(source)
    try:
        return path.absolute() if path.exists() and not path.is_fifo() else None
    except (OSError, ValueError):
        return None


def _state(path: Path) -> str | None:
    """Return what changes when a file of the inventory does; None where there are too many to look at."""
    files = [path]
    with contextlib.suppress(OSError):
        if path.is_dir():
            files += islice(path.rglob("*"), MAX_FILES)
        if len(files) > MAX_FILES:
            return None
        marks = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(files)]
        return hashlib.sha256(repr(marks).encode()).hexdigest()
    return None


def _file(path: Path) -> Path:
    from platformdirs import user_cache_path  # noqa: PLC0415  (only where there is a file)

    return user_cache_path("fleetcheck") / "names" / hashlib.sha256(str(path).encode()).hexdigest()[:32]
