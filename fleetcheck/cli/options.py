"""Options that several commands share, and the session that they run in. Light: ``--help`` imports it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import click

from fleetcheck.cli.interrupts import Interrupts
from fleetcheck.report.formats import FORMATS

ColourChoice = Literal["auto", "always", "never"]
SEVERITIES = ("info", "warning", "error", "critical")

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(slots=True)
class Session:
    """What holds for one call of the program."""

    debug: bool = False
    monitored: bool = False
    """A monitoring system reads standard output and the exit code (``--format nagios``)."""
    interrupts: Interrupts = field(default_factory=Interrupts)


class ColumnsType(click.ParamType[Any]):
    """``NAME,NAME``: columns of the table."""

    name = "columns"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Split at commas. Fails with the columns that there are where one of the names is none."""
        if isinstance(value, tuple):
            return value
        from fleetcheck.report.rows import MORE, USUAL, chosen

        try:
            return chosen([name.strip() for name in str(value).split(",") if name.strip()])
        except KeyError as error:
            known = ", ".join((*USUAL, *MORE)).lower()
            self.fail(f"{error.args[0].lower()!r} is not a column; columns are {known}", param, ctx)


def _columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from fleetcheck.cli.completion import complete_columns

    return list(complete_columns(ctx, param, incomplete))


class Output(NamedTuple):
    """A file to write: its format, and its path as the user gave it."""

    format: str
    path: Path


class OutputType(click.ParamType[Any]):
    """``FORMAT:PATH``."""

    name = "format:path"

    def __init__(self, formats: tuple[str, ...]) -> None:
        self.formats = formats

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """Split a value at its first colon. Fails where the format is unknown or the path is empty."""
        if isinstance(value, Output):
            return value
        name, colon, path = str(value).partition(":")
        known = ", ".join(self.formats)
        if not colon or not path:
            self.fail(f"{value!r} is not FORMAT:PATH; formats are {known}", param, ctx)
        if name not in self.formats:
            self.fail(f"{name!r} is not a format; formats are {known}", param, ctx)
        if path == "-":
            self.fail("standard output is what --format is for", param, ctx)
        if name == "prometheus" and Path(path).suffix != ".prom" and not _is_stream(path):
            self.fail(f"{path}: node_exporter reads no other files than those that end in .prom", param, ctx)
        return Output(name, Path(path))


def _is_stream(path: str) -> bool:
    """Return whether a path is a pipe or a device: who reads it asks for no name."""
    return Path(path).exists() and not Path(path).is_file()


@dataclass(frozen=True, slots=True)
class Show:
    """How a run is to be shown."""

    format: str
    outputs: tuple[Output, ...]
    wide: bool
    quiet: bool
    colour: ColourChoice
    columns: tuple[str, ...] = ()

    @classmethod
    def take(cls, options: dict[str, Any]) -> Show:
        """Take the options of :func:`show_options` out of a command's keyword arguments."""
        return cls(
            options.pop("format_"),
            tuple(options.pop("outputs")),
            options.pop("wide"),
            options.pop("quiet"),
            options.pop("colour"),
            options.pop("columns") or (),
        )


def show_options(*more: str) -> Callable[[_Command], _Command]:
    """Add the options of :class:`Show` to a command; ``--output`` may write every format, and ``more``."""
    files = (*FORMATS, *more)
    options = (
        click.option(
            "--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True,
            help="What to print on standard output.",
        ),
        click.option(
            "--output", "outputs", type=OutputType(files), multiple=True, metavar="FORMAT:PATH",
            help=f"Also write a file, whole or not at all: {', '.join(files)}. Repeatable.",
        ),
        click.option("--wide", is_flag=True, help="Shorten and fold nothing in the table."),
        click.option(
            "--columns", type=ColumnsType(), metavar="NAME,NAME", shell_complete=_columns,
            help="The table's columns, in this order. HOST and VERDICT are always among them; more than the usual "
            "ones: address, groups, outcome, gpu-name, kernel, seconds, python, torch, cuda, nvcc.",
        ),
        click.option("-q", "--quiet", is_flag=True, help="Print no report and no progress."),
        colour_option("Colour the table."),
    )  # fmt: skip

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def colour_option(what: str) -> Callable[[_Command], _Command]:
    """Add ``--color``, which :func:`coloured` reads."""
    return click.option(
        "--color", "colour", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True,
        help=f"{what} auto follows NO_COLOR, CLICOLOR_FORCE, CLICOLOR and the terminal.",
    )  # fmt: skip


def fail_on_option(default: str | None, more: str = "") -> Callable[[_Command], _Command]:
    """Add ``--fail-on``, the least severity that makes a host's verdict ``findings``."""
    return click.option(
        "--fail-on", type=click.Choice(SEVERITIES), default=default, show_default=default is not None,
        help=f"The least severity that fails a host.{more}",
    )  # fmt: skip


def coloured(choice: ColourChoice, terminal: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether to colour: the option, NO_COLOR, CLICOLOR_FORCE, CLICOLOR, TERM=dumb, then the terminal."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    if environ.get("CLICOLOR") == "0" or environ.get("TERM") == "dumb":
        return False
    return terminal
