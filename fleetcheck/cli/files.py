"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from fleetcheck.errors import OutputError

EARLIER = 64 << 20
"""How many characters of a file that is to be replaced are read."""


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

    @property
    def replaces(self) -> bool:
        """True where there is a regular file already, which :meth:`write` would replace."""
        return self._draft is not None and self._real.exists()

    def earlier(self) -> str:
        """Return what the file holds before it is replaced; nothing where that is not text, or no regular file."""
        if not self.replaces:
            return ""
        try:
            with self._real.open(encoding="utf-8") as stream:
                return stream.read(EARLIER)
        except (OSError, UnicodeDecodeError):
            return ""

    def write(self, pieces: Iterable[str]) -> None:
        """Write the whole text, given piece by piece, and put it in place."""
        with self._told():
            if self._draft is None:
                with self._real.open("w", encoding="utf-8") as stream:
                    stream.writelines(pieces)
                return
            with self._draft.open("w", encoding="utf-8") as stream:
                stream.writelines(pieces)
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
