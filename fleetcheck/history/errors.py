"""What can go wrong with the file of the history, told so that the reader knows what to do."""

from __future__ import annotations

import codecs
import contextlib
import shlex
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fleetcheck.errors import FleetcheckError

NAME_IT = "Name the history's own file with --db, or one that is not there yet"
BUSY_SECONDS = 10.0
"""How long another program may hold the file before we give up."""


class HistoryError(FleetcheckError):
    """The history could not be opened, read or written; what was in it is as it was."""


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system raise into one :class:`HistoryError` with a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise HistoryError(f"history {path}: {_why(path, error)}") from None
    except OSError as error:
        raise HistoryError(f"history {path}: {_system(error)}") from None


def _why(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full; nothing of this run was stored. Make room, or name another place with --db"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another program has held it for more than {BUSY_SECONDS:.0f} s; look for it with: fuser {path}"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return "it cannot be written: read-only. Name another place with --db"
    if code == sqlite3.SQLITE_NOTADB and _is_text(path):
        return f"it is a text file, no history of fleetcheck. It was left as it is. {NAME_IT}"
    if code == sqlite3.SQLITE_NOTADB:
        return (
            "it is no SQLite database, or its beginning is damaged. It was left as it is. If it is no history: "
            f"{NAME_IT[0].lower()}{NAME_IT[1:]}. If it was one, move it away, and the next run begins a new one: "
            f"{_move(path)}"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_SCHEMA):
        return f"the file is damaged ({error}). Move it away, and the next run begins a new one: {_move(path)}"
    if code == sqlite3.SQLITE_CANTOPEN:
        return f"it cannot be opened ({error}). Is its folder there, and may it be written?"
    if code == sqlite3.SQLITE_IOERR:
        return f"the disk failed ({error})"
    return f"{error}"


def _system(error: OSError) -> str:
    return f"it cannot be written: {error.strerror or error}. Name another place with --db"


def _move(path: Path) -> str:
    return shlex.join(["mv", str(path), f"{path}.damaged"])


def _is_text(path: Path) -> bool:
    """Return whether a file begins as a text does, such as an inventory or the JSON of a run."""
    try:
        with path.open("rb") as stream:
            begin = codecs.getincrementaldecoder("utf-8")().decode(stream.read(4096))
    except (OSError, UnicodeDecodeError):
        return False
    return all(letter.isprintable() or letter in "\t\r\n" for letter in begin)
