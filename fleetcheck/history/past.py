"""Questions to the history: which runs there were, what a host was in one of them, when it was last looked at."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fleetcheck.errors import InputError, Problem
from fleetcheck.history import pack
from fleetcheck.history.errors import HistoryError, told
from fleetcheck.history.store import History
from fleetcheck.rules.finding import Finding
from fleetcheck.run import HostResult, Run, RunInfo, summarise

State = Literal["open", "done", "interrupted", "cut"]
CHECKED = ("ok", "findings")
LATEST = "latest"
_RUN = "seq, id, started, finished, version, inventory, source, cron, state, hosts, ok, findings"
_ENDED = "('done', 'interrupted')"


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of the history. ``seq`` counts runs as they began, whatever the clock said."""

    seq: int
    id: str
    started: str
    finished: str | None
    version: str
    inventory: str
    source: str
    cron: bool
    state: State
    hosts: int
    ok: int
    findings: int

    @property
    def not_checked(self) -> int:
        """How many hosts were not checked, those in maintenance included."""
        return self.hosts - self.ok - self.findings


@dataclass(frozen=True, slots=True)
class Look:
    """How one host was found in one run; :meth:`load` reads the rest from the history it came from."""

    host: str
    seq: int
    run: str
    started: str
    verdict: str
    mark: bytes
    parts: str
    attempts: int
    seconds: float
    past: Past

    def load(self) -> tuple[HostResult, tuple[Finding, ...]]:
        """Return the host's result, without what is volatile, and its findings."""
        with self.past.reading(f"host {self.host!r} in run {self.run!r}"):
            texts = self.past.texts(self.parts)
            host = pack.restored(self.host, self.verdict, texts, self.attempts, self.seconds)
            return host, pack.findings(texts.get("findings"))


@dataclass(frozen=True, slots=True)
class Span:
    """Looks in a row that found a host the same: the first, the last, and how many."""

    first: Look
    last: Look
    looks: int


class Past:
    """Questions to one open history. Raises HistoryError."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._db = history.connection

    def runs(self, limit: int, *, host: str | None = None, source: str | None = None) -> list[Entry]:
        """Return the last runs, the newest first; of one host or one inventory where they are given."""
        where, known = ["1"], list[object]()
        if host is not None:
            where.append("seq IN (SELECT run FROM look JOIN host ON host.id = look.host WHERE host.name = ?)")
            known.append(host)
        if source is not None:
            where.append("source = ?")
            known.append(source)
        question = f"SELECT {_RUN} FROM run WHERE {' AND '.join(where)} ORDER BY seq DESC LIMIT ?"  # noqa: S608
        return [_entry(row) for row in self._ask(question, (*known, limit))]

    def maintenance(self, runs: Sequence[Entry]) -> dict[int, int]:
        """Return how many hosts each run left alone on purpose, by its ``seq``; runs without any have no entry."""
        oldest = min((run.seq for run in runs), default=0)
        question = (
            "SELECT look.run, count(*) FROM look JOIN state ON state.id = look.state "
            "WHERE look.run >= ? AND state.verdict = 'skipped' GROUP BY look.run"
        )
        return dict(tuple(row) for row in self._ask(question, (oldest,)))

    def find(self, name: str) -> Entry:
        """Return a run that ended by its id, a beginning of it, ``latest`` or ``latest~2``. Raises InputError."""
        word, _, back = name.partition("~")
        if word == LATEST and (back.isdecimal() or back == "") and len(back) < 10:
            question = f"SELECT {_RUN} FROM run WHERE state IN {_ENDED} ORDER BY seq DESC LIMIT 1 OFFSET ?"  # noqa: S608
            rows = self._ask(question, (int(back or 0),))
        else:
            question = f"SELECT {_RUN} FROM run WHERE state IN {_ENDED} AND substr(id, 1, ?) = ? LIMIT 3"  # noqa: S608
            rows = self._ask(question, (len(name), name))
        if len(rows) == 1:
            return _entry(rows[0])
        many = "; several runs begin so" if rows else ""
        hint = "run: fleetcheck history"
        raise InputError([Problem(name, None, f"the history has no one run {name!r}{many}; to see them, {hint}")])

    def ended_before(self, seq: int, source: str | None = None) -> Entry | None:
        """Return the last run that ended and began before the run ``seq``."""
        question = f"SELECT {_RUN} FROM run WHERE state IN {_ENDED} AND seq < ? "  # noqa: S608
        more, known = ("AND source = ? ", (seq, source)) if source is not None else ("", (seq,))
        rows = self._ask(f"{question}{more}ORDER BY seq DESC LIMIT 1", known)
        return _entry(rows[0]) if rows else None

    def entry(self, seq: int) -> Entry | None:
        """Return the run ``seq``; None where it is forgotten."""
        rows = self._ask(f"SELECT {_RUN} FROM run WHERE seq = ?", (seq,))  # noqa: S608
        return _entry(rows[0]) if rows else None

    def looks(self, seq: int) -> list[Look]:
        """Return how every host of a run was found, in the run's order of storing."""
        return self._looks("look.run = ? ORDER BY look.host", (seq,))

    def last_look(self, host: str, until: int, *, checked: bool = False) -> Look | None:
        """Return how a host was found last, in the run ``until`` or before; ``checked``: when it was checked last.

        What an interrupted run did not come to is no look.
        """
        verdicts = " AND state.verdict IN ('ok', 'findings')" if checked else ""
        where = "look.host = (SELECT id FROM host WHERE name = ?) AND look.run <= ?"
        for look in self._each(f"{where}{verdicts} ORDER BY look.run DESC", (host, until)):
            if look.verdict != "timeout" or not is_unseen(look.load()[0]):
                return look
        return None

    def spans(self, host: str) -> Iterator[Span]:
        """Yield how a host was found, the newest first, looks in a row that found the same as one."""
        first = last = None
        count = 0
        where = "look.host = (SELECT id FROM host WHERE name = ?) ORDER BY look.run DESC"
        for look in self._each(where, (host,)):
            if first is not None and last is not None and look.mark != first.mark:
                yield Span(first, last, count)
                first = last = None
                count = 0
            first, last, count = look, last or look, count + 1
        if first is not None and last is not None:
            yield Span(first, last, count)

    def named(self, machine: str, but: str, until: int) -> list[str]:
        """Return the other names under which a machine (by its machine-id) was found."""
        rows = self._ask(
            "SELECT DISTINCT host.name FROM state JOIN host ON host.id = state.host "
            "JOIN look ON look.host = state.host AND look.state = state.id "
            "WHERE state.machine = ? AND host.name != ? AND look.run <= ? LIMIT 3",
            (machine, but, until),
        )
        return [row[0] for row in rows]

    def hosts(self) -> list[str]:
        """Return the names of all hosts that were ever looked at."""
        return [row[0] for row in self._ask("SELECT name FROM host ORDER BY name", ())]

    def run(self, entry: Entry) -> Run:
        """Return a run as it was, without what is volatile."""
        pairs = [look.load() for look in self.looks(entry.seq)]
        hosts = tuple(host for host, _ in pairs)
        found = tuple(item for _, findings in pairs for item in findings)
        return Run(
            run=self.info(entry), summary=summarise(hosts), hosts=hosts, findings=(*found, *self.fleet(entry.seq))
        )

    def one(self, entry: Entry, look: Look) -> Run:
        """Return a run as if the host of ``look`` had been the only one."""
        host, found = look.load()
        return Run(run=self.info(entry), summary=summarise((host,)), hosts=(host,), findings=found)

    def info(self, entry: Entry) -> RunInfo:
        """Return the head of a run's record."""
        rows = self._ask("SELECT info FROM run WHERE seq = ? AND info IS NOT NULL", (entry.seq,))
        if rows:
            with self.reading(f"run {entry.id!r}"):
                return RunInfo.model_validate_json(rows[0][0])
        return RunInfo(
            id=entry.id, started=entry.started, finished=entry.finished, version=entry.version,
            inventory=entry.inventory, complete=entry.state == "done",
        )  # fmt: skip

    def fleet(self, seq: int) -> tuple[Finding, ...]:
        """Return the findings of a run that are of no single host."""
        rows = self._ask("SELECT body FROM blob WHERE id = (SELECT fleet FROM run WHERE seq = ?)", (seq,))
        with self.reading("the findings of no single host"):
            return pack.findings(pack.loaded(rows[0][0])) if rows else ()

    def texts(self, parts: str) -> dict[str, object]:
        """Return the texts that a state refers to, by name, loaded."""
        found: dict[str, object] = {}
        for part in parts.split():
            name, _, number = part.partition("=")
            rows = self._ask("SELECT body FROM blob WHERE id = ?", (int(number),))
            if rows:
                found[name] = pack.loaded(rows[0][0])
        return found

    @contextlib.contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Turn what a damaged row raises where it is unpacked into a HistoryError of one line."""
        try:
            yield
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise HistoryError(
                f"history {self._history.path}: what is stored of {what} is damaged ({why})"
            ) from None

    def _looks(self, where: str, known: Sequence[object]) -> list[Look]:
        return list(self._each(where, known))

    def _each(self, where: str, known: Sequence[object]) -> Iterator[Look]:
        question = (
            "SELECT host.name, run.seq, run.id, run.started, state.verdict, state.digest, state.parts, "  # noqa: S608
            "look.attempts, look.millis FROM look JOIN run ON run.seq = look.run "
            f"JOIN state ON state.id = look.state JOIN host ON host.id = look.host WHERE {where}"
        )
        with told(self._history.path):
            for row in self._db.execute(question, known):
                host, seq, run, started, verdict, mark, parts, attempts, millis = row
                yield Look(host, seq, run, started, verdict, mark, parts, attempts, millis / 1000, self)

    def _ask(self, question: str, known: Sequence[object]) -> list[sqlite3.Row]:
        with told(self._history.path):
            return self._db.execute(question, known).fetchall()


def is_unseen(host: HostResult) -> bool:
    """Return whether an interrupt came before this host was looked at."""
    return host.outcome == "timeout" and host.detail == "interrupted"


def _entry(row: Sequence[Any]) -> Entry:
    values = dict(zip(Entry.__dataclass_fields__, row, strict=True))  # the columns of _RUN, in their order
    return Entry(**{**values, "cron": bool(values["cron"])})
