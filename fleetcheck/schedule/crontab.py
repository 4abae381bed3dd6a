"""The user's crontab: a block between two comments, put in, replaced or taken out; nothing else is touched."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetcheck.errors import FleetcheckError, InputError, Problem
from fleetcheck.schedule.backups import keep
from fleetcheck.schedule.job import Job
from fleetcheck.schedule.when import wrong

SECONDS = 30
LONGEST = 990
_BEGIN = re.compile(r"# fleetcheck (\S+): begin ")
_END = re.compile(r"# fleetcheck \S+: end$")
_PASTED = re.compile(r"fleetcheck\b.*\baudit\b.*\s--cron\b")
"""The line that schedule prints, put in by hand."""
_MAILTO = re.compile(r"""\s*MAILTO\s*=\s*(["']?)(.*?)\1\s*$""")


@dataclass(frozen=True, slots=True)
class Installed:
    """One line of ours in a crontab. ``mailto`` holds there: None where none is set, empty where mail is off."""

    name: str
    line: str
    mailto: str | None


def line(job: Job, when: str | None) -> str:
    """Return the line; cron reads ``%`` as a line break, also within quotes. Raises InputError."""
    when = when or f"{job.minute()} 3 * * *"
    why = wrong(when)
    if why:
        raise InputError([Problem("--at", None, f"{when!r} is not a time of cron: {why}")])
    made = f"{when} {job.shell()}".replace("%", "\\%")
    if len(made.encode("utf-8", "surrogateescape")) > LONGEST:
        message = f"cron does not read lines of more than {LONGEST} bytes; use --systemd"
        raise InputError([Problem("schedule", None, message)])
    return made


def block(job: Job, when: str | None) -> str:
    """Return the lines that are installed, with the comments that find them again."""
    begin, end = _marks(job.name)
    return f"{begin}\n{line(job, when)}\n{end}\n"


def with_block(text: str, name: str, made: str) -> str:
    """Return a crontab with the block ``name`` replaced by ``made``, or added; without ``made``, taken out."""
    begin, end = (re.escape(mark) for mark in _marks(name))
    pattern = re.compile(rf"^{begin}\n.*?^{end}\n", re.MULTILINE | re.DOTALL)
    if pattern.search(text):
        return pattern.sub(lambda _: made, text, count=1)
    if not made:
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{made}"


def installed(text: str) -> Iterator[Installed]:
    """Yield the lines of a crontab that run an audit, in its order: installed, or pasted by hand."""
    name, mailto = None, None
    for row in text.splitlines():
        begin = _BEGIN.match(row)
        setting = _MAILTO.match(row)
        if begin is not None:
            name = begin[1]
        elif row.startswith("#"):
            name = None if _END.match(row) else name
        elif setting is not None:
            mailto = setting[2]
        elif row.strip() and (name is not None or _PASTED.search(row)):
            yield Installed(name or "a line", row, mailto)


def read() -> str:
    """Return the user's crontab, nothing where there is none. Raises FleetcheckError where it cannot be read."""
    done = _crontab("-l")
    if done.returncode == 0:
        return done.stdout
    if "no crontab for" in done.stderr.lower():
        return ""
    raise FleetcheckError(f"crontab -l: {done.stderr.strip() or f'exit code {done.returncode}'}")


def write(text: str) -> None:
    """Put a whole crontab in place; an empty one takes it away. Raises FleetcheckError."""
    done = _crontab("-", text) if text else _crontab("-r")
    if done.returncode != 0:
        raise FleetcheckError(f"crontab: {done.stderr.strip() or f'exit code {done.returncode}'}")


def backup(folder: Path, text: str, stamp: str) -> Path:
    """Keep a crontab as it was, and return where. Raises FleetcheckError."""
    name = f"crontab-{stamp}"
    try:
        return keep(folder, name, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        why = f"the backup cannot be written: {error.strerror}; nothing changed"
        raise FleetcheckError(f"{folder / name}: {why}") from None


def _marks(name: str) -> tuple[str, str]:
    return (
        f'# fleetcheck {name}: begin (take out with "fleetcheck schedule --remove --name {name}")',
        f"# fleetcheck {name}: end",
    )


def _crontab(option: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which("crontab")
    if program is None:
        raise FleetcheckError("there is no crontab program; install cron, or use --systemd")
    try:
        return subprocess.run(
            [program, option], input=text, capture_output=True, encoding="utf-8", errors="surrogateescape",
            check=False, timeout=SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FleetcheckError(f"crontab: {error}") from None
