"""How an audit behaves from cron: alone, silent while nothing changes, and never silent about its own failures.

Light: ``--help`` imports it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetcheck.cli.options import Show
from fleetcheck.errors import OutputError

if TYPE_CHECKING:
    from fleetcheck.cli.logfile import LogFile
    from fleetcheck.cli.memory import Memory
    from fleetcheck.history.diff import Changes
    from fleetcheck.history.notice import Notice, Reason
    from fleetcheck.remote.settings import Settings
    from fleetcheck.run import Run, RunInfo

HELD = 75
RUN_LIMIT = 1800.0
"""Seconds that a run from cron may take where no limit is given."""
NAMED = 500
"""Characters of hosts, and of rules, that a line names; the report names all."""
SPEAKS_TEXT = ("table", "markdown")
"""Formats before which a sentence may stand; the others are for programs."""


class Held(Exception):  # noqa: N818 no failure: another run is at work
    """Another run from cron holds the inventory's lock."""


def limited(settings: Settings) -> Settings:
    """Return the settings with the limit of a run from cron, where none was given."""
    if settings.limits.run is not None:
        return settings
    return replace(settings, limits=replace(settings.limits, run=RUN_LIMIT))


def lock_path(db: Path, source: str) -> Path:
    """Return the lock of an inventory, beside the history."""
    from hashlib import blake2b

    name = blake2b(source.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return db.with_name(f"cron-{name}.lock")


@contextlib.contextmanager
def turn(db: Path, source: str, info: RunInfo) -> Iterator[None]:
    """Hold the inventory's lock. Raises Held, which says who has it, and OutputError."""
    import filelock

    path = lock_path(db, source)
    holder = path.with_suffix(".json")
    lock = filelock.FileLock(path, mode=0o600, thread_local=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise Held(f"{source}: {held_by(holder)}; this one did nothing") from None
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
    try:
        # The lock itself is what counts; a disk too full to say who holds it must not stop the night's audit.
        with contextlib.suppress(OSError):
            holder.write_text(json.dumps({"run": info.id, "started": info.started, "pid": os.getpid()}))
        yield
    finally:
        lock.release()


def held_by(holder: Path) -> str:
    """Return who holds a lock, as far as it said."""
    from fleetcheck.report.text import clean

    try:
        said = json.loads(holder.read_text())
        return clean(f"the run {said['run']} (process {said['pid']}) is under way since {said['started']}")
    except (OSError, ValueError, KeyError, TypeError):
        return "another run is under way"


class Night:
    """What one run from cron says when it is over."""

    def __init__(self, memory: Memory, show: Show, *, remind: timedelta | None, log: LogFile | None) -> None:
        self._memory, self._show, self._remind, self._log = memory, show, remind, log

    def speak(self, run: Run, *, well: bool, report: Callable[[], None]) -> None:
        """Print what there is to say, then note that it was said. ``report`` prints the run."""
        from fleetcheck.cli.memory import cut_line
        from fleetcheck.history import notice
        from fleetcheck.judge import now

        moment, memory = now(), self._memory
        cut = memory.cut()
        last = self._last()
        past = memory.past
        base = past.entry(last.base) if past is not None and last is not None else None
        changes = memory.changes(run, base)
        why: Reason | None = "changed"
        if memory.history is not None:
            why = notice.reason(
                last, moment, changed=changes is None or bool(changes), cut=bool(cut), complete=run.run.complete,
                well=well, remind=self._remind,
            )  # fmt: skip
        if self._log is not None:
            self._log.say(f"says: {why or 'nothing'}")
        if why is not None and not self._show.quiet:
            told = [cut_line(item, moment) for item in cut]
            self._print([*told, *_lead(run, why, changes, last, moment)], why, report)
        self._note(last, moment, spoke=why is not None)
        if cut:
            memory.cut_told()

    def _last(self) -> Notice | None:
        from fleetcheck.history import notice

        history = self._memory.history
        return self._memory.guarded(lambda: notice.read(history, self._memory.source)) if history else None

    def _note(self, last: Notice | None, moment: datetime, *, spoke: bool) -> None:
        from fleetcheck.history import notice

        memory = self._memory
        if memory.history is None or memory.number is None or not memory.stored:
            return
        made = notice.spoken(memory.number, moment)
        if not spoke and last is not None:
            made = notice.Notice(memory.number, last.printed)
        history = memory.history
        memory.guarded(lambda: notice.write(history, memory.source, made))

    def _print(self, lines: list[str], why: Reason, report: Callable[[], None]) -> None:
        from fleetcheck.cli.output import emit

        if why == "weekly" or (why == "cut" and self._show.format in SPEAKS_TEXT):
            emit("\n".join(lines) + "\n")
            return
        if self._show.format in SPEAKS_TEXT:
            emit("\n".join([*lines, "", ""]))
        report()


def _lead(
    run: Run, why: Reason, changes: Changes | None, last: Notice | None, moment: datetime
) -> Iterator[str]:  # fmt: skip
    from fleetcheck.history.ages import ago
    from fleetcheck.history.text import render
    from fleetcheck.run import tally

    total, counts = run.summary, tally(run.summary)
    said = ago(last.printed, moment) if last is not None else "never"
    if why == "first":
        yield "First run from cron of this inventory. From now on, only changes are told."
    elif why == "interrupted":
        yield f"The run was interrupted; of the hosts that it came to, none changed: {counts}."
    elif why == "reminder":
        yield f"Reminder: nothing changed (last mail {said}), and this is still open: {'; '.join(_open(run))}."
    elif why == "weekly":
        lead = "All is well" if total.ok + total.maintenance == total.hosts else "Nothing changed"
        yield f"{lead}: {counts}. This line comes once a week and shows that cron is alive (last mail {said})."
    elif why == "changed" and changes is not None:
        yield render(changes, moment).rstrip("\n")


def _open(run: Run) -> Iterator[str]:
    """Yield what is still open: which hosts, and of what; hosts in maintenance are not."""
    from fleetcheck.folding import fold
    from fleetcheck.policy import fails
    from fleetcheck.report.text import clean

    rules: dict[str, dict[str, None]] = {}
    for item in run.findings:
        if item.host is not None and item.cause is None and fails((item,), run.run.fail_on or "error"):
            rules.setdefault(item.host, {})[item.rule] = None
    hosts: dict[tuple[str, str], list[str]] = {}
    for host in run.hosts:
        if host.verdict == "findings":
            why = ", ".join(rules.get(host.name, ())) or "findings"
            hosts.setdefault(("findings", why), []).append(host.name)
        elif host.verdict not in ("ok", "skipped"):
            hosts.setdefault(("not checked", host.verdict), []).append(host.name)
    for (_, why), names in sorted(hosts.items(), key=lambda item: item[0][0] != "findings"):
        yield f"{clean(fold(names), NAMED)} {clean(why, NAMED)}"


def say_held(session_monitored: bool, why: Held) -> int:
    """Say that another run is at work, and return the exit code."""
    if session_monitored:
        from fleetcheck.cli.output import emit
        from fleetcheck.report import nagios

        emit(nagios.unknown(str(why)))
        return nagios.CODES["UNKNOWN"]
    click.echo(f"fleetcheck: {why}", err=True)
    return HELD
