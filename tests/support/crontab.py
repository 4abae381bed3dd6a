"""The real crontab of whoever runs the tests, used only where it is empty: nobody's jobs are put at risk."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import pytest

SECONDS = 600
NEEDS_CRONTAB = "needs a crontab program (package cron), and an empty crontab"


def listed() -> str:
    """Return the crontab as it is; nothing where there is none."""
    return subprocess.run(["crontab", "-l"], capture_output=True, text=True, check=False).stdout


@contextmanager
def alone() -> Iterator[None]:
    """Keep tests that run side by side from the one crontab: those that write it, and those that judge it."""
    with filelock.FileLock(
        Path(tempfile.gettempdir()) / f"fleetcheck-crontab-{os.geteuid()}.lock", timeout=SECONDS
    ):
        yield


@contextmanager
def borrowed() -> Iterator[None]:
    """Let a test write the crontab, alone, and leave none behind; skip where there is one."""
    with alone():
        yield from _borrowed()


def _borrowed() -> Iterator[None]:
    if shutil.which("crontab") is None or listed().strip():
        pytest.skip(NEEDS_CRONTAB)
    try:
        yield
    finally:
        subprocess.run(["crontab", "-r"], capture_output=True, check=False)
