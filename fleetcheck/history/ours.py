"""Whether a file is a history of ours: another's is told as what it is, and left as it is; a new one is made.

In: a path, and its connection once SQLite opened it. Out: nothing, or :class:`HistoryError`.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from fleetcheck.history.errors import NAME_IT, HistoryError
from fleetcheck.history.schema import VERSION, version

OWN = frozenset({"run", "host", "blob", "state", "look"})
"""The tables that every version of the history has."""


def check_place(path: Path) -> None:
    """Raise HistoryError where a folder, a pipe or a device stands in the place of the file."""
    if path.is_dir():
        raise HistoryError(f"history {path}: it is a folder. {NAME_IT}")
    if path.exists() and not path.is_file():
        raise HistoryError(f"history {path}: it is no regular file. {NAME_IT}")


def make(path: Path) -> None:
    """Create the file with its mode before SQLite could create it with another; where a link leads, for a link."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    real = Path(os.path.realpath(path))
    if path.is_symlink() and not real.parent.is_dir():
        raise HistoryError(f"history {path}: it is a link to {real}, whose folder is not there")
    try:
        os.close(os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if real.is_symlink():
            raise HistoryError(f"history {path}: it is a link that leads nowhere") from None
    for place in (real, real.parent):  # write-ahead mode makes files beside it
        if not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, f"{place} is read-only")
    if not real.stat().st_size:
        real.chmod(0o600)  # made by another, and empty: it becomes a history with what we write


def check_ours(path: Path, connection: sqlite3.Connection) -> None:
    """Raise HistoryError for the database of another program, or of a newer version of this one."""
    connection.execute("BEGIN")  # both of one moment: another run may just be making the file
    try:
        found = version(connection)
        # Ours has none; another program's file may hold no table yet.
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if mark or (tables if found == 0 else not tables >= OWN):
        raise HistoryError(f"history {path}: it is another program's database. It was left as it is. {NAME_IT}")
    if found > VERSION:
        raise HistoryError(
            f"history {path}: a newer fleetcheck wrote it (version {found}; this one knows {VERSION}). "
            "Upgrade fleetcheck, or name another place with --db"
        )
