"""Where an inventory's text comes from: a file, a folder, standard input. Bounded, and decoded.

In: what the user named. Out: :class:`Text` records, one a file. Errors are collected as problems, not raised.
"""

from __future__ import annotations

import codecs
import re
import stat
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TextIO

from fleetcheck.errors import Problem
from fleetcheck.inventory.wording import nearest, shown

MAX_BYTES = 2 << 20
MAX_LIST_BYTES = 64 << 20
"""What a program lists is larger than what people write: 20,000 hosts with their variables."""
MAX_FILES = 1000
SUFFIXES = (".yaml", ".yml")
STDIN = "<stdin>"
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Text:
    """The text of one file. ``name`` is how its lines are named in errors; ``bom``: it began with that mark."""

    name: str
    text: str
    bom: bool = False


def read_path(path: Path, problems: list[Problem]) -> list[Text]:
    """Return the text of a file, or of every ``*.yaml`` and ``*.yml`` of a folder, in the order of their names.

    Hidden files and sub-folders are left alone. A file that cannot be read is a problem, the others are read.
    """
    files = [path]
    try:
        if path.is_dir():
            files = _files(path)
            if not files:
                problems.append(Problem(str(path), None, "the folder holds no .yaml or .yml file"))
            if len(files) > MAX_FILES:
                problems.append(Problem(str(path), None, f"more than {MAX_FILES} files; this is no inventory"))
                return []
    except OSError as error:
        problems.append(Problem(str(path), None, unread(path, error)))
        return []
    texts = []
    for file in files:
        try:
            with file.open("rb") as stream:
                text = _read(str(file), stream, problems)
        except OSError as error:
            problems.append(Problem(str(file), None, unread(file, error)))
        else:
            texts += text
    return texts


def read_stream(stream: TextIO | None, problems: list[Problem]) -> list[Text]:
    """Return the text of standard input, or of the stream given in its place."""
    stream = stream or sys.stdin
    if stream is None:
        problems.append(Problem(STDIN, None, "standard input is closed"))
        return []
    buffer = getattr(stream, "buffer", None)
    if buffer is not None:
        return _read(STDIN, buffer, problems)
    data = stream.read(MAX_LIST_BYTES + 1).encode()
    return decode(STDIN, data, problems, _limit(data))


def decode(name: str, data: bytes, problems: list[Problem], limit: int = MAX_BYTES) -> list[Text]:
    """Return the text of ``data``. A byte-order mark and CRLF are taken as they come; binary data is a problem."""
    if len(data) > limit:
        problems.append(Problem(name, None, f"larger than {limit >> 20} MB; this is no inventory"))
        return []
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.append(Problem(name, line, "not UTF-8 text"))
        return []
    control = CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        problems.append(Problem(name, line, f"not a text: control character {ascii(control[0])[1:-1]}"))
        return []
    return [Text(name, text, data.startswith(codecs.BOM_UTF8))]


def is_stream(path: Path) -> bool:
    """Return whether ``path`` is a pipe or a device, such as ``<(COMMAND)`` of a shell: it can be read once."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def unread(path: Path, error: OSError) -> str:
    """Return why a file cannot be read, with the nearest of those that are there."""
    if isinstance(error, FileNotFoundError):
        if path.is_symlink():
            target = shown(str(path.readlink()), 200)
            return f"cannot be read: a symbolic link to {target}, which is not there"
        near = _neighbours(path)
        hint = f"; did you mean {', '.join(map(shown, near))}?" if near else ""
        return f"cannot be read: {error.strerror}{hint}"
    return f"cannot be read: {error.strerror or error}"


def _neighbours(path: Path) -> list[str]:
    """Return what is called nearly as ``path`` where that is missed, with the rest of it if that is there."""
    missing = path
    while missing.parent != missing and not missing.parent.is_dir():
        missing = missing.parent
    folder, rest = missing.parent, path.relative_to(missing)
    try:
        by_stem = {one.stem: one for one in islice(folder.iterdir(), MAX_FILES)}
    except OSError:
        return []
    near = [by_stem[stem] for stem in nearest(missing.stem, by_stem)]
    return [str(one / rest if (one / rest).exists() else one) for one in near]


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.iterdir()
        if path.suffix in SUFFIXES and not path.name.startswith(".") and not path.is_dir()
    )  # fmt: skip


def _read(name: str, stream: BinaryIO, problems: list[Problem]) -> list[Text]:
    data = stream.read(MAX_BYTES + 1)
    limit = _limit(data)
    if limit > MAX_BYTES and len(data) > MAX_BYTES:
        data += stream.read(limit - MAX_BYTES)
    return decode(name, data, problems, limit)


def _limit(data: bytes) -> int:
    """Return how large a text may be that begins as ``data``, which may be Ansible's list of hosts."""
    return MAX_LIST_BYTES if data[:1] == b"{" and b'"_meta"' in data[:4096] else MAX_BYTES
