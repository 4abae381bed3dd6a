"""``fleetcheck schedule``: the crontab line or the systemd units of an audit, printed, installed, taken back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetcheck.cli.inventory import USUAL
from fleetcheck.cli.options import Session
from fleetcheck.cli.output import emit
from fleetcheck.errors import InputError, Problem

if TYPE_CHECKING:
    from fleetcheck.schedule.job import Job


@click.command()
@click.argument("arguments", metavar="[-- AUDIT-ARGUMENTS...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-i", "--inventory", metavar="INV", help=f"Inventory, as audit takes it; not standard input. {USUAL}"
)
@click.option(
    "--at",
    "when",
    metavar="TIME",
    help="When: of cron, such as '17 3 * * *'; with --systemd, a calendar time such as 'Mon..Fri 03:17'. "
    "Without it, once a night, at a minute that is this machine's own.",
)
@click.option("--name", default="audit", show_default=True, help="Several schedules are told apart by it.")
@click.option("--systemd", is_flag=True, help="A systemd service and timer instead of a crontab line.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="With --systemd: the folder of the units. Without it, the machine's for root, else the user's.",
)
@click.option("--install", is_flag=True, help="Install it; what stood there is kept. Twice changes nothing.")
@click.option("--remove", is_flag=True, help="Take out what --install put in, and nothing else.")
@click.pass_obj
def command(
    session: Session, /, *, arguments: tuple[str, ...], inventory: str | None, when: str | None, name: str,
    systemd: bool, folder: Path | None, install: bool, remove: bool,
) -> int:  # fmt: skip
    """Print what runs an audit by the clock: a crontab line, or systemd units.

    What follows -- goes to audit as it is: hosts and options, such as -- rtx6000 --remind 24h. Paths become
    absolute. To see whether it would work from cron, run "fleetcheck doctor".
    """
    del session
    if install and remove:
        raise click.UsageError("--install and --remove are opposites; give one.")
    if folder is not None and not systemd:
        raise click.UsageError("--folder belongs to --systemd.")
    system = os.geteuid() == 0
    if remove:
        return removed(name, folder, systemd=systemd, system=system)
    job = job_of(name, inventory, arguments)
    if systemd:
        return units(job, when, folder, install=install, system=system)
    from fleetcheck.schedule import crontab

    if not install:
        emit(crontab.line(job, when) + "\n")
        return 0
    return changed(name, crontab.block(job, when))


def job_of(name: str, inventory: str | None, arguments: tuple[str, ...]) -> Job:
    """Return the job; its arguments are parsed as audit will parse them. Raises InputError, UsageError."""
    from fleetcheck.cli import audit
    from fleetcheck.cli.cron import RUN_LIMIT
    from fleetcheck.history.store import default_path
    from fleetcheck.inventory import load
    from fleetcheck.inventory.wording import NO_SECRETS, holds_password
    from fleetcheck.schedule.job import Job, absolute, environment, program

    source = absolute(inventory or os.environ.get(load.VARIABLE) or str(load.default_path()))
    words = ["audit", "--cron", "-i", source, *arguments]
    with audit.command.make_context("audit", words[1:]) as context:
        if any(map(holds_password, (source, *context.params["hosts"]))):
            # The crontab would keep it, and cron mail it.
            raise InputError([Problem("schedule", None, f"a host's name holds a password; {NO_SECRETS}")])
        limits = dict(context.params["limits"])
        if context.params["db"] is None:
            words[2:2] = ["--db", str(default_path())]
    return Job(
        name, (*program(), *words), str(Path.cwd()), environment(), limits.get("run", RUN_LIMIT)
    )  # fmt: skip


def changed(name: str, block: str) -> int:
    """Put the block into the crontab, or take it out where it is empty; say what was done."""
    from fleetcheck.schedule import crontab

    before = crontab.read()
    after = crontab.with_block(before, name, block)
    if after == before:
        emit("Nothing to do: the crontab is as it should be.\n")
        if block:
            _warn()
        return 0
    if before:
        emit(f"The crontab as it was: {crontab.backup(_backups(), before, _stamp())}\n")
    crontab.write(after)
    emit(f"Installed in the crontab:\n{block}" if block else f"Taken out of the crontab: {name}\n")
    if block:
        _warn()
    return 0


def _warn() -> None:
    """Say what keeps an installed schedule from running, or its report from reaching anybody."""
    from fleetcheck.schedule import running

    for check in running.checks():
        if check.fault:
            click.echo(f"warning: {check.name}: {check.said}\n         {check.do}", err=True)


def units(job: Job, when: str | None, folder: Path | None, *, install: bool, system: bool) -> int:
    """Print or install the units."""
    from fleetcheck.schedule import systemd

    made = systemd.units(job, when, system=system)
    if not install:
        emit("\n".join(f"# {name}\n{text}" for name, text in made.items()))
        return 0
    said = systemd.put(folder or systemd.default_folder(system=system), made, _backups(), _stamp())
    emit("".join(f"{line}\n" for line in said or ["Nothing to do: the units are as they should be."]))
    _follow(systemd.commands(job.name, system=system, remove=False) if folder is None else [])
    return 0


def removed(name: str, folder: Path | None, *, systemd: bool, system: bool) -> int:
    """Take back what was installed."""
    if not systemd:
        return changed(name, "")
    from fleetcheck.schedule import systemd as manager

    disable, reload = manager.commands(name, system=system, remove=True)
    place = folder or manager.default_folder(system=system)
    if folder is None and (place / f"fleetcheck-{name}.timer").exists():
        _follow([disable])
    said = manager.take(place, name, _backups(), _stamp())
    emit("".join(f"{line}\n" for line in said or ["Nothing to do: there are no such units."]))
    _follow([reload] if folder is None and said else [])
    return 0


def _follow(commands: list[list[str]]) -> None:
    from fleetcheck.schedule import systemd
    from fleetcheck.schedule.job import arguments

    for command in commands:
        failed = systemd.obey(command)
        if failed is not None:
            click.echo(f"fleetcheck: {arguments(command)}: {failed}; run it yourself", err=True)


def _backups() -> Path:
    from fleetcheck.history.store import default_path

    return default_path().parent / "backups"


def _stamp() -> str:
    from fleetcheck.judge import now

    return f"{now():%Y%m%dT%H%M%S.%fZ}"
