"""The real crontab of whoever runs the tests, used only where it is empty: nobody's jobs are put at risk."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NEEDS_CRONTAB = "needs a crontab program (package cron), and an empty crontab"


def listed() -> str:
    """Return the crontab as it is; nothing where there is none."""
    return subprocess.run(["crontab", "-l"], capture_output=True, text=True, check=False).stdout


@contextmanager
def borrowed() -> Iterator[None]:
    """Let a test write the crontab, and leave none behind; skip where there is one."""
    if shutil.which("crontab") is None or listed().strip():
        pytest.skip(NEEDS_CRONTAB)
    try:
        yield
    finally:
        subprocess.run(["crontab", "-r"], capture_output=True, check=False)
