"""Where a run goes: standard output, files, progress on a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, cast

import click

from fleetcheck.cli.files import Draft
from fleetcheck.cli.interrupts import Interrupts
from fleetcheck.cli.options import Output, Session, Show, coloured
from fleetcheck.errors import FleetcheckError, InputError, OutputError, Problem
from fleetcheck.report.formats import CARRIES, STREAMED, View, pieces

if TYPE_CHECKING:
    from fleetcheck.inventory.model import Target
    from fleetcheck.report.jsonl import Stream
    from fleetcheck.run import Event, Run


def emit(text: str | Iterable[str]) -> None:
    """Write to standard output. A reader that left is no error; a full disk or no stream is an OutputError."""
    pieces = (text,) if isinstance(text, str) else text
    if sys.stdout is None:
        if any(pieces):
            raise OutputError("standard output is closed")
        return
    try:
        sys.stdout.writelines(pieces)
        sys.stdout.flush()
    except BrokenPipeError:
        silence()
    except OSError as error:
        silence()
        raise OutputError(f"standard output: {error.strerror or error}") from None


def silence() -> None:
    """Point standard output to nowhere, so that the interpreter's last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def reader_left() -> bool:
    """Return whether standard output is a pipe that nobody reads any more."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is there and is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def table_width() -> int:
    """Return the columns for a table: COLUMNS, else the terminal's, else 0 (a pipe or file: shorten nothing)."""
    with contextlib.suppress(KeyError, ValueError):
        return max(0, int(os.environ["COLUMNS"]))
    if is_terminal(sys.stdout):
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(sys.stdout.fileno()).columns
    return 0


class Outputs:
    """The files of one run: opened before the first host is looked at, written when the run has ended.

    A file that fails does not take the others or the report with it: :meth:`finish` writes what can be written
    and then raises one OutputError with a line for each that failed.
    """

    def __init__(self, show: Show) -> None:
        self._show = show
        self._stack = contextlib.ExitStack()
        self._drafts: list[tuple[str, Draft]] = []
        self._stream = None if show.quiet else _stream(show.format)
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        with self._stack:
            for output in distinct(self._show.outputs):
                if output.format != "evidence":
                    self._drafts.append((output.format, self._stack.enter_context(Draft(output.path))))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def see(self, event: Event) -> None:
        """Print what a host's end adds to a format that is printed as hosts end."""
        if self._stream is not None:
            try:
                emit("".join(self._stream.lines(event)))
            except OutputError as error:
                self._stream = None
                self.failures.append(str(error))

    def replay(self, run: Run) -> None:
        """Print a run that is over in a format that is printed as hosts end."""
        from fleetcheck.run import Finished, Started

        self.see(Started(run.run, len(run.hosts)))
        self.see(Finished(run))

    def finish(self, run: Run) -> None:
        """Print the report and put the files in place. Raises OutputError when all that can be done is done."""
        show = self._show
        if not show.quiet and show.format not in STREAMED:
            with self._noted():
                colour = coloured(show.colour, is_terminal(sys.stdout))
                emit(pieces(run, show.format, View(show.wide, table_width(), colour, show.columns)))
        for name, draft in self._drafts:
            with self._noted():
                carries = name in CARRIES
                # Numbers of an interrupted run would tell of hosts that nobody looked at; old ones age visibly.
                if not carries or run.run.complete or not draft.replaces:
                    earlier = draft.earlier() if carries else ""
                    draft.write(pieces(run, name, View(show.wide, columns=show.columns, earlier=earlier)))
        if self.failures:
            raise OutputError("\n".join(self.failures))

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except OutputError as error:
            self.failures.append(str(error))


def _stream(name: str) -> Stream | None:
    if name not in STREAMED:
        return None
    from fleetcheck.report.jsonl import Stream

    return Stream()


def distinct(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Return the outputs. Raises InputError where two of them would be one file."""
    seen: dict[str, Output] = {}
    for output in outputs:
        if seen.setdefault(os.path.realpath(output.path), output) is not output:
            raise InputError([Problem("--output", None, f"{output.path} is named twice")])
    return tuple(outputs)


class Progress:
    """One line on standard error, only where that is a terminal and nobody asked for quiet."""

    def __init__(self, session: Session, show: Show) -> None:
        self._on = is_terminal(sys.stderr) and not show.quiet and not session.debug
        self._on = self._on and os.environ.get("TERM") != "dumb"
        self._hosts = self._done = self._bad = self._unseen = self._resting = 0
        self._began: dict[str, float] = {}

    def begin(self, target: Target) -> None:
        """Remember since when a host is looked at; a retry begins anew."""
        self._began.pop(target.name, None)
        self._began[target.name] = time.monotonic()

    def see(self, event: Event) -> None:
        """Count an event and show the line; the last event clears it."""
        from fleetcheck.run import Finished, Started

        if isinstance(event, Finished):
            self.clear()
            return
        if isinstance(event, Started):
            self._hosts = event.hosts
        else:
            self._done += 1
            self._began.pop(event.host.name, None)
            self._bad += event.host.verdict == "findings"
            self._unseen += event.host.verdict not in ("ok", "findings", "skipped")
            self._resting += event.host.verdict == "skipped"
        if self._on:
            line = f"{self._done}/{self._hosts} hosts, {self._bad} failing, {self._unseen} not checked"
            line += f", {self._resting} in maintenance" if self._resting else ""
            slowest = next(iter(self._began.items()), None)
            if slowest is not None:
                line += f"; slowest {slowest[0][:40]} ({time.monotonic() - slowest[1]:.0f} s)"
            click.echo(f"\r\x1b[K{line}", nl=False, err=True, color=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._on:
            click.echo("\r\x1b[K", nl=False, err=True, color=True)


def spare(show: Show, *inputs: str | os.PathLike[str] | None) -> None:
    """Refuse to write a file over one that the run reads or keeps. Raises InputError before anything is read."""
    problems = []
    for output in show.outputs:
        for taken in inputs:
            try:
                same = taken is not None and output.path.samefile(taken)
            except OSError:
                same = False  # one of the two is not there
            if same:
                problems.append(
                    Problem("--output", None, f"{output.path} is read or kept by this run; name another")
                )
    if problems:
        raise InputError(problems)


def watch(events: Iterator[Event], progress: Progress, outputs: Outputs, interrupts: Interrupts) -> Run:
    """Read the events to their end and return the run. An interrupt ends the run, not the report.

    It is held from the last host on. Raises KeyboardInterrupt where it is interrupted again.
    """
    from fleetcheck.run import Finished, Started

    left = 0
    try:
        for event in events:
            progress.see(event)
            outputs.see(event)
            if isinstance(event, Finished):
                return event.run
            left = event.hosts if isinstance(event, Started) else left - 1
            if left == 0:
                interrupts.hold()
    except KeyboardInterrupt:
        last = cast("Generator[Event, None, None]", events).throw(KeyboardInterrupt())
        progress.clear()
        outputs.see(last)
        if isinstance(last, Finished):
            return last.run
    except BaseException:
        progress.clear()
        raise
    raise FleetcheckError("the audit ended without a result")


def prepare(session: Session) -> None:
    """Keep libraries off standard error: their failures reach the user as outcomes. ``--debug`` lets them talk."""
    import logging
    import warnings

    if session.debug:
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
        return
    # Without a handler, logging's last resort prints tracebacks of paramiko's threads.
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")


def code(run: Run, show: Show, plain: int | None = None) -> int:
    """Return the exit code: the run's own or ``plain``; of ``--format nagios`` alone, that of a plugin."""
    if show.format == "nagios":
        from fleetcheck.report import nagios

        return nagios.code(run)
    from fleetcheck.run import exit_code

    return exit_code(run) if plain is None else plain
