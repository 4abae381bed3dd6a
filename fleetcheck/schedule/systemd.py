"""A systemd service and its timer, as files in a folder of units."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from fleetcheck.errors import FleetcheckError, InputError, Problem
from fleetcheck.schedule.backups import keep, write
from fleetcheck.schedule.job import Job

SECONDS = 30
GRACE = 120.0
"""Seconds between the end of the run's own limit and systemd's: the report is still to be printed and stored."""
SPREAD = "15min"
FIRST_LINE = '# Installed by "fleetcheck schedule --systemd"; "--remove" takes it out.'
VERDICTS = "1 3 4 75"
"""Exit codes that are no failure of the unit: findings, hosts that were not checked, another run at work."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@+\-]+")


def units(job: Job, when: str | None, *, system: bool) -> dict[str, str]:
    """Return the texts of the units by their names. Raises InputError where ``when`` is no time of systemd."""
    when = when or f"*-*-* 03:{job.minute():02}:00"
    _check_time(when)
    online = "Wants=network-online.target\nAfter=network-online.target\n" if system else ""
    known = [*job.environment, *([("HOME", str(Path.home()))] if system else [])]
    environment = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in known)
    command = " ".join(_quoted(word).replace("$", "$$") for word in job.command)
    service = (
        f"{FIRST_LINE}\n[Unit]\nDescription=fleetcheck {job.name}: audit of GPU hosts\n{online}\n"
        f"[Service]\nType=oneshot\nWorkingDirectory={job.folder.replace('%', '%%')}\n{environment}"
        f"ExecStart={command}\nTimeoutStartSec={round(job.limit + GRACE)}\nSuccessExitStatus={VERDICTS}\n"
    )
    timer = (
        f"{FIRST_LINE}\n[Unit]\nDescription=fleetcheck {job.name}: when to audit\n\n[Timer]\nOnCalendar={when}\n"
        f"RandomizedDelaySec={SPREAD}\nPersistent=true\n\n[Install]\nWantedBy=timers.target\n"
    )
    return {f"fleetcheck-{job.name}.service": service, f"fleetcheck-{job.name}.timer": timer}


def default_folder(*, system: bool) -> Path:
    """Return where units of the machine, or of this user, belong."""
    if system:
        return Path("/etc/systemd/system")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def put(folder: Path, made: dict[str, str], backups: Path, stamp: str) -> list[str]:
    """Write the units that differ, and return what was done; what stood there is kept.

    Raises FleetcheckError where one cannot be written: then each is as it was, and no draft is left.
    """
    said = []
    drafts: dict[Path, Path] = {}
    place = folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            path = folder / name
            if path.exists():
                if path.read_text(encoding="utf-8", errors="surrogateescape") == text:
                    continue
                place = backups
                kept = keep(backups, f"{name}-{stamp}", path.read_bytes())
                said.append(f"kept the earlier {name} as {kept}")
                place = folder
            drafts[path] = path.with_name(f".{name}.part")
            write(drafts[path], text.encode("utf-8", "surrogateescape"))
        for path, draft in drafts.items():
            draft.replace(path)
            said.append(f"wrote {path}")
    except OSError as error:
        for draft in drafts.values():
            with contextlib.suppress(OSError):  # it is the first error that counts
                draft.unlink()
        raise FleetcheckError(f"{place}: the units cannot be written: {error.strerror}") from None
    return said


def take(folder: Path, name: str, backups: Path, stamp: str) -> list[str]:
    """Remove the units that were put there, and return what was done. Raises FleetcheckError for other files."""
    said = []
    place = folder
    try:
        for unit in (f"fleetcheck-{name}.timer", f"fleetcheck-{name}.service"):
            path = folder / unit
            if not path.exists():
                continue
            if not path.read_text(encoding="utf-8", errors="surrogateescape").startswith(FIRST_LINE):
                raise FleetcheckError(f"{path}: fleetcheck did not write it; remove it by hand")
            place = backups
            kept = keep(backups, f"{unit}-{stamp}", path.read_bytes())
            said.append(f"kept {unit} as {kept}")
            place = folder
            path.unlink()
            said.append(f"removed {path}")
    except OSError as error:
        raise FleetcheckError(f"{place}: the units cannot be removed: {error.strerror}") from None
    return said


def commands(name: str, *, system: bool, remove: bool) -> list[list[str]]:
    """Return what makes systemd follow: before the files go, or after they came."""
    systemctl = ["systemctl", *([] if system else ["--user"])]
    timer = f"fleetcheck-{name}.timer"
    if remove:
        return [[*systemctl, "disable", "--now", timer], [*systemctl, "daemon-reload"]]
    return [[*systemctl, "daemon-reload"], [*systemctl, "enable", "--now", timer]]


def obey(command: list[str]) -> str | None:
    """Run one command of systemctl; return why it failed, None where it did not."""
    if shutil.which(command[0]) is None:
        return "there is no systemctl"
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def _check_time(when: str) -> None:
    program = shutil.which("systemd-analyze")
    if not when.isprintable():
        raise InputError([Problem("--at", None, "a time of systemd has no line breaks")])
    if program is None:
        return
    done = subprocess.run([program, "calendar", "--", when], capture_output=True, check=False, timeout=SECONDS)
    if done.returncode != 0:
        message = f"{when!r} is not a time of systemd, such as 'Mon..Fri 03:17' or daily"
        raise InputError([Problem("--at", None, message)])


def _quoted(word: str) -> str:
    """Return a word as a unit file takes it: specifiers and quotes escaped."""
    word = word.replace("%", "%%")
    if _PLAIN.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
