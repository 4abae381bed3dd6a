"""Where an Ansible variable is written: Ansible resolves it, and does not say from where.

In: an inventory's path, a variable, a host and its groups. Out: every place that can be meant, the nearest alone
where one is nearer than the others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from fleetcheck.inventory.nodes import expand_part

MAX_FILES = 2000
MAX_BYTES = 1 << 20
MAX_PLACES = 4
VAULT = "$ANSIBLE_VAULT"
_VARS = ("group_vars", "host_vars")
_SUFFIXES = (".yml", ".yaml", ".json")
_HEAD = re.compile(r"\s*\[([^\]:]+)(?::(\w+))?\]")

Owner = tuple[str, str]
"""``host`` or ``group``, and its name."""


def in_listing(source: str, text: str, host: str, variable: str) -> list[str]:
    """Return the place of a variable in the text of ``ansible-inventory --list``."""
    start = 0
    for word in ("hostvars", host, variable):
        start = text.find(f"{json.dumps(word)}:", start)
        if start < 0:
            return [source]
    line = text.count("\n", 0, start) + 1
    return [f"{source}:{line}:{start - text.rfind(chr(10), 0, start)}"]


def in_files(path: Path, variable: str, host: str, groups: Collection[str]) -> list[str]:
    """Return the places in the files of an inventory, at most ``MAX_PLACES``."""
    written = re.compile(rf"(?<!\w)[\"']?{re.escape(variable)}[\"']?\s*[:=]")
    found: dict[int, list[str]] = {}
    for file, text in _texts(path):
        if written.search(text) is None:
            continue
        owner = _owner(path, file)
        lines = text.splitlines()
        for number, line in enumerate(lines):
            match = written.search(line)
            if match is None or line.lstrip().startswith(("#", ";")):
                continue
            rank = _rank(owner or _of_line(lines, number, variable), host, groups)
            if rank is not None:
                found.setdefault(rank, []).append(f"{file}:{number + 1}:{match.start() + 1}")
    return found[min(found)][:MAX_PLACES] if found else []


def is_vaulted(path: Path, variable: str) -> bool:
    """Return whether the value of ``variable`` can only come from an encrypted file: no readable one sets it."""
    texts = list(_texts(path))
    if not any(text.startswith(VAULT) for _, text in texts):
        return False
    written = re.compile(rf"(?<!\w)[\"']?{re.escape(variable)}[\"']?\s*[:=]")
    return not any(written.search(text) for _, text in texts)


def _owner(path: Path, file: Path) -> Owner | None:
    """Return whose variables a file holds, where it stands below ``group_vars`` or ``host_vars``."""
    for folder, name in pairwise(file.parts):
        if folder in _VARS and file != path:
            plain = name.rpartition(".")[0] if name.endswith(_SUFFIXES) else name
            return ("host" if folder == "host_vars" else "group", plain)
    return None


def _of_line(lines: list[str], number: int, variable: str) -> Owner | None:
    """Return whose variables a line of an inventory's file sets: INI by its section, YAML by the keys above."""
    first = _first(lines[number])
    keys: list[str] = []
    if first == variable:
        indent = _indent(lines[number])
        for line in reversed(lines[:number]):
            head = _HEAD.match(line)
            if head:
                return ("group", head[1].strip()) if head[2] == "vars" else None
            if line.strip() and not line.lstrip().startswith("#") and _indent(line) < indent:
                keys.append(_first(line))
                indent = _indent(line)
        match keys:
            case ["vars", group, *_]:
                return "group", group
            case [name, "hosts", *_]:
                return "host", name
        return None
    return "host", first


def _rank(owner: Owner | None, host: str, groups: Collection[str]) -> int | None:
    """Return how near a place is to the host, 0 for its own; None where it is of others."""
    if owner is None:
        return 1
    kind, name = owner
    if kind == "group":
        return 1 if name in groups else 2 if name in ("all", "ungrouped") else None
    try:
        return 0 if host == name or host in expand_part(name.replace(":", "-")) else None
    except ValueError:  # a range of letters, or with digits beside its brackets
        return 1


def _first(line: str) -> str:
    """Return the first word of a line, or its first key. A range keeps its colon."""
    match = re.match(r"""["']?((?:\[[^\]]*\]|[^\s:="'\[])+)""", line.strip())
    return match[1] if match else ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _texts(path: Path) -> Iterator[tuple[Path, str]]:
    for file in _files(path):
        try:
            if file.is_file() and file.stat().st_size <= MAX_BYTES:
                yield file, file.read_text("utf-8", "replace")
        except OSError:
            continue  # what Ansible could not read either is in its warnings


@lru_cache(maxsize=4)
def _files(path: Path) -> tuple[Path, ...]:
    roots = [path] if path.is_dir() else [path.parent / name for name in _VARS]
    files = [] if path.is_dir() else [path]
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            files += [Path(folder) / name for name in sorted(names) if not name.startswith(".")]
            if len(files) > MAX_FILES:
                return tuple(files[:MAX_FILES])
    return tuple(files)
