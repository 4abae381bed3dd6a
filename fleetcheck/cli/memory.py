"""The history as commands use it: its options, and the runs that audit stores. Light: ``--help`` imports it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from datetime import datetime

    from fleetcheck.facts.records import Gpus
    from fleetcheck.history.diff import Changes
    from fleetcheck.history.past import Entry, Past
    from fleetcheck.history.store import Cut, History
    from fleetcheck.run import Run, RunInfo

KEEP = "400d"
NOT_STORED = (
    "from the history, which keeps facts and findings, and neither processes nor what changes by itself (loads, "
    "temperatures, times of files); hosts stand in the order in which they were first seen"
)
_Command = TypeVar("_Command", bound=Callable[..., Any])


class DurationType(click.ParamType[Any]):
    """``90d``, ``24h``, ``30m``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the length of time. Fails where it is none."""
        if isinstance(value, timedelta):
            return value
        from fleetcheck.history.ages import parse

        try:
            return parse(str(value))
        except ValueError as error:
            emptied = param is not None and param.name == "keep" and "too short" in str(error)
            self.fail(f"{error}{_emptying(ctx) if emptied else ''}", param, ctx)


def _emptying(ctx: click.Context | None) -> str:
    """Return how to forget every run: SQLite keeps what is not yet in the file beside it."""
    from fleetcheck.history.store import default_path

    given = ctx.params.get("db") if ctx is not None else None
    path = (
        given if isinstance(given, Path) else default_path()
    )  # click has a mark of its own for what is not given
    return (
        f"; to forget every run, remove {path}, and {path.name}-wal and {path.name}-shm beside it where they are"
    )


def db_option(command: _Command) -> _Command:
    """Add ``--db``; it is read before the others, whose messages and completion name its file."""
    return click.option(
        "--db", type=click.Path(path_type=Path), metavar="FILE", is_eager=True,
        help="The history's file; without it, history.db in the state folder.",
    )(command)  # fmt: skip


def memory_options(command: _Command) -> _Command:
    """Add the options of :class:`Conduct`."""
    duration = DurationType()
    options = (
        click.option(
            "--changed", is_flag=True,
            help="Instead of the report, show what changed of each host since it was last looked at. With "
            "--format json, as data.",
        ),
        click.option(
            "--cron", is_flag=True,
            help="Behave as cron needs it: no colour or progress, one run at a time of an inventory (or exit code "
            "75), 30 minutes at most; silent while nothing changes, otherwise what changed comes first.",
        ),
        click.option(
            "--remind", type=duration, metavar="DURATION",
            help="With --cron: tell again what is still open, such as 24h after the last mail.",
        ),
        click.option(
            "--log", type=click.Path(path_type=Path), metavar="FILE",
            help="Also write a log, a line an event; 6 files of 1 MiB at most.",
        ),
        db_option,
        click.option(
            "--keep", type=duration, default=KEEP, show_default=True, metavar="DURATION",
            help="How long runs stay in the history.",
        ),
        click.option("--no-history", is_flag=True, help="Store nothing of this run."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Conduct:
    """How an audit behaves: what it remembers, and what it says."""

    changed: bool
    cron: bool
    remind: timedelta | None
    log: Path | None
    db: Path | None
    keep: timedelta
    history: bool

    @classmethod
    def take(cls, options: dict[str, Any]) -> Conduct:
        """Take the options of :func:`memory_options` out of a command's arguments. Raises UsageError."""
        made = cls(
            options.pop("changed"), options.pop("cron"), options.pop("remind"), options.pop("log"),
            options.pop("db"), options.pop("keep"), not options.pop("no_history"),
        )  # fmt: skip
        if not made.history and (made.changed or made.cron or made.db):
            raise click.UsageError("--no-history leaves nothing for --changed, --cron or --db.")
        if made.changed and made.cron:
            raise click.UsageError("--changed and --cron are two ways to report; give one.")
        if made.remind and not made.cron:
            raise click.UsageError("--remind belongs to --cron.")
        return made

    @property
    def relies(self) -> bool:
        """Return whether the history was asked for: then the run fails where the history does."""
        return self.changed or self.cron or self.db is not None


def opened(db: Path | None) -> History:
    """Open the history to read it. Raises HistoryError where there is none."""
    from fleetcheck.history.store import History, default_path

    return History.read(db or default_path())


def identity(source: str) -> str:
    """Return a name of an inventory that stays: its real path, or the words that it was given as."""
    path = Path(source)
    with contextlib.suppress(OSError, ValueError):
        if path.exists():
            return str(path.resolve())
    return source


def is_document(name: str, db: Path | None) -> bool:
    """Return whether a file is meant, and no run of the history; a file of that name comes first."""
    from fleetcheck.history.past import LATEST
    from fleetcheck.history.store import default_path

    if name == "-" or "/" in name or "." in name or os.path.exists(name):  # noqa: PTH110 a name of any bytes
        return True
    return db is None and not name.startswith(LATEST) and not default_path().exists()


def remembered(name: str, db: Path | None) -> Run | None:
    """Return the run of the history that ``name`` means, and say what of it is not stored. None: it is a file's.

    A file of that name comes first. Raises InputError where neither is there, HistoryError.
    """
    from fleetcheck.errors import InputError, Problem
    from fleetcheck.history.past import Past

    if is_document(name, db):
        return None
    with opened(db) as history:
        past = Past(history)
        try:
            entry = past.find(name)
        except InputError as error:
            problems = [Problem(name, None, f"there is no such file, and {one.message}") for one in error.problems]
            raise InputError(problems) from None
        run = past.run(entry)
    aside(f"{entry.id}, {entry.started}: {NOT_STORED}")
    return run


def aside(line: str) -> None:
    """Say a line on standard error, where there is one."""
    with contextlib.suppress(OSError):
        click.echo(f"fleetcheck: {line}", err=True)


class Memory:
    """The history of one run. What fails in it is kept in ``failures``: the audit itself goes on."""

    def __init__(self, db: Path | None, source: str, *, keep: timedelta, cron: bool = False) -> None:
        from fleetcheck.history.store import default_path

        self.path = db or default_path()
        self.source, self._keep, self._cron = identity(source), keep, cron
        self.history: History | None = None
        self.number: int | None = None
        self.stored = False
        self.failures: list[str] = []

    def close(self) -> None:
        """Close the file."""
        if self.history is not None:
            history, self.history = self.history, None
            self.guarded(history.close)

    def begin(self, info: RunInfo) -> None:
        """Note that the run begins; a kill from now on leaves a trace."""
        self.guarded(lambda: self._begin(info))

    def end(self, run: Run) -> None:
        """Store the run, and forget what is older than is to be kept."""
        if self.number is not None:
            self.guarded(lambda: self._end(run))

    @property
    def past(self) -> Past | None:
        """Questions to the history, None where it could not be opened."""
        if self.history is None:
            return None
        from fleetcheck.history.past import Past

        return Past(self.history)

    def cut(self) -> list[Cut]:
        """Return the runs that were cut, of which nobody was told yet."""
        return (self.guarded(self.history.cut) or []) if self.history is not None else []

    def cut_told(self) -> None:
        """Note that the user was told of them."""
        if self.history is not None:
            self.guarded(self.history.cut_told)

    def changes(self, run: Run, base: Entry | None) -> Changes | None:
        """Return what changed since ``base``, None where the history could not be asked."""
        from fleetcheck.history.diff import compare, of_run

        past = self.past
        if past is None:
            return None
        fleet = tuple(item for item in run.findings if item.host is None)
        made: Changes | None = self.guarded(lambda: compare(past, base, of_run(run), run.run, fleet))
        return made

    def gpus(self, host: str) -> Gpus | None:
        """Return the GPUs of a host as they were when it was checked last, None where that is not known."""
        past, number = self.past, self.number
        if past is None or number is None:
            return None
        look = self.guarded(lambda: past.last_look(host, number, checked=True))
        found: Gpus | None = None if look is None else self.guarded(lambda: look.load()[0].gpus)
        return found

    def before(self) -> Entry | None:
        """Return the last run that ended before this one began."""
        past, number = self.past, self.number
        return self.guarded(lambda: past.ended_before(number)) if past and number is not None else None

    def _begin(self, info: RunInfo) -> None:
        from fleetcheck.history.store import History

        self.history = History.open(self.path)
        self.number = self.history.begin(info, source=self.source, cron=self._cron)

    def _end(self, run: Run) -> None:
        assert self.history is not None and self.number is not None  # noqa: S101 begin() set both
        self.history.store(self.number, run)
        self.stored = True
        self.history.prune(self._keep, slack=timedelta(days=1))

    def guarded(self, act: Callable[[], Any]) -> Any:
        """Return what ``act`` returns, None where the history failed; the failure is kept."""
        from fleetcheck.history.errors import HistoryError

        try:
            return act()
        except HistoryError as error:
            if str(error) not in self.failures:
                self.failures.append(str(error))
            return None


def cut_line(cut: Cut, now: datetime) -> str:
    """Return what is said of a run that was cut."""
    from fleetcheck.history.ages import ago
    from fleetcheck.report.text import clean

    return (
        f"The run {clean(cut.id)} of {clean(cut.inventory)}, begun {ago(cut.started, now)}, was cut short "
        "(killed, or the machine went down); nothing of it is stored."
    )
