"""An Ansible inventory read by the user's own ``ansible-inventory``.

In: the path of an inventory. Out: what ``ansible-inventory --list`` prints, and its warnings. A file that Ansible
would run is named as an error, unless the user allowed it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fleetcheck.errors import Problem
from fleetcheck.inventory.source import MAX_LIST_BYTES, Text, decode
from fleetcheck.inventory.wording import shown

PROGRAM = "ansible-inventory"
SECONDS = 120.0
MAX_FILES = 10_000
MAX_WARNINGS = 20
IGNORED = (".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry")
_VARIABLES = frozenset({"group_vars", "host_vars", "vars_plugins"})
_BLOCK = re.compile(r"^\[(WARNING|ERROR|DEPRECATION WARNING)\]:\s*", re.MULTILINE)
_VALUE = re.compile(r"""(pass(?:word|wd|phrase)?["']?(?:\s*[:=]\s*|\s+))\S.*""", re.IGNORECASE)
"""Ansible quotes the line that it cannot read; what may be a password is not passed on."""
_ORIGIN = re.compile(r"^Origin: (/.*?):(\d+)(?::(\d+))?\s*$", re.MULTILINE)


def listing(path: Path, *, execute: bool, problems: list[Problem], warnings: list[Problem]) -> Text | None:
    """Return what ``ansible-inventory --list`` prints for ``path``; None, with the reasons noted, if none."""
    program = find()
    if program is None:
        message = (
            f"an Ansible inventory, and {PROGRAM} is not installed: install fleetcheck[ansible] or ansible-core"
        )
        problems.append(Problem(str(path), None, message))
        return None
    if not execute:
        refused = [
            Problem(str(file), None, "Ansible would run this executable file; allow it with --inventory-exec")
            for file in executables(path)
        ]
        if refused:
            problems += refused
            return None
    try:
        status, output, errors = _run([program, "-i", str(path.absolute()), "--list"])
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or f"it took longer than {SECONDS:.0f} seconds"
        problems.append(Problem(str(path), None, f"{PROGRAM} failed: {reason}"))
        return None
    said = list(_said(str(path), errors))
    if status != 0:
        problems += said or [Problem(str(path), None, f"{PROGRAM} ended with {status} and gave no reason")]
        return None
    warnings += said
    texts = decode(str(path), output, problems, MAX_LIST_BYTES)
    return texts[0] if texts else None


def find() -> str | None:
    """Return the program: the first on PATH, else the one beside our own interpreter."""
    return shutil.which(PROGRAM) or shutil.which(PROGRAM, path=str(Path(sys.executable).parent))


def executables(path: Path) -> Iterator[Path]:
    """Yield the files that Ansible would run: with the permission to, or beginning with ``#!``."""
    files = [path]
    if path.is_dir():
        files = []
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in _VARIABLES)
            kept = (name for name in sorted(names) if not name.startswith(".") and not name.endswith(IGNORED))
            files += [Path(folder) / name for name in kept]
            if len(files) > MAX_FILES:
                break
    for file in files:
        try:
            if file.is_file() and (os.access(file, os.X_OK) or _shebang(file)):
                yield file
        except OSError:
            continue  # Ansible itself says what it cannot read


def _shebang(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(2) == b"#!"


def _run(command: list[str]) -> tuple[int, bytes, str]:
    """Run ``command`` in a process group of its own, which ends with it. Returns status, output, messages."""
    plain = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_DEPRECATION_WARNINGS": "0", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=messages, start_new_session=True,
            env={**os.environ, **plain},
        )  # fmt: skip
        try:
            status = process.wait(SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        messages.seek(0)
        return status, output.read(MAX_LIST_BYTES + 1), messages.read(1 << 20).decode("utf-8", "replace")


def _said(source: str, errors: str) -> Iterator[Problem]:
    """Yield each warning and error once, on one line, with the file and line where Ansible names one."""
    seen: set[str] = set()
    pieces = _BLOCK.split(errors)
    for kind, block in zip(pieces[1::2], pieces[2::2], strict=True):
        message = _VALUE.sub(r"\1***", " ".join(block.split("\n\n")[0].split()))
        if kind == "DEPRECATION WARNING" or message in seen or "with 'auto' plugin" in message:
            continue
        seen.add(message)
        if len(seen) > MAX_WARNINGS:
            yield Problem(source, None, f"{PROGRAM} says more; run it to see all")
            return
        origin = _ORIGIN.search(block)
        where = (
            (origin[1], int(origin[2]), int(origin[3]) if origin[3] else None) if origin else (source, None, None)
        )
        yield Problem(where[0], where[1], f"{PROGRAM}: {shown(message, 300)}", where[2])
    if not pieces[1:] and errors.strip():
        yield Problem(source, None, f"{PROGRAM}: {shown(errors.strip().splitlines()[-1], 300)}")
