"""``fleetcheck init``: a first inventory, from names or from the Host entries of an ssh config."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from fleetcheck.cli.output import emit
from fleetcheck.errors import InputError, OutputError, Problem

HEAD = """\
# The hosts to audit. Try it:  fleetcheck hosts -i {path}
# Then look at them:           fleetcheck audit -i {path}
# How to reach a host is left to your ssh config; the keys address, port, user, identity_file and proxy_jump of a
# group or a host win over it. No secret belongs in here.
"""
GROUP = """\
groups:
  {group}:
    hosts: {hosts}
    # Python environments to look at, by path or glob. Without this line: those that processes serve from, and
    # those in the usual places.
    # venvs: [/opt/venvs/serve, running]
    #
    # What every host should be like. `fleetcheck baseline HOST -i {path}` writes this from a host that is good.
    # expect:
    #   gpus: 8
    #   driver: ">=580.95.05"
    #   flashinfer: ">=0.6.17"
"""
TAIL = """\
#
# Findings that are accepted, and hosts to leave alone, each until a day:
# waivers:
#   - {{rule: gpu-count, hosts: {first}, reason: one board in repair, until: {year}-12-31}}
# maintenance:
#   - {{hosts: {first}, reason: reinstall, until: {year}-12-31}}
"""


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--ssh-config", "config", metavar="FILE",
    help="Take the Host entries of an ssh config, such as ~/.ssh/config, that NAMEs match.",
)  # fmt: skip
@click.option("--group", default="gpus", show_default=True, help="The name of the group that is written.")
@click.option("-o", "--output", metavar="PATH", help="Write a new file instead of standard output.")
def command(names: tuple[str, ...], config: str | None, group: str, output: str | None) -> None:
    """Write a first inventory, with comments. Nothing is contacted.

    NAMEs are host names or node sets (gpu[01-16].lab). With --ssh-config they are names or globs ('gpu*') over the
    Host entries of that file, so that not every machine of yours becomes a GPU host.
    """
    if not names:
        raise click.UsageError("Name the hosts, such as 'gpu[01-16].lab', or a glob with --ssh-config.")
    text = written(from_config(config, names) if config is not None else from_names(names), group, output)
    if output is None:
        emit(text)
    else:
        _write(Path(output), text)


def from_names(names: Sequence[str]) -> list[str]:
    """Return the host names that node sets stand for. Raises InputError for each that is none."""
    from fleetcheck.inventory.nodes import expand

    hosts: list[str] = []
    problems: list[Problem] = []
    for name in names:
        try:
            hosts += expand(name)
        except ValueError as error:
            problems.append(Problem("init", None, str(error)))
    if problems:
        raise InputError(problems)
    return list(dict.fromkeys(hosts))


def from_config(config: str, patterns: Sequence[str]) -> list[str]:
    """Return the Host entries of an ssh config that match. Raises InputError where a pattern matches none."""
    from fleetcheck.inventory.model import Inventory, Target
    from fleetcheck.inventory.selection import select
    from fleetcheck.inventory.source import read_path
    from fleetcheck.inventory.ssh_config import Reader

    problems: list[Problem] = []
    warnings: list[Problem] = []
    reader = Reader(problems, warnings)
    path = Path(config).expanduser()
    for text in read_path(path, problems):
        reader.read(text)
    if problems:
        raise InputError(problems)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if not reader.names:
        raise InputError([Problem(str(path), None, "it has no Host entry without wildcards")])
    known = Inventory(source=str(path), targets=tuple(Target(name=name) for name in reader.names))
    return [target.name for target in select(known, patterns)]


def written(hosts: Sequence[str], group: str, output: str | None) -> str:
    """Return the inventory. Raises InputError where the group cannot have its name."""
    import io
    from datetime import UTC, datetime

    from fleetcheck.folding import fold
    from fleetcheck.inventory.load import load

    path = output if output is not None and re.fullmatch(r"[\w./-]+", output) else "inventory.yaml"
    year = datetime.now(UTC).year + 1
    text = HEAD.format(path=path) + GROUP.format(group=group, hosts=_scalar(fold(hosts)), path=path)
    text += TAIL.format(first=_scalar(hosts[0]), year=year)
    load("-", stdin=io.StringIO(text))  # what is written is an inventory, or it is not written
    return text


def _scalar(value: str) -> str:
    import json

    return value if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", value) else json.dumps(value)


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise OutputError(f"{path}: is there already, and is left as it is") from None
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
