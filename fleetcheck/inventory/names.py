"""The names of an inventory, quickly: what the shell completes.

In: the text behind ``-i``. Out: hosts and groups. They are kept in the user's cache folder beside the size and
times of every file that they come from. Where those differ, a native inventory is read without its settings
(:mod:`fleetcheck.inventory.quick`), and any other is loaded; one that cannot be is not tried again for a moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcheck.errors import InputError, Problem
from fleetcheck.inventory import quick
from fleetcheck.inventory.source import is_stream

if TYPE_CHECKING:
    from fleetcheck.inventory.model import Inventory

Names = tuple[list[str], list[str]]
Seen = tuple[Path | None, str | None]
VERSION = "2"
MAX_FILES = 200
DYNAMIC_SECONDS = 300.0
"""How long names are believed that no file tells of: a program of Ansible may ask a cloud."""
FAILED_SECONDS = 30.0
"""How long an inventory that failed is not tried again: what made it fail may lie outside of its files."""
SETTLED_NS = 20_000_000
"""A file that changed just now may change again and keep its time: clocks of kernels tick every 10 ms at most."""
_DYNAMIC = re.compile(rb"""^\s*["']?plugin["']?\s*:|^#!""", re.MULTILINE)
_INCLUDE = re.compile(r"^\s*include[\s=]", re.MULTILINE | re.IGNORECASE)


def known(source: str | None, *, execute: bool = False) -> Names:
    """Return hosts and groups of an inventory. Raises InputError where it cannot be loaded.

    Without a source it is the usual one, as for :func:`fleetcheck.inventory.load.load`. Standard input is never
    read.
    """
    source = source or os.environ.get("FLEETCHECK_INVENTORY")
    # Reading a pipe would take what the command is to read, or wait.
    if source is not None and (source == "-" or is_stream(Path(source))):
        return [], []
    path, state = seen(source)
    found = None
    if path is not None:
        found = _read(path, state)
        if found is not None:
            return found
        if _read(path, _failing(state, execute=execute)) is not None:
            raise InputError([Problem(str(path), None, "could not be loaded a moment ago")])
        found = quick.names(path)
    if path is not None and found is not None:
        _keep(path, state, 0, found)
        return found
    from fleetcheck.inventory.load import load  # noqa: PLC0415  (all else is there to leave this out)

    try:
        inventory = load(source, execute=execute)
    except InputError:
        if path is not None:
            # Ansible may take seconds to fail, and would at every press of the tab key.
            _keep(path, _failing(state, execute=execute), time.time() + FAILED_SECONDS, ([], []))
        raise
    remember((path, state), inventory)
    return _names(inventory)


def seen(source: str | None) -> Seen:
    """Return the file or folder that is meant and how it stands; to be asked before the inventory is loaded."""
    path = _path(source)
    return path, None if path is None else _state(path)


def remember(before: Seen, inventory: Inventory) -> None:
    """Keep the names of an inventory that was loaded after :func:`seen`.

    A cache that cannot be written is no error.
    """
    path, state = before
    if path is None or (inventory.kind == "ssh_config" and _includes(path)):
        return
    until = time.time() + DYNAMIC_SECONDS if inventory.kind == "ansible" and _is_dynamic(path) else 0
    _keep(path, state, until, _names(inventory))


def _keep(path: Path, state: str | None, until: float, names: Names) -> None:
    if state is None:
        return
    hosts, groups = names
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


def _failing(state: str | None, *, execute: bool) -> str | None:
    """Return how a failure is kept: leave to execute is a reason to try anew."""
    return None if state is None else f"{state} failed{' with --inventory-exec' if execute else ''}"


def _names(inventory: Inventory) -> Names:
    groups = dict.fromkeys(group for target in inventory.targets for group in target.groups)
    return [target.name for target in inventory.targets], sorted(groups)


def _read(path: Path, state: str | None) -> Names | None:
    try:
        version, kept, until, groups, hosts = _file(path).read_text("utf-8").split("\n")
        fresh = float(until) == 0 or time.time() < float(until) <= time.time() + DYNAMIC_SECONDS
    except (OSError, ValueError):
        return None
    if version != VERSION or not fresh or state is None or kept != state:
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
        return path.absolute() if path.is_file() or path.is_dir() else None
    except (OSError, ValueError):
        return None


def _state(path: Path) -> str | None:
    """Return what changes when a file of the inventory does.

    None where there are too many to look at, or where one changed so lately that its times do not tell yet.
    """
    with contextlib.suppress(OSError):
        files = _files(path)
        if len(files) > MAX_FILES:
            return None
        looks = [(str(file), file.stat()) for file in files]
        newest = max(max(look.st_mtime_ns, look.st_ctime_ns) for _, look in looks)
        if 0 <= time.time_ns() - newest < SETTLED_NS:
            return None
        marks = [(name, look.st_ino, look.st_mtime_ns, look.st_ctime_ns, look.st_size) for name, look in looks]
        return hashlib.sha256(repr(marks).encode()).hexdigest()
    return None


def _files(path: Path) -> list[Path]:
    """Return the file, or the folder and what is in it, one more than :data:`MAX_FILES` at most."""
    return sorted([path, *islice(path.rglob("*"), MAX_FILES)]) if path.is_dir() else [path]


def _is_dynamic(path: Path) -> bool:
    """Return whether Ansible may give other hosts tomorrow from the same files: a program, or a plugin's file."""
    try:
        for file in _files(path):
            if file.is_file():
                with file.open("rb") as stream:
                    if os.access(file, os.X_OK) or _DYNAMIC.search(stream.read(quick.MAX_BYTES)):
                        return True
    except OSError:
        return True
    return False


def _includes(path: Path) -> bool:
    """Return whether an ssh config reads others, whose changes its own times do not tell."""
    try:
        return bool(_INCLUDE.search(path.read_text("utf-8", errors="replace")))
    except OSError:
        return True


def _file(path: Path) -> Path:
    from platformdirs import user_cache_path  # noqa: PLC0415  (only where there is a file)

    return user_cache_path("fleetcheck") / "names" / hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
