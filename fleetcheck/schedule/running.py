"""Whether anything on this machine would run the schedules that are installed, and bring what they say.

In: the user's crontab, folders of units, /proc. Out: checks. Nothing is judged where no schedule is installed.
"""

from __future__ import annotations

import itertools
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fleetcheck.errors import FleetcheckError
from fleetcheck.schedule import crontab, systemd
from fleetcheck.schedule.checks import Check

PROC = Path("/proc")
DAEMONS = ("cron", "crond", "fcron", "busybox crond")
"""Programs that run the crontabs of users; anacron runs those of the system alone."""
GENERATED = Path("/run/systemd/generator")
"""Where systemd-cron, which has no daemon, makes a timer of each line of a crontab."""
BOOTED = Path("/run/systemd/system")
"""Is there where systemd runs, as sd_booted(3) has it."""
PLACES = "/usr/sbin:/usr/lib:/sbin:/usr/local/sbin:/usr/bin:/bin"
"""Where daemons are, and sendmail, which cron calls by its path: the caller's PATH does not count."""
START = "start it: systemctl enable --now cron (crond on Red Hat's), in a container without systemd: cron"
INSTALL = f"install one: apt install cron (dnf install cronie); then {START}"
SECONDS = 10


def checks() -> Iterator[Check]:
    """Yield whether each installed schedule would run, and whether its report would reach anybody."""
    lines: list[crontab.Installed] = []
    if shutil.which("crontab") is not None:
        try:
            lines = list(crontab.installed(crontab.read()))
        except FleetcheckError as error:
            yield Check("schedule", str(error), "make crontab -l work for this user")
            return
    timers = list(_timers())
    if not lines and not timers:
        yield Check("schedule", "none is installed; once one is, doctor also says whether it would be run")
        return
    if lines:
        yield daemon(", ".join(dict.fromkeys(line.name for line in lines)))
        yield from (mail(line) for line in lines)
    yield from (_timer(name, system=system) for name, system in timers)


def installed() -> bool:
    """Return whether a schedule of ours is installed. A crontab that cannot be read holds none."""
    try:
        lines = any(crontab.installed(crontab.read())) if shutil.which("crontab") is not None else False
    except FleetcheckError:
        lines = False
    return lines or any(_timers())


def daemon(names: str, proc: Path = PROC) -> Check:
    """Return whether a program runs that obeys the crontab."""
    said = f"{names} in the crontab"
    found, whole = _processes(proc)
    running = next((name for name in DAEMONS if name in found), None)
    if running is not None:
        return Check("schedule", f"{said}; {running} is running")
    if any(GENERATED.glob("cron-*.timer")):
        return Check("schedule", f"{said}; systemd runs it (systemd-cron)")
    if not whole:
        return Check(
            "schedule", f"{said}; whether cron is running cannot be seen: {proc} shows no other processes"
        )
    there = any(shutil.which(name, path=PLACES) for name in ("cron", "crond", "fcron"))
    return Check(
        "schedule", f"{said}; no cron is running, so that nothing will ever run it", START if there else INSTALL
    )


def mail(line: crontab.Installed, places: str = PLACES) -> Check:
    """Return how the report of a line in the crontab reaches somebody."""
    files = _written(line.line)
    if files:
        return Check("mail", f"{line.name}: the report is written to {', '.join(files)}")
    instead = "let the line write the report: schedule --install -- --output table:FILE"
    if line.mailto == "":
        said = f'{line.name}: MAILTO="" stands before its line: cron throws away what it says'
        return Check("mail", said, f"take MAILTO out, or set it to an address (crontab -e); or {instead}")
    program = shutil.which("sendmail", path=places)
    if program is None:
        said = f"{line.name}: there is no sendmail, through which cron mails what a line says: cron throws it away"
        return Check("mail", said, f"install one (apt install msmtp-mta, or postfix) and set MAILTO; or {instead}")
    return Check("mail", f"{line.name}: cron mails the report to {line.mailto or 'this user'} through {program}")


def _written(line: str) -> list[str]:
    """Return the files of ``--output`` in a line."""
    try:
        words = shlex.split(line.replace("\\%", "%"))
    except ValueError:  # somebody edited it
        return []
    named = [word for option, word in itertools.pairwise(words) if option == "--output"]
    named += [word.removeprefix("--output=") for word in words if word.startswith("--output=")]
    return [word.partition(":")[2] for word in named if word.partition(":")[2]]


def _timers() -> Iterator[tuple[str, bool]]:
    """Yield the schedules that are units of systemd, and whether they are the machine's."""
    for system in (True, False):
        folder = systemd.default_folder(system=system)
        try:
            found = sorted(path.name for path in folder.glob("fleetcheck-*.timer"))
        except OSError:
            found = []
        for name in found:
            yield name, system


def _timer(name: str, *, system: bool) -> Check:
    systemctl = ["systemctl", *([] if system else ["--user"])]
    if not BOOTED.exists() or shutil.which("systemctl") is None:
        return Check("schedule", f"{name}: systemd does not run here, so that nothing will ever start it",
                     "install the schedule without --systemd: cron runs it")  # fmt: skip
    try:
        done = subprocess.run(
            [*systemctl, "is-active", name], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("schedule", f"{name}: {error}", f"make it work: {shlex.join([*systemctl, 'status', name])}")
    if done.returncode != 0:
        said = f"{name}: {' '.join((done.stdout + done.stderr).split())[:200] or 'not active'}"
        return Check("schedule", said, shlex.join([*systemctl, "enable", "--now", name]))
    log = shlex.join(["journalctl", *([] if system else ["--user"]), "-u", name.replace(".timer", ".service")])
    return Check("schedule", f"{name}: active; the journal keeps the report: {log}")


def _processes(proc: Path) -> tuple[set[str], bool]:
    """Return the names of all processes, and whether those of others are seen (see hidepid in proc(5))."""
    found: set[str] = set()
    try:
        entries = [entry for entry in proc.iterdir() if entry.name.isdigit()]
    except OSError:
        return found, False
    whole = False
    for entry in entries:
        try:
            name = (entry / "comm").read_text(errors="replace").strip()
            whole = whole or entry.name == "1"
            if name == "busybox":
                words = (entry / "cmdline").read_bytes().split(b"\0")[:2]
                name = b" ".join(words).decode(errors="replace").rpartition("/")[2]
        except OSError:  # it ended, or is hidden
            continue
        found.add(name)
    return found, whole
