"""Where a run goes: standard output, files that are written whole or not at all, progress on a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, cast

import click

from fleetcheck.cli.options import Output, Session, Show, coloured
from fleetcheck.errors import FleetcheckError, InputError, OutputError, Problem

if TYPE_CHECKING:
    from fleetcheck.run import Event, Run


def emit(text: str) -> None:
    """Write to standard output. A reader that left is no error; a full disk or no stream is an OutputError."""
    if sys.stdout is None:
        if text:
            raise OutputError("standard output is closed")
        return
    try:
        sys.stdout.write(text)
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


def render(run: Run, name: str, *, wide: bool, width: int, colour: bool) -> str:
    """Return the run in one of the formats."""
    if name == "json":
        from fleetcheck.report import json

        return json.render(run)
    from fleetcheck.report import table

    return table.render(run, wide=wide, width=width, colour=colour)


class Draft:
    """A file to come. Entering makes a draft beside it, :meth:`write` puts it in place, leaving removes it.

    An existing file keeps its mode, a new one follows the umask; a link keeps pointing to what is replaced. What
    is not a regular file (``/dev/null``, a FIFO) is written to as it stands. Raises OutputError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._real = Path(os.path.realpath(path))
        self._draft: Path | None = None

    def __enter__(self) -> Self:
        with self._told():
            mode = self._real.stat().st_mode if self._real.exists() else None
            if mode is not None and stat.S_ISDIR(mode):
                raise OutputError(f"{self.path}: is a folder")
            if mode is None or stat.S_ISREG(mode):
                handle, name = tempfile.mkstemp(
                    prefix=f".{self._real.name[:80]}.", suffix=".part", dir=self._real.parent
                )
                self._draft = Path(name)
                os.fchmod(handle, 0o666 & ~_umask() if mode is None else stat.S_IMODE(mode))
                os.close(handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._draft is not None:
            self._draft.unlink(missing_ok=True)
            self._draft = None

    def write(self, text: str) -> None:
        """Write the whole text and put it in place."""
        with self._told():
            if self._draft is None:
                self._real.write_text(text, encoding="utf-8")
                return
            with self._draft.open("w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            self._draft.replace(self._real)
            self._draft = None

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror or error}") from None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


class Outputs:
    """The files of one run: opened before the first host is looked at, written when the run has ended.

    A file that fails does not take the others or the report with it: :meth:`finish` writes what can be written
    and then raises one OutputError with a line for each that failed.
    """

    def __init__(self, show: Show) -> None:
        self._show = show
        self._stack = contextlib.ExitStack()
        self._drafts: list[tuple[str, Draft]] = []
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

    def finish(self, run: Run) -> None:
        """Print the report and put the files in place. Raises OutputError when all that can be done is done."""
        show = self._show
        if not show.quiet:
            with self._noted():
                colour = coloured(show.colour, is_terminal(sys.stdout))
                emit(render(run, show.format, wide=show.wide, width=table_width(), colour=colour))
        for name, draft in self._drafts:
            with self._noted():
                draft.write(render(run, name, wide=show.wide, width=0, colour=False))
        if self.failures:
            raise OutputError("\n".join(self.failures))

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except OutputError as error:
            self.failures.append(str(error))


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
        self._hosts = self._done = self._bad = self._unseen = 0

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
            self._bad += event.host.verdict == "findings"
            self._unseen += event.host.verdict not in ("ok", "findings")
        if self._on:
            line = f"{self._done}/{self._hosts} hosts, {self._bad} with findings, {self._unseen} not checked"
            click.echo(f"\r\x1b[K{line}", nl=False, err=True, color=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._on:
            click.echo("\r\x1b[K", nl=False, err=True, color=True)


def watch(events: Iterator[Event], progress: Progress) -> Run:
    """Read the events to their end and return the run. An interrupt ends the run, not the report.

    Raises KeyboardInterrupt where it is interrupted again.
    """
    from fleetcheck.run import Finished

    try:
        for event in events:
            progress.see(event)
            if isinstance(event, Finished):
                return event.run
    except KeyboardInterrupt:
        last = cast("Generator[Event, None, None]", events).throw(KeyboardInterrupt())
        progress.clear()
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
