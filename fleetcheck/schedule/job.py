"""One audit by the clock: its command with absolute paths, its folder, and the environment that it needs."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fleetcheck.errors import InputError, Problem

CRON_PATH = "/usr/bin:/bin"
CARRIED = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
"""Variables that say where files are; cron does not know them."""
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Job:
    """``command`` begins with the absolute path of the program; ``limit`` is the whole run's, in seconds."""

    name: str
    command: tuple[str, ...]
    folder: str
    environment: tuple[tuple[str, str], ...]
    limit: float

    def __post_init__(self) -> None:
        """Refuse what no line of a crontab or unit can hold."""
        if NAME.fullmatch(self.name) is None:
            message = f"{self.name!r} is not a name; it takes small letters, digits, dots, _ and -"
            raise InputError([Problem("--name", None, message)])
        texts = [*self.command, self.folder, *(value for _, value in self.environment)]
        if any(not text.isprintable() for text in texts):
            raise InputError(
                [Problem("schedule", None, "an argument holds a line break or another control character")]
            )

    def minute(self) -> int:
        """Return a minute of the hour that is this job's own: not every machine should begin at once."""
        mark = f"{self.name} {os.uname().nodename} {self.folder}".encode("utf-8", "surrogateescape")
        return sha256(mark).digest()[0] % 60

    def shell(self) -> str:
        """Return the command as ``/bin/sh`` takes it."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.environment]
        return f"cd {shlex.quote(self.folder)} && {' '.join([*words, *map(shlex.quote, self.command)])}"


def program() -> tuple[str, ...]:
    """Return the absolute words that start this very fleetcheck."""
    beside = Path(sys.executable).with_name("fleetcheck")
    if beside.is_file() and os.access(beside, os.X_OK):
        return (str(beside),)
    return sys.executable, "-c", "from fleetcheck.cli.main import main; main()"


def environment(environ: Mapping[str, str] = os.environ) -> tuple[tuple[str, str], ...]:
    """Return what the job needs beside what cron gives: where files are, where ssh is, how text is encoded."""
    found = [(name, environ[name]) for name in CARRIED[:3] if environ.get(name)]
    ssh = shutil.which("ssh", path=environ.get("PATH"))
    if ssh is not None and shutil.which("ssh", path=CRON_PATH) is None:
        found.append(("PATH", f"{Path(ssh).parent}:{CRON_PATH}"))
    return (*found, ("LANG", "C.UTF-8"))


def cron_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment in which cron would run an installed line."""
    account = pwd.getpwuid(os.geteuid())
    base = {
        "HOME": account.pw_dir, "LOGNAME": account.pw_name, "USER": account.pw_name, "SHELL": "/bin/sh",
        "PATH": CRON_PATH,
    }  # fmt: skip
    return base | dict(environment(environ))


def absolute(source: str) -> str:
    """Return an inventory as the job names it: a path without the folder of today, or the words as they are."""
    if source == "-":
        raise InputError([Problem("-i", None, "standard input is empty under cron; give a file")])
    return str(Path(source).absolute()) if Path(source).exists() else source


def arguments(command: Sequence[str]) -> str:
    """Return words as one line for a reader."""
    return shlex.join(command)
