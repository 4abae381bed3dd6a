"""Hosts for commands that work on what is known of them: out of a run, out of evidence, or by a look now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fleetcheck.cli.completion import complete_runs
from fleetcheck.cli.inventory import inventory_options
from fleetcheck.cli.memory import db_option, remembered
from fleetcheck.cli.options import Session, Show
from fleetcheck.cli.reaching import reach_options, settings
from fleetcheck.errors import InputError, Problem

if TYPE_CHECKING:
    from fleetcheck.agent.evidence import Evidence
    from fleetcheck.inventory.model import Target
    from fleetcheck.run import HostResult, Run

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Gathered:
    """A run, the hosts that were named, and their raw evidence where there is any.

    ``targets`` tell how they were reached; None where the run does not hold it.
    """

    run: Run
    hosts: tuple[HostResult, ...]
    looks: Mapping[str, Evidence] = field(default_factory=dict)
    targets: tuple[Target, ...] | None = None


def gather_options(command: _Command) -> _Command:
    """Add the options that :func:`gather` takes."""
    return run_option(db_option(inventory_options(reach_options(command))))


def run_option(command: _Command) -> _Command:
    """Add ``--run``."""
    return click.option(
        "--run", "stored", metavar="RUN", shell_complete=complete_runs,
        help="Take the hosts from a run, and contact nothing: a file of json, jsonl or evidence, or a run of the "
        'history by its id, a beginning of it, or "latest".',
    )(command)  # fmt: skip


def gather(session: Session, names: Sequence[str], options: dict[str, Any]) -> Gathered:
    """Return the named hosts. Raises InputError where one is not there, or was not checked."""
    file, source = options["stored"], options["inventory"]
    if file is not None and source is not None:
        raise click.UsageError("--run and --inventory are two sources; give one.")
    if options["db"] is not None and file is None:
        raise click.UsageError("--db belongs to --run.")
    looks: dict[str, Evidence] = {}
    run, wanted, targets = (
        _recorded(file, options["db"], names, looks)
        if file is not None
        else _looked(session, names, options, looks)
    )
    by_name = {host.name: host for host in run.hosts}
    hosts = tuple(by_name[name] for name in wanted)
    unseen = [host for host in hosts if host.outcome != "checked"]
    if unseen:
        raise InputError([Problem(one.name, None, f"not checked: {one.message or one.outcome}") for one in unseen])
    return Gathered(run, hosts, looks, targets)


_Found = tuple["Run", list[str], tuple["Target", ...] | None]
"""A run, the names of the hosts that are meant, and how the run's hosts are reached where that is known."""


def _recorded(path: str, db: Path | None, names: Sequence[str], looks: dict[str, Evidence]) -> _Found:
    from fleetcheck.inventory.model import Inventory, Target

    run, known = replayed(path, looks) if is_evidence(path) else (remembered(path, db) or _document(path), None)
    targets = tuple(Target(name=host.name, groups=host.groups) for host in run.hosts)
    return run, _named(Inventory(source=path, targets=targets), names), known


def _document(path: str) -> Run:
    from fleetcheck.report.documents import read

    return read(path)


def _looked(session: Session, names: Sequence[str], options: dict[str, Any], looks: dict[str, Evidence]) -> _Found:
    from fleetcheck.audit import audit
    from fleetcheck.cli.inventory import chosen
    from fleetcheck.cli.output import Progress, prepare
    from fleetcheck.judge import Policy
    from fleetcheck.run import Finished

    taken = chosen(options["inventory"], names, execute=options["execute"], reached=True)
    wanted = _named(taken.inventory, names)
    prepare(session)
    progress = Progress(session, Show("table", (), wide=False, quiet=False, colour="never"))
    by_name = {target.name: target for target in taken.targets}
    events = audit(
        [by_name[name] for name in wanted], inventory=taken.inventory.source, policy=Policy.of(taken.inventory),
        settings=settings(options), on_evidence=lambda look: looks.update({look.host: look}),
    )  # fmt: skip
    for event in events:
        progress.see(event)
        if isinstance(event, Finished):
            return event.run, wanted, taken.targets
    raise RuntimeError("the audit ended without a result")


def _named(inventory: Any, names: Sequence[str]) -> list[str]:
    """Return the hosts that each pattern means, in the order of the patterns, each once."""
    from fleetcheck.inventory.selection import select

    return list(dict.fromkeys(target.name for name in names for target in select(inventory, [name])))


def is_evidence(path: str) -> bool:
    """Return whether a file is a recording of evidence, by its first bytes. One that cannot be read is none."""
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(200)
    except OSError:
        return False
    return head.startswith((b"\x1f\x8b", b'{"type":"evidence"'))


def replayed(path: str, looks: dict[str, Evidence]) -> tuple[Run, tuple[Target, ...]]:
    """Return the run that a recording gives by today's rules, and its targets; fills ``looks``.

    Raises InputError where the recording is none.
    """
    from fleetcheck import recording
    from fleetcheck.judge import pipeline
    from fleetcheck.run import Finished

    recorded = recording.read(path)

    def kept() -> Iterator[tuple[Target, Evidence]]:
        for target, look in recorded.looks():
            looks[look.host] = look
            yield target, look

    for event in pipeline(recorded.targets, kept(), recorded.info, recorded.policy, recorded.end):
        if isinstance(event, Finished):
            return event.run, recorded.targets
    raise RuntimeError("the recording ended without a result")
