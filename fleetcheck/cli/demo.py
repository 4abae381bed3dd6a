"""``fleetcheck demo``: real SSH servers on loopback, audited by the code that audits production."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from fleetcheck.cli.options import Session, Show, show_options
from fleetcheck.errors import InputError, Problem


@click.command()
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the hosts' folders in DIR, a new folder."
)
@show_options("evidence")
@click.pass_obj
def command(session: Session, /, keep: Path | None, **options: Any) -> int:
    """Audit a fleet that lives on this machine.

    It needs no GPU, sshd, root or network: each host is a folder behind an SSH server on loopback. Most are broken
    on purpose, so the exit code is 0 where the demo ran, whatever was found, and 130 where it was interrupted.
    """
    show = Show.take(options)
    from fleetcheck.cli.audit import watched
    from fleetcheck.cli.output import code, prepare
    from fleetcheck.demo.fleet import Fleet
    from fleetcheck.judge import Policy

    prepare(session)
    with ExitStack() as stack:
        folder = (
            _kept(keep)
            if keep
            else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleetcheck-demo-")))
        )
        fleet = stack.enter_context(Fleet(folder))
        inventory = fleet.inventory
        policy = Policy.of(inventory)
        run = watched(
            session, show, inventory.targets, source=inventory.source, policy=policy, settings=fleet.settings
        )
        return code(run, show, 0 if run.run.complete else 130)


def _kept(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError([Problem("--keep", None, f"{folder} is not empty")])
    except OSError as error:
        raise InputError([Problem("--keep", None, f"{folder}: {error.strerror}")]) from None
    return folder
