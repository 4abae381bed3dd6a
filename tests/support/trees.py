"""What the tests do to a host's folder beyond making it: break an environment, see that nothing was touched."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from fleetcheck.demo.tree import Environment


def activate_elsewhere(environment: Environment, other: Environment) -> None:
    """Make ``bin/activate`` lead to another environment, as after a copy of the folder."""
    script = environment.bin / "activate"
    text = script.read_text()
    assert str(environment.real) in text
    script.write_text(text.replace(str(environment.real), str(other.real)))


def break_interpreter(environment: Environment) -> None:
    """Let ``bin/python`` start and fail, as after an upgrade of the system took its library away."""
    for name in _interpreters():
        (environment.bin / name).unlink()
    script = environment.bin / "python"
    script.write_text(
        "#!/bin/sh\necho 'python: error while loading shared libraries: libpython3.so' >&2\nexit 127\n"
    )
    script.chmod(0o755)
    (environment.bin / "python3").symlink_to("python")


def cut_interpreter(environment: Environment) -> None:
    """Leave ``bin/python`` a link to an interpreter that is no more."""
    for name in _interpreters():
        (environment.bin / name).unlink()
        (environment.bin / name).symlink_to("/opt/removed/bin/python3")


def _interpreters() -> tuple[str, ...]:
    return ("python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}")


def snapshot(root: Path) -> dict[str, tuple[int, ...]]:
    """Return the state of everything below ``root``: mode, owner, size, inode, and both times of change.

    Any write, rename, chmod, new or removed file changes it; reading does not.
    """
    return {path: _state(path) for path in _walk(str(root))}


def _state(path: str) -> tuple[int, ...]:
    seen = os.lstat(path)
    return (seen.st_mode, seen.st_uid, seen.st_size, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns)


def _walk(folder: str) -> Iterator[str]:
    yield folder
    for where, names, files in os.walk(folder):
        for name in names + files:
            yield f"{where}/{name}"
