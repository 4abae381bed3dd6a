"""Interrupts of this process: SIGINT and SIGTERM, noted, raised as KeyboardInterrupt, or held for a moment.

Held is the first one that comes when every host was looked at: what was gathered is then judged, stored and
written, which takes a moment, and half of a report would be worth nothing. The second ends the program at once.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Interrupts:
    """``seen`` are the signals that came, by number."""

    seen: list[int] = field(default_factory=list)
    _holding: bool = False

    def hold(self) -> None:
        """Hold the first interrupt from now on."""
        self._holding = True

    @property
    def held(self) -> bool:
        """Whether one was held, so that nobody was told of it."""
        return self._holding and len(self.seen) == 1

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Make SIGTERM an interrupt: ``timeout`` and systemd get what was gathered, and no draft stays behind.

        So is SIGINT, unless it is ignored. Afterwards the handlers are as before.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for number, handler in before.items():
                if number == signal.SIGTERM or handler != signal.SIG_IGN:
                    signal.signal(number, self._come)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _come(self, number: int, _frame: object) -> None:
        first = not self.seen
        self.seen.append(number)
        if not (self._holding and first):
            raise KeyboardInterrupt


def deaf() -> None:
    """Ignore interrupts: all is written, and the exit code stands, whatever comes while the process ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
