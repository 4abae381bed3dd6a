"""sha256 of a package's files: megabytes, for which OpenSSL's function is worth its start."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional

from fleetcheck.agent.program.system import sha256_of
from fleetcheck.agent.program.values import open_file, read_bytes

FILE_LIMIT = 16 << 20
PIECE = 1 << 17


class Hasher:
    """OpenSSL's function, found once; None where this interpreter has none, or forbids it."""

    made: "Optional[Callable[[bytes], Any]]" = None


def digest(data: bytes) -> str:
    """Return the sha256 in hex. Over the megabytes of a package OpenSSL's is worth its start."""
    if Hasher.made is None:
        try:
            from _hashlib import openssl_sha256

            openssl_sha256(b"")
            Hasher.made = openssl_sha256
        except Exception:
            return sha256_of(data)  # an interpreter without OpenSSL, or one that forbids it
    return str(Hasher.made(data).hexdigest())


def file_digest(path: str) -> str:
    """Return the sha256 of a file in hex, read in pieces."""
    hasher = None if digest(b"") is None or Hasher.made is None else Hasher.made(b"")
    if hasher is None:
        return digest(read_bytes(path, FILE_LIMIT))
    fd = open_file(path)
    try:
        piece = os.read(fd, PIECE)
        while piece:
            hasher.update(piece)
            piece = os.read(fd, PIECE)
    finally:
        os.close(fd)
    return str(hasher.hexdigest())
