"""The tables, one migration a version of the file; SQLite's ``user_version`` says which of them have run.

``blob`` holds every text once, by its digest: the facts of a host in parts, its findings, the head of its result.
``state`` is one way in which a host was found; ``look`` says in which run it was found so.
"""

from __future__ import annotations

import sqlite3

FIRST = """
CREATE TABLE run (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    started TEXT NOT NULL,
    finished TEXT,
    version TEXT NOT NULL,
    inventory TEXT NOT NULL,
    state TEXT NOT NULL,
    hosts INTEGER NOT NULL DEFAULT 0,
    ok INTEGER NOT NULL DEFAULT 0,
    findings INTEGER NOT NULL DEFAULT 0,
    fleet INTEGER REFERENCES blob (id)
);
CREATE TABLE host (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE blob (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE state (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    host INTEGER NOT NULL REFERENCES host (id),
    verdict TEXT NOT NULL,
    machine TEXT,
    parts TEXT NOT NULL
);
CREATE TABLE look (
    host INTEGER NOT NULL REFERENCES host (id),
    run INTEGER NOT NULL REFERENCES run (seq),
    state INTEGER NOT NULL REFERENCES state (id),
    attempts INTEGER NOT NULL,
    millis INTEGER NOT NULL,
    PRIMARY KEY (host, run)
) WITHOUT ROWID;
CREATE INDEX look_run ON look (run);
"""
SECOND = """
ALTER TABLE run ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN cron INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN told INTEGER NOT NULL DEFAULT 1;
CREATE INDEX state_machine ON state (machine) WHERE machine IS NOT NULL;
CREATE TABLE notice (
    source TEXT PRIMARY KEY,
    base INTEGER NOT NULL,
    printed TEXT NOT NULL
);
"""
"""What runs from cron need: which run was reported last and when, for each inventory; and runs that died."""
THIRD = """
ALTER TABLE run ADD COLUMN info TEXT;
"""
"""The whole head of a run's record, with what a newer version adds to it: by which rules it was judged."""

MIGRATIONS = (FIRST, SECOND, THIRD)
VERSION = len(MIGRATIONS)


def version(connection: sqlite3.Connection) -> int:
    """Return the version of the file; 0 is an empty one."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables up to date, in one transaction: a file is of the old version or of the new one."""
    if version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again under the lock: another program may have been first.
        for number in range(version(connection), VERSION):
            for statement in filter(str.strip, MIGRATIONS[number].split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
