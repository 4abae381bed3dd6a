"""The inventory as commands take it: options, warnings on standard error, and what only the rules can judge.

Light: ``--help`` imports it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fleetcheck.cli.completion import complete_hosts
from fleetcheck.errors import InputError, Problem

if TYPE_CHECKING:
    from fleetcheck.inventory.load import Loaded
    from fleetcheck.inventory.model import Inventory, Target

USUAL = "Without it, $FLEETCHECK_INVENTORY, then inventory.yaml in the config folder (~/.config/fleetcheck/)."
_Command = TypeVar("_Command", bound=Callable[..., Any])


def inventory_options(command: _Command) -> _Command:
    """Add ``-i`` and ``--inventory-exec``, which :func:`chosen` takes."""
    options = (
        click.option(
            "-i", "--inventory", metavar="INV",
            help=f"Inventory: a file or folder (native, Ansible's, an ssh config), - or names. {USUAL}",
        ),
        click.option(
            "--inventory-exec", "execute", is_flag=True,
            help="Run the inventory where it is an executable, or where a ClusterShell group is a command.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def hosts_argument(name: str = "hosts", metavar: str | None = None) -> Callable[[_Command], _Command]:
    """Return the argument of host patterns, which the shell completes."""
    return click.argument(name, metavar=metavar, nargs=-1, shell_complete=complete_hosts)


@dataclass(frozen=True, slots=True)
class Chosen:
    """An inventory, and what was selected of it."""

    loaded: Loaded
    targets: tuple[Target, ...]

    @property
    def inventory(self) -> Inventory:
        """The whole inventory."""
        return self.loaded.inventory


def chosen(source: str | None, patterns: Sequence[str], *, execute: bool = False, reached: bool = False) -> Chosen:
    """Load an inventory, say its warnings on standard error, and select.

    ``reached``: the hosts are to be looked at, so that those that cannot be are told before. Raises InputError,
    also for a waiver or a level of a rule that does not exist.
    """
    from fleetcheck.inventory.load import read
    from fleetcheck.inventory.names import remember, seen
    from fleetcheck.inventory.selection import select

    try:
        before = seen(source)
        loaded = read(source, execute=execute, unruly=unruly)
        remember(before, loaded.inventory)
        warn(loaded.warnings)
        targets = select(loaded.inventory, patterns)
    except InputError as error:
        forgotten = [] if source is not None else [*files_among(patterns)]
        raise InputError([*error.problems, *forgotten]) from None
    if reached:
        warn(out_of_reach(loaded.inventory.source, targets))
    return Chosen(loaded, targets)


def files_among(patterns: Sequence[str]) -> Iterator[Problem]:
    """Yield a hint for each pattern that is a file: an inventory whose -i was forgotten."""
    from fleetcheck.inventory.wording import shown

    for pattern in patterns:
        if os.path.isfile(pattern):  # noqa: PTH113 a name of any bytes
            yield Problem(shown(pattern), None, f"this is a file; as the inventory: -i {shlex.quote(pattern)}")


def warn(warnings: Sequence[Problem]) -> None:
    """Say warnings on standard error, one line each."""
    from fleetcheck.report.text import clean  # they quote files of unknown origin

    for warning in warnings:
        with contextlib.suppress(OSError):  # standard error may be closed
            click.echo(f"warning: {clean(str(warning), 2000)}", err=True)


def unruly(name: str, wide: bool) -> str:
    """Return what is wrong with the name of a rule, with the nearest; ``wide``: a family or glob is right too."""
    from fleetcheck.inventory.wording import meant, shown
    from fleetcheck.rules.catalog import RULES
    from fleetcheck.rules.choice import named, unknown

    if wide:
        return "" if named(name) else unknown(name)
    return "" if name in RULES else f"no rule is called {shown(name)}{meant(name, tuple(RULES))}"


def out_of_reach(source: str, targets: Sequence[Target]) -> list[Problem]:
    """Return a line for each kind of connection that no audit can make, with its hosts."""
    from fleetcheck.folding import fold

    hosts: dict[str, list[str]] = {}
    for target in targets:
        if target.connection not in ("ssh", "local"):
            hosts.setdefault(target.connection, []).append(target.name)
    return [
        Problem(source, None, f"{fold(names)}: the connection is {kind}; such a host cannot be audited")
        for kind, names in hosts.items()
    ]
