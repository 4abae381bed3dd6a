"""The log of runs from cron: a file that turns over by itself, one line an event."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from time import gmtime
from typing import TYPE_CHECKING

from fleetcheck.cli.options import Session, Show
from fleetcheck.cli.output import Progress
from fleetcheck.errors import OutputError
from fleetcheck.report.text import clean

if TYPE_CHECKING:
    from fleetcheck.run import Event

MAX_BYTES = 1 << 20
KEPT = 5
"""How many earlier files are kept beside the one that is written: ``FILE.1`` is the youngest of them."""


class LogFile:
    """Appends lines to a file. A write that fails is noted in ``failures``, once; the audit goes on."""

    def __init__(self, path: Path) -> None:
        self.failures: list[str] = []
        try:
            self._handler = _Handler(path, self.failures)
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None

    def say(self, text: str) -> None:
        """Write one line, with the time in UTC before it."""
        self._handler.handle(logging.LogRecord("fleetcheck", logging.INFO, "", 0, clean(text, 1000), None, None))

    def close(self) -> None:
        """Close the file."""
        try:
            self._handler.close()
        except OSError as error:  # what a full disk did not take before, it does not take now
            self._handler.note(error)


class _Handler(RotatingFileHandler):
    def __init__(self, path: Path, failures: list[str]) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=KEPT, encoding="utf-8")
        self._failures, self._path = failures, path
        form = logging.Formatter("%(asctime)sZ %(message)s", "%Y-%m-%dT%H:%M:%S")
        form.converter = gmtime
        self.setFormatter(form)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 logging's signature
        """Note what failed, in place of logging's traceback."""
        import sys

        self.note(sys.exc_info()[1])

    def note(self, why: BaseException | None) -> None:
        """Keep the first failure."""
        text = why.strerror or str(why) if isinstance(why, OSError) else str(why)
        if not self._failures:
            self._failures.append(f"{self._path}: cannot be written: {text}")


class LoggedProgress(Progress):
    """The usual progress, and a line in the log for each host."""

    def __init__(self, session: Session, show: Show, log: LogFile) -> None:
        super().__init__(session, show)
        self._log = log

    def see(self, event: Event) -> None:
        """Log an event."""
        from fleetcheck.run import Finished, Started, tally

        super().see(event)
        if isinstance(event, Started):
            self._log.say(f"run {event.info.id} begins: {event.hosts} hosts of {event.info.inventory}")
        elif isinstance(event, Finished):
            ended = "ends" if event.run.run.complete else "was interrupted"
            self._log.say(f"run {event.run.run.id} {ended}: {tally(event.run.summary)}")
        else:
            host = event.host
            why = f": {host.message}" if host.message else ""
            self._log.say(f"{host.name} {host.verdict} in {host.seconds:.1f} s{why}")
