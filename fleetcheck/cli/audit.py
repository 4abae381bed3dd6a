"""``fleetcheck audit``: look at hosts over SSH and judge them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.choice import check, choice_options, fold_option, folded, take
from fleetcheck.cli.inventory import chosen, hosts_argument, inventory_options
from fleetcheck.cli.memory import Conduct, Memory, memory_options
from fleetcheck.cli.options import Output, Session, Show, fail_on_option, show_options
from fleetcheck.cli.output import Outputs, Progress, prepare, spare, watch
from fleetcheck.cli.reaching import reach_options, settings
from fleetcheck.cli.remember import Unwritten, audited
from fleetcheck.errors import OutputError

if TYPE_CHECKING:
    from fleetcheck.agent.evidence import Evidence
    from fleetcheck.inventory.model import Target
    from fleetcheck.judge import Policy
    from fleetcheck.recording import Writer
    from fleetcheck.remote.settings import Settings
    from fleetcheck.run import Run, RunInfo


@click.command()
@hosts_argument()
@inventory_options
@show_options("evidence")
@fail_on_option("error")
@choice_options()
@fold_option
@memory_options
@reach_options
@click.pass_obj
def command(
    session: Session,
    /,
    *,
    hosts: tuple[str, ...],
    inventory: str | None,
    execute: bool,
    fail_on: str,
    fold: bool,
    **options: Any,
) -> int:
    """Look at hosts over SSH and judge them.

    HOSTS are names, node sets (gpu[01-16].lab), groups or patterns, as in "fleetcheck hosts"; without any, all.

    The audit changes nothing on a host; its run goes into the history, see "fleetcheck history". Exit codes: 0 all
    ok; 1 findings; 2 fleetcheck could not do its work; 3 some hosts not checked; 4 both 1 and 3; 75 another run of
    --cron holds the lock; 130 interrupted. With --format nagios: 0 to 3, as a plugin.
    """  # fmt: skip
    show = Show.take(options)
    choice = take(options)
    conduct = Conduct.take(options)
    spare(show, inventory, conduct.db, conduct.log)
    with _unswept():
        # What a live audit needs beyond the judging, here, so that it is imported while nobody sweeps.
        import fleetcheck.audit
        import fleetcheck.history.store
        import fleetcheck.remote.dial  # noqa: F401
        from fleetcheck.judge import Policy

        taken = chosen(inventory, hosts, execute=execute, reached=True)
        source = taken.inventory.source
        check(source, taken.targets)
        policy = Policy.of(taken.inventory, fail_on, choice)  # type: ignore[arg-type]  # click checked the choice
    run, ended = audited(
        session, show, taken.targets, source=source, policy=policy, settings=settings(options), conduct=conduct
    )
    if fold and run is not None and not conduct.cron and not conduct.changed:
        folded(run, show)
    return ended


@contextlib.contextmanager
def _unswept() -> Iterator[None]:
    """Look for no circles among what is made: 200,000 objects of libraries, all to stay. 50 ms of CPU a start."""
    swept = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if swept:
            gc.enable()


def watched(
    session: Session, show: Show, targets: Sequence[Target], *, source: str, policy: Policy, settings: Settings,
    info: RunInfo | None = None, memory: Memory | None = None, progress: Progress | None = None,
) -> Run:  # fmt: skip
    """Audit the targets, store the run in ``memory``, show it, write the files, and return the run.

    Raises :class:`fleetcheck.cli.remember.Unwritten` where a file or the report could not be written.
    """
    from fleetcheck.audit import audit
    from fleetcheck.judge import new_run
    from fleetcheck.remote.cpus import seated

    prepare(session)
    # What was imported lives as long as the process, and a host makes 10,000 objects: 4 % of the CPU of an audit.
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)
    info = info or new_run(source)
    with Outputs(show) as outputs, Recorders(show.outputs) as recorders, seated():
        recorders.begin(info, policy, targets)
        if memory is not None:
            memory.begin(info)
        progress = progress or Progress(session, show)
        events = audit(
            targets, policy=policy, settings=settings, info=info, on_evidence=recorders, on_begin=progress.begin,
            known=None if memory is None else memory.gpus,
        )  # fmt: skip
        run = watch(events, progress, outputs, session.interrupts)
        if memory is not None:
            memory.end(run)
        recorders.end(run)
        outputs.failures += recorders.failures
        try:
            outputs.finish(run)
        except OutputError as error:
            raise Unwritten(str(error), run) from None
        return run


class Recorders:
    """The evidence files of one run. One that fails is given up and told at the end; the audit goes on."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        from fleetcheck.recording import Writer

        self._stack = contextlib.ExitStack()
        self._writers: list[Writer] = []
        self.failures: list[str] = []
        for output in outputs:
            if output.format == "evidence":
                if output.path.exists() and not output.path.is_file():
                    raise OutputError(f"{output.path}: evidence goes to a regular file")
                self._writers.append(Writer(output.path.resolve()))

    def __enter__(self) -> Recorders:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.abandon()

    def begin(self, info: Any, policy: Policy, targets: Sequence[Target]) -> None:
        """Open the drafts. Raises OutputError where one cannot be: nothing has been looked at yet."""
        for writer in self._writers:
            writer.begin(info, policy, targets)

    def __call__(self, look: Evidence) -> None:
        """Record the evidence of one host."""
        self._each(lambda writer: writer.host(look))

    def end(self, run: Run) -> None:
        """Put the files in their place."""
        self._each(lambda writer: writer.end(run.run.finished or run.run.started, complete=run.run.complete))

    def _each(self, act: Any) -> None:
        for writer in list(self._writers):
            try:
                act(writer)
            except OutputError as error:
                self._writers.remove(writer)
                writer.abandon()
                self.failures.append(str(error))
