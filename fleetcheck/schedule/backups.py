"""What stood where a schedule goes, kept before it is changed; and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
from pathlib import Path


def keep(folder: Path, name: str, content: bytes) -> Path:
    """Write ``content`` into the folder of backups, for its owner alone, and return where. Raises OSError."""
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(path, content, mode=0o600)
    return path


def write(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file; where that fails, as on a full disk, nothing of it is left. Raises OSError."""
    try:
        if mode is not None:
            path.touch(mode=mode)
        path.write_bytes(content)
    except OSError:
        with contextlib.suppress(OSError):  # where it could not even be made
            path.unlink()
        raise
