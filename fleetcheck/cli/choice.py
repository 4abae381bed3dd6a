"""Options on which rules count, and on folding a run. Light: ``--help`` imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fleetcheck.cli.completion import complete_choice

if TYPE_CHECKING:
    from fleetcheck.cli.options import Show
    from fleetcheck.inventory.model import Target
    from fleetcheck.rules.choice import Choice
    from fleetcheck.run import Run

_Command = TypeVar("_Command", bound=Callable[..., Any])


def choice_options(more: str = "") -> Callable[[_Command], _Command]:
    """Add ``--select`` and ``--ignore`` to a command."""
    what = "a rule, a family such as csrc, or a glob such as gpu-*; several joined by commas. Repeatable."

    def add(command: _Command) -> _Command:
        for name, does in (("--ignore", "Leave out"), ("--select", "Judge by nothing but")):
            option = click.option(
                name, multiple=True, metavar="RULES", help=f"{does} {what}{more}", shell_complete=complete_choice
            )
            command = option(command)
        return command

    return add


def take(options: dict[str, Any]) -> Choice | None:
    """Take the options out of a command's keyword arguments; None where neither was given. Raises InputError."""
    select, ignore = options.pop("select"), options.pop("ignore")
    if not select and not ignore:
        return None
    from fleetcheck.rules.choice import choose

    return choose(select, ignore)


def check(source: str, targets: Iterable[Target]) -> None:
    """Raise InputError where an inventory sets a level for rules that are not there, once for each."""
    from fleetcheck.errors import InputError, Problem
    from fleetcheck.rules.choice import named, unknown

    patterns = dict.fromkeys(pattern for target in targets for pattern in target.rules)
    bad = [pattern for pattern in patterns if not named(pattern)]
    if bad:
        raise InputError([Problem(source, None, f"rules.{one}: {unknown(one)}") for one in bad])


def fold_option(command: _Command) -> _Command:
    """Add ``--fold``."""
    what = "After the table, show what sets hosts apart from the largest group of equal ones, as a diff."
    return click.option("--fold", is_flag=True, help=what)(command)


def folded(run: Run, show: Show) -> None:
    """Print the folded run below the table; other formats are for programs, which fold by themselves."""
    if show.format != "table" or show.quiet:
        return
    import sys

    from fleetcheck.cli.options import coloured
    from fleetcheck.cli.output import emit, is_terminal
    from fleetcheck.differences import fold
    from fleetcheck.report.fold import render

    emit("\n" + render(fold(run.hosts), wide=show.wide, colour=coloured(show.colour, is_terminal(sys.stdout))))
