"""Whether a file is a history of ours: another's is told as what it is, and left as it is.

In: a path, and its connection once SQLite opened it. Out: nothing, or :class:`HistoryError`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fleetcheck.history.errors import NAME_IT, HistoryError
from fleetcheck.history.schema import VERSION, version

OWN = frozenset({"run", "host", "blob", "state", "look"})
"""The tables that every version of the history has."""


def check_place(path: Path) -> None:
    """Raise HistoryError where a folder stands in the place of the file."""
    if path.is_dir():
        raise HistoryError(f"history {path}: it is a folder. {NAME_IT}")


def check_ours(path: Path, connection: sqlite3.Connection) -> None:
    """Raise HistoryError for the database of another program, or of a newer version of this one."""
    connection.execute("BEGIN")  # both of one moment: another run may just be making the file
    try:
        found = version(connection)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if tables if found == 0 else not tables >= OWN:
        raise HistoryError(f"history {path}: it is another program's database. It was left as it is. {NAME_IT}")
    if found > VERSION:
        raise HistoryError(
            f"history {path}: a newer fleetcheck wrote it (version {found}; this one knows {VERSION}). "
            "Upgrade fleetcheck, or name another place with --db"
        )
