"""Which runs are under way: each holds a lock on one byte of a file beside the history, at its own number.

The kernel lets go of it when the process ends, however it ends; no id of a process is trusted, which another
process may have by now. (POSIX record locks: a process has one history open at a time.)
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

SUFFIX = "-runs"


class Alive:
    """``with`` or :meth:`close`: the file beside the history ``path``. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(f"{path}{SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._own: set[int] = set()

    def close(self) -> None:
        """Let go of everything."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def begin(self, number: int) -> None:
        """Say that the run ``number`` is under way in this process."""
        fcntl.lockf(self._handle, fcntl.LOCK_EX, 1, number)
        self._own.add(number)

    def end(self, number: int) -> None:
        """Say that it is over."""
        fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, number)
        self._own.discard(number)

    def is_over(self, number: int) -> bool:
        """Return whether no process says that the run ``number`` is under way."""
        if number in self._own:
            return False
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, number)
        return True
