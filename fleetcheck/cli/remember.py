"""An audit with a memory: it is stored, compared with earlier ones, and told as its conduct asks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from fleetcheck.cli.memory import Conduct, Memory, aside, cut_line, identity
from fleetcheck.cli.options import Session, Show
from fleetcheck.cli.output import Outputs, Progress, code, emit
from fleetcheck.errors import OutputError

if TYPE_CHECKING:
    from fleetcheck.cli.logfile import LogFile
    from fleetcheck.inventory.model import Target
    from fleetcheck.judge import Policy
    from fleetcheck.remote.settings import Settings
    from fleetcheck.run import Run


def audited(
    session: Session, show: Show, targets: Sequence[Target], *, source: str, policy: Policy, settings: Settings,
    conduct: Conduct,
) -> tuple[Run | None, int]:  # fmt: skip
    """Audit, store and tell; return the run (None: another one held the lock) and the exit code.

    Raises OutputError when all is done that can be done, and something of it failed.
    """
    from fleetcheck.cli.audit import watched
    from fleetcheck.cli.cron import Held, limited, say_held, turn
    from fleetcheck.history.store import default_path
    from fleetcheck.judge import new_run

    if conduct.changed and show.format not in ("table", "json"):
        raise click.UsageError("--changed prints text, or data with --format json.")
    info = new_run(source)
    quiet = replace(show, quiet=True, colour="never") if conduct.cron or conduct.changed else show
    with contextlib.ExitStack() as stack:
        if conduct.cron:
            settings = limited(settings)
            try:
                stack.enter_context(turn(conduct.db or default_path(), identity(source), info))
            except Held as why:
                return None, say_held(session.monitored, why)
        log = _log(conduct, stack)
        memory = _memory(conduct, source, stack)
        progress = _progress(session, show, conduct, log)
        told: list[str] = []
        try:
            run = watched(
                session, quiet, targets, source=source, policy=policy, settings=settings, info=info,
                memory=memory, progress=progress,
            )  # fmt: skip
        except Unwritten as error:
            run, told = error.run, str(error).splitlines()
        ended = code(run, show)
        _tell(run, show, conduct, memory, log)
        if log is not None:
            log.say(f"exit code {ended}")
            told += log.failures
        failed = memory.failures if memory is not None else []
        if told or (failed and conduct.relies):
            raise OutputError("\n".join([*told, *failed]))
        for line in failed:
            aside(f"{line}; --no-history does without")
        return run, ended


class Unwritten(OutputError):  # noqa: N818 the audit itself ended well
    """The audit ended, and of what it was to write, something could not be."""

    def __init__(self, text: str, run: Run) -> None:
        super().__init__(text)
        self.run = run


def _tell(run: Run, show: Show, conduct: Conduct, memory: Memory | None, log: LogFile | None) -> None:
    from fleetcheck.judge import now
    from fleetcheck.run import exit_code

    if memory is None:
        return
    if conduct.cron:
        from fleetcheck.cli.cron import Night

        plain = replace(show, outputs=(), colour="never")
        night = Night(memory, plain, remind=conduct.remind, log=log)
        night.speak(run, well=exit_code(run) == 0, report=lambda: _report(run, plain))
        return
    moment = now()
    cut = memory.cut()
    for item in cut:
        aside(cut_line(item, moment))
    if cut:
        memory.cut_told()
    if conduct.changed:
        _changed(run, show, memory)


def _changed(run: Run, show: Show, memory: Memory) -> None:
    from fleetcheck.history.text import render
    from fleetcheck.judge import now

    changes = memory.changes(run, memory.before())
    if show.quiet:
        return
    if changes is None:  # the history failed, which is told: what was seen is shown whole
        _report(run, replace(show, outputs=()))
        return
    if show.format == "json":
        import json

        emit(json.dumps(changes.to_json(), indent=2) + "\n")
    else:
        emit(render(changes, now(), wide=show.wide))


def _report(run: Run, show: Show) -> None:
    with Outputs(show) as outputs:
        outputs.replay(run)
        outputs.finish(run)


def _log(conduct: Conduct, stack: contextlib.ExitStack) -> LogFile | None:
    if conduct.log is None:
        return None
    from fleetcheck.cli.logfile import LogFile

    log = LogFile(conduct.log)
    stack.callback(log.close)
    return log


def _memory(conduct: Conduct, source: str, stack: contextlib.ExitStack) -> Memory | None:
    if not conduct.history:
        return None
    memory = Memory(conduct.db, source, keep=conduct.keep, cron=conduct.cron)
    stack.callback(memory.close)
    return memory


def _progress(session: Session, show: Show, conduct: Conduct, log: LogFile | None) -> Progress:
    seen = replace(show, quiet=show.quiet or conduct.cron)
    if log is None:
        return Progress(session, seen)
    from fleetcheck.cli.logfile import LoggedProgress

    return LoggedProgress(session, seen, log)
