"""The known_hosts file on disk: read whole, grown by one line at a time under a lock, never rewritten.

In: a path. Out: its text and a stamp that tells whether it is still the same; or one more line in it.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hmac
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetcheck.errors import FleetcheckError
from fleetcheck.remote.hostkey_line import SHA1_BYTES

MAX_FILE_BYTES = 64 << 20
MAX_NOTES = 20
LOCK_SECONDS = 5.0
LOCK_POLL_SECONDS = 0.02


class HostKeyError(FleetcheckError):
    """A host key that is not recorded, or a known_hosts file that cannot be written."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells one state of a file from another: device, inode, size in bytes, time of change in ns."""

    device: int
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a file's status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def read_text(path: str) -> tuple[str, Stamp | None, str | None]:
    """Return text, stamp and a note about what could not be read; a missing file and /dev/null are empty.

    Never blocks on a FIFO, reads at most :data:`MAX_FILE_BYTES`, and raises nothing.
    """
    try:
        # Without O_NONBLOCK the opening of a FIFO waits for a writer for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if path == os.devnull:
                return "", None, None
            if not stat.S_ISREG(status.st_mode):
                return "", None, f"{path}: not read: not a regular file"
            if status.st_size > MAX_FILE_BYTES:
                return "", None, f"{path}: not read: larger than {MAX_FILE_BYTES >> 20} MiB"
            return file.read(status.st_size).decode("utf-8", "replace"), Stamp.of(status), None
    except FileNotFoundError:
        return "", None, None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return "", None, f"{path}: not read: {getattr(error, 'strerror', None) or error}"


def append_line(path: str, decide: Callable[[Stamp], str | None]) -> tuple[bool, Stamp, int]:
    """Append the line that ``decide`` returns, made by one write under an exclusive lock.

    ``decide`` is given the file's stamp once the lock is held; None adds nothing, and what it raises leaves the
    file as it is. The file is created with mode 0600, its folder with 0700. Returns whether a line was added,
    the file's stamp afterwards, and the line's number (0 where none was added). Raises :class:`HostKeyError`
    where it cannot be written.
    """
    try:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise HostKeyError(f"cannot record a host key in {path}: not a regular file")
            _lock(file.fileno(), path)
            before = Stamp.of(os.fstat(file.fileno()))
            line = decide(before)
            if line is None:
                return False, before, 0
            _write_whole(file.fileno(), before.size, line)
            return True, Stamp.of(os.fstat(file.fileno())), _count_lines(file.fileno())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HostKeyError(f"cannot record a host key in {path}: {reason}") from error


def _write_whole(descriptor: int, size: int, line: str) -> None:
    """Write one line, or leave the file as it was."""
    broken = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    data = ("\n" if broken else "").encode() + line.encode() + b"\n"
    written = os.write(descriptor, data)
    if written != len(data):
        if os.fstat(descriptor).st_size == size + written:  # else another program has appended behind it
            os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _count_lines(descriptor: int) -> int:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).count(b"\n")


def _lock(descriptor: int, path: str) -> None:
    """Take the lock; a file system without locks has none to give, and one write to the end has to do."""
    end = time.monotonic() + LOCK_SECONDS
    pause = threading.Event()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
                return
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                raise
        else:
            return
        if time.monotonic() > end:
            raise HostKeyError(f"cannot record a host key in {path}: another program keeps it locked")
        pause.wait(LOCK_POLL_SECONDS)


def hashed_name(name: str) -> str:
    """Return ``name`` hashed with a fresh salt, as ssh writes it under HashKnownHosts."""
    salt = os.urandom(SHA1_BYTES)
    digest = hmac.digest(salt, name.encode(), "sha1")
    return "|1|" + "|".join(base64.b64encode(part).decode() for part in (salt, digest))
