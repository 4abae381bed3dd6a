"""``fleetcheck doctor``: would cron be able to run this audit? Or one host, step by step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.completion import complete_hosts
from fleetcheck.cli.inventory import inventory_options, unruly
from fleetcheck.cli.memory import db_option, identity
from fleetcheck.cli.options import Session
from fleetcheck.cli.output import emit
from fleetcheck.cli.reaching import reach_options, settings

if TYPE_CHECKING:
    from fleetcheck.inventory.model import Inventory
    from fleetcheck.remote.settings import Settings
    from fleetcheck.schedule.checks import Check


@click.command()
@click.argument("host", required=False, shell_complete=complete_hosts)
@inventory_options
@db_option
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="What to print.",
)
@reach_options
@click.pass_obj
def command(
    session: Session, /, *, host: str | None, inventory: str | None, execute: bool, db: Path | None, form: str,
    **options: Any,
) -> int:  # fmt: skip
    """Say whether cron could run an audit, or go through one host step by step.

    Without HOST, everything that a run from cron needs is checked in cron's environment, and every fault says what
    to do; no host is contacted. Where a schedule is installed, doctor also says whether anything would run it, and
    whether its report would reach anybody. With HOST, the look at it is gone through: its name, its keys, what the
    real ssh says, and what the audit gets; there, what only a run from cron would lack is a warning.

    Exit codes: 0 no fault, warnings at most; 1 faults; 2 fleetcheck could not do its work.
    """
    from fleetcheck.cli.output import prepare

    prepare(session)
    if host is not None:
        from fleetcheck.cli.doctor_host import steps

        checks = list(steps(host, inventory, settings(options), execute=execute))
    else:
        checks = list(under_cron(inventory, db, options, execute=execute))
    faults = [one for one in checks if one.fault]
    if form == "json":
        import json

        rows = [
            {"check": one.name, "ok": not one.fault, "warning": one.warns, "said": one.said, "do": one.do}
            for one in checks
        ]
        emit(json.dumps({"schema": "fleetcheck/doctor/1", "checks": rows}, indent=2) + "\n")
    else:
        emit("".join(f"{line}\n" for line in _lines(checks)))
    return 1 if faults else 0


def under_cron(
    source: str | None, db: Path | None, options: dict[str, Any], *, execute: bool
) -> Iterator[Check]:  # fmt: skip
    """Yield the checks, made in the environment that cron gives."""
    from fleetcheck.cli.cron import limited
    from fleetcheck.errors import InputError
    from fleetcheck.history.store import default_path
    from fleetcheck.inventory.load import read
    from fleetcheck.judge import now
    from fleetcheck.schedule import checks, running
    from fleetcheck.schedule.job import cron_environment

    scheduled = list(running.checks())  # as the caller, who alone may ask the own systemd
    path = (db or default_path()).absolute()  # the installed line names it
    environ = cron_environment()
    os.environ.clear()
    os.environ.update(environ)
    chosen = limited(settings(options))
    yield checks.ssh(environ["PATH"])
    name = identity(source or "")
    try:
        inventory = read(source, execute=execute, unruly=unruly).inventory
    except InputError as error:
        do = "correct it; without -i, cron knows only the config folder's: give -i in the scheduled line"
        for problem in error.problems:
            yield checks.Check("inventory", str(problem), do)
    else:
        name = identity(inventory.source)
        yield checks.Check("inventory", f"{inventory.source}: valid, {_hosts(len(inventory.targets))}")
        yield from _reachable(inventory, chosen)
    yield from checks.history(path, name, chosen.limits.run or 0.0, now())
    yield _lock(path, name)
    yield from scheduled


def _reachable(inventory: Inventory, chosen: Settings) -> Iterator[Check]:
    """Yield whether each host has a key that needs nobody, and a known host key; faults alike are one line.

    Hosts in maintenance are named alone: the audit leaves them alone.
    """
    from fleetcheck.cli.doctor_host import resting_now
    from fleetcheck.folding import fold
    from fleetcheck.remote.readiness import SSH, Readiness, Unknown, together
    from fleetcheck.schedule.checks import Check

    readiness = Readiness(chosen)
    resting = resting_now(inventory, inventory.targets)
    for why in dict.fromkeys(resting.values()):
        yield Check("maintenance", f"{fold(name for name in resting if resting[name] == why)}: {why}; left alone")
    targets = [target for target in inventory.targets if target.name not in resting]
    faults: dict[tuple[str, str, str], list[str]] = {}
    strangers: dict[Unknown, tuple[str, str, str]] = {}
    for target in targets:
        for fault in readiness.faults(target):
            told = fault.kind, fault.whole, fault.do
            faults.setdefault(told, []).append(target.name)
            if fault.unknown is not None and fault.gateway is None:
                strangers[fault.unknown] = told
    for group, command in together(strangers):
        if len(group) > 1:  # as keys are folded: one line, and one command
            hosts = [name for one in group for name in faults.pop(strangers[one])]
            told = "known hosts", f"their keys are not in {group[0].files}", f"compare them, then: {command}"
            faults[told] = hosts
    for (name, said, do), hosts in faults.items():
        yield Check(name, f"{fold(hosts)}: {said}", do)
    if not any(target.connection == SSH for target in targets):
        yield Check("key", "no host is reached by ssh, so none is needed")
        return
    for name, well in (("key", "every host has one that needs no agent and no passphrase"),
                       ("known hosts", "the key of every host, and of every gateway, is known")):  # fmt: skip
        if not any(told[0] in (name, "route") for told in faults):
            yield Check(name, well)


def _hosts(count: int) -> str:
    return f"{count} host{'s'[: count != 1]}"


def _lock(db: Path, source: str) -> Check:
    import filelock

    from fleetcheck.cli.cron import held_by, lock_path
    from fleetcheck.schedule.checks import Check

    path = lock_path(db, source)
    if not path.exists():
        return Check("lock", "free")
    try:
        with filelock.FileLock(path, mode=0o600).acquire(timeout=0):
            return Check("lock", "free")
    except filelock.Timeout:
        said = held_by(path.with_suffix(".json"))
        return Check("lock", said, "wait for it; where it hangs, end that process: the lock goes with it")
    except OSError as error:
        return Check("lock", f"{path}: {error.strerror or error}", "make its folder one that you may write to")


def _lines(checks: list[Check]) -> Iterator[str]:
    from fleetcheck.report.text import clean

    for one in checks:
        mark = "FAULT" if one.fault else "warn" if one.warns else "ok"
        yield f"{mark:<6} {one.name}: {clean(one.said, 2000)}"
        if one.do:
            yield f"       {clean(one.do, 2000)}"
