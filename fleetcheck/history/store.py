"""The file of the history: opened, checked, written. One run is one transaction; a run that dies leaves none.

In: runs that ended. Out: a file of mode 0600 in write-ahead mode that is sound after a ``kill -9`` at any moment.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from fleetcheck.history import pack
from fleetcheck.history.ages import moment_of
from fleetcheck.history.alive import Alive
from fleetcheck.history.errors import BUSY_SECONDS, HistoryError, told
from fleetcheck.history.ours import check_ours, check_place, make
from fleetcheck.history.schema import VERSION, migrate, version
from fleetcheck.judge import stamp
from fleetcheck.rules.finding import Finding
from fleetcheck.run import HostResult, Run, RunInfo

NAME = "history.db"


def default_path() -> Path:
    """Return where the history of this user is."""
    from platformdirs import user_state_path  # noqa: PLC0415  (only without --db)

    return user_state_path("fleetcheck") / NAME


@dataclass(frozen=True, slots=True)
class Cut:
    """A run that began and never ended: killed, or the machine went down."""

    id: str
    started: str
    inventory: str


class History:
    """``with History.open(path) as history:`` to write, ``History.read(path)`` to read. Raises HistoryError."""

    def __init__(self, path: Path, connection: sqlite3.Connection, alive: Alive | None) -> None:
        self.path, self.connection, self._alive = path, connection, alive
        self._hosts: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with told(self.path):
            self.connection.close()
        if self._alive is not None:
            self._alive.close()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a history to write, and make it where there is none."""
        with told(path):
            check_place(path)
            make(path)
            connection = _connected(f"{path.absolute().as_uri()}?mode=rw")
            try:
                check_ours(path, connection)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                migrate(connection)
                return cls(path, connection, Alive(path))
            except BaseException:
                connection.close()
                raise

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open a history that is there, to read; also one of a folder that cannot be written."""
        with told(path):
            check_place(path)
            if not path.exists() or not path.stat().st_size:
                raise HistoryError(f"history {path}: there is none yet; fleetcheck audit writes it")
            connection = _readable(path)
            try:
                check_ours(path, connection)
                if version(connection) < VERSION:
                    connection.close()
                    return cls.open(path)
                return cls(path, connection, None)
            except BaseException:
                connection.close()
                raise

    def check(self) -> None:
        """Raise HistoryError where SQLite finds the file damaged."""
        with told(self.path):
            found = [row[0] for row in self.connection.execute("PRAGMA integrity_check(3)")]
            found += [f"{row[0]}: a row without what it refers to" for row in
                      self.connection.execute("PRAGMA foreign_key_check").fetchmany(3)]  # fmt: skip
        if found != ["ok"]:
            what = "; ".join(item for item in found if item != "ok")
            raise HistoryError(
                f"history {self.path}: the file is damaged ({what}). Move it away, and the next run begins a new "
                f"one: mv {self.path} {self.path}.damaged"
            )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: all of what is written, or nothing."""
        with told(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                # A full disk has ended the transaction already.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def begin(self, info: RunInfo, *, source: str, cron: bool = False) -> int:
        """Note that a run begins, and return its number. ``source`` is the inventory by a name that stays.

        Runs that are noted as under way and are not, are noted as cut.
        """
        alive = self._writable()
        with self.writing():
            self._mark_cut(alive)
            made = self.connection.execute(
                "INSERT INTO run (id, started, version, inventory, source, cron, state) "
                "VALUES (?,?,?,?,?,?,'open')",
                (info.id, info.started, info.version, info.inventory, source, cron),
            )
            number = int(made.lastrowid or 0)
            alive.begin(number)
        return number

    def store(self, number: int, run: Run) -> None:
        """Store the run ``number``, whole, and note that it ended."""
        alive = self._writable()
        by_host: dict[str | None, list[Finding]] = {}
        for item in run.findings:
            by_host.setdefault(item.host, []).append(item)
        with self.writing():
            for host in run.hosts:
                self._look(number, host, by_host.get(host.name, ()))
            fleet = by_host.get(None)
            body = fleet and pack.text([item.model_dump(mode="json", exclude_defaults=True) for item in fleet])
            self.connection.execute(
                "UPDATE run SET finished = ?, state = ?, hosts = ?, ok = ?, findings = ?, fleet = ?, info = ? "
                "WHERE seq = ?",
                (
                    run.run.finished, "done" if run.run.complete else "interrupted", run.summary.hosts,
                    run.summary.ok, run.summary.findings, self._blob(body) if body else None,
                    run.run.model_dump_json(), number,
                ),
            )  # fmt: skip
        alive.end(number)

    def cut(self) -> list[Cut]:
        """Return the runs that were cut and of which nobody was told yet."""
        with told(self.path):
            rows = self.connection.execute(
                "SELECT id, started, inventory FROM run WHERE state = 'cut' AND told = 0 ORDER BY seq"
            )
            return [Cut(*row) for row in rows]

    def cut_told(self) -> None:
        """Note that the user was told of every run that was cut."""
        with self.writing():
            self.connection.execute("UPDATE run SET told = 1 WHERE state = 'cut' AND told = 0")

    def prune(self, keep: timedelta, slack: timedelta = timedelta(0)) -> int:
        """Forget runs older than ``keep`` and return how many; the newest run and those reported last stay.

        Age is counted from the run before the newest: a clock that was wrong once empties no history. Nothing is
        done before the oldest run is older by ``slack`` than that: to tidy up costs as much for one run as for
        many.
        """
        with self.writing():
            newest = self.connection.execute("SELECT seq, started FROM run ORDER BY seq DESC LIMIT 2").fetchall()
            if len(newest) < 2:
                return 0
            begun = [moment_of(row[1]) for row in newest]
            last = min((one for one in begun if one is not None), default=None)
            if last is None or None in begun:
                return 0  # a row is damaged, and by it nothing is deleted
            limit = stamp(last - keep)
            (oldest,) = self.connection.execute("SELECT min(started) FROM run").fetchone()
            first = moment_of(oldest)
            if first is not None and first + slack > last - keep:
                return 0
            old = "SELECT seq FROM run WHERE started < ? AND seq < ? AND seq NOT IN (SELECT base FROM notice)"
            known = (limit, newest[0][0])
            self.connection.execute(f"DELETE FROM look WHERE run IN ({old})", known)  # noqa: S608  (fixed text)
            gone = self.connection.execute(f"DELETE FROM run WHERE seq IN ({old})", known).rowcount  # noqa: S608
            if gone:
                self._sweep()
        return int(gone)

    def _sweep(self) -> None:
        """Remove what no run refers to any more."""
        execute = self.connection.execute
        execute("DELETE FROM state WHERE id NOT IN (SELECT state FROM look)")
        used = {int(number) for row in execute("SELECT parts FROM state") for number in _numbers(row[0])}
        used |= {int(row[0]) for row in execute("SELECT fleet FROM run WHERE fleet IS NOT NULL")}
        every = [int(row[0]) for row in execute("SELECT id FROM blob")]
        self.connection.executemany("DELETE FROM blob WHERE id = ?", [(one,) for one in every if one not in used])
        execute("DELETE FROM host WHERE id NOT IN (SELECT host FROM look)")
        self._hosts.clear()

    def _mark_cut(self, alive: Alive) -> None:
        rows = self.connection.execute("SELECT seq FROM run WHERE state = 'open'").fetchall()
        dead = [(row[0],) for row in rows if alive.is_over(row[0])]
        self.connection.executemany("UPDATE run SET state = 'cut', told = 0 WHERE seq = ?", dead)

    def _look(self, number: int, host: HostResult, found: Any) -> None:
        texts = pack.parts(host, found)
        owner = self._host(host.name)
        mark = pack.mark(host.name, host.verdict, texts)
        row = self.connection.execute("SELECT id FROM state WHERE digest = ?", (mark,)).fetchone()
        if row is None:
            machine = host.system.machine_id if host.system else None
            kept = " ".join(f"{name}={self._blob(texts[name])}" for name in sorted(texts))
            made = self.connection.execute(
                "INSERT INTO state (digest, host, verdict, machine, parts) VALUES (?,?,?,?,?)",
                (mark, owner, host.verdict, machine, kept),
            )
            row = (made.lastrowid,)
        self.connection.execute(
            "INSERT INTO look (host, run, state, attempts, millis) VALUES (?,?,?,?,?)",
            (owner, number, row[0], host.attempts, round(host.seconds * 1000)),
        )

    def _host(self, name: str) -> int:
        if name not in self._hosts:
            self.connection.execute("INSERT OR IGNORE INTO host (name) VALUES (?)", (name,))
            (self._hosts[name],) = self.connection.execute(
                "SELECT id FROM host WHERE name = ?", (name,)
            ).fetchone()
        return self._hosts[name]

    def _blob(self, body: bytes) -> int:
        mark = pack.digest(body)
        row = self.connection.execute("SELECT id FROM blob WHERE digest = ?", (mark,)).fetchone()
        if row is not None:
            return int(row[0])
        made = self.connection.execute(
            "INSERT INTO blob (digest, body) VALUES (?, ?)", (mark, pack.squeezed(body))
        )
        return int(made.lastrowid or 0)

    def _writable(self) -> Alive:
        if self._alive is None:
            raise RuntimeError("this history was opened to be read")
        return self._alive


def _numbers(parts: str) -> list[str]:
    return [part.partition("=")[2] for part in parts.split()]


def _connected(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = OFF")  # checked by check(); a sweep of a year would pay for each row
    return connection


def _readable(path: Path) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    connection = _connected(f"{uri}?mode=ro")
    try:
        version(connection)
    except sqlite3.OperationalError:
        # Write-ahead mode needs to make files beside it; a folder that cannot be written holds no live writer.
        connection.close()
        if Path(f"{path}-wal").exists() and Path(f"{path}-wal").stat().st_size:
            raise
        connection = _connected(f"{uri}?immutable=1")
    return connection
