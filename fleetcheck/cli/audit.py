"""``fleetcheck audit``: look at hosts over SSH and judge them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.choice import check, choice_options, fold_option, folded, take
from fleetcheck.cli.options import Output, Session, Show, fail_on_option, show_options
from fleetcheck.cli.output import Outputs, Progress, code, prepare, watch
from fleetcheck.cli.reaching import reach_options, settings
from fleetcheck.errors import OutputError

if TYPE_CHECKING:
    from fleetcheck.agent.evidence import Evidence
    from fleetcheck.inventory.model import Target
    from fleetcheck.judge import Policy
    from fleetcheck.recording import Writer
    from fleetcheck.remote.settings import Settings
    from fleetcheck.run import Run


@click.command()
@click.argument("hosts", nargs=-1)
@click.option("-i", "--inventory", metavar="INV", help="Inventory: a file, a folder, - or names.")
@show_options("evidence")
@fail_on_option("error")
@choice_options()
@fold_option
@reach_options
@click.pass_obj
def command(
    session: Session,
    /,
    hosts: tuple[str, ...],
    inventory: str | None,
    fail_on: str,
    fold: bool,
    **options: Any,
) -> int:
    """Look at hosts over SSH and judge them.

    HOSTS are names, node sets (gpu[01-16].lab), groups or patterns, as in "fleetcheck hosts"; without any, all.

    The audit changes nothing on a host. Exit codes: 0 all ok; 1 findings; 2 fleetcheck could not do its work;
    3 some hosts not checked; 4 both 1 and 3; 130 interrupted. With --format nagios: 0 to 3, as a plugin.
    """  # fmt: skip
    show = Show.take(options)
    choice = take(options)
    from fleetcheck.inventory.load import load
    from fleetcheck.inventory.selection import select
    from fleetcheck.judge import Policy

    loaded = load(inventory)
    targets = select(loaded, hosts)
    check(loaded.source, targets)
    policy = Policy.of(loaded, fail_on, choice)  # type: ignore[arg-type]  # click checked the choice
    run = watched(session, show, targets, source=loaded.source, policy=policy, settings=settings(options))
    if fold:
        folded(run, show)
    return code(run, show)


def watched(
    session: Session, show: Show, targets: Sequence[Target], *, source: str, policy: Policy, settings: Settings
) -> Run:
    """Audit the targets, show the run, write the files, and return the run."""
    from fleetcheck.audit import audit
    from fleetcheck.judge import new_run

    prepare(session)
    info = new_run(source)
    with Outputs(show) as outputs, Recorders(show.outputs) as recorders:
        recorders.begin(info, policy, targets)
        events = audit(targets, policy=policy, settings=settings, info=info, on_evidence=recorders)
        run = watch(events, Progress(session, show), outputs)
        recorders.end(run)
        outputs.failures += recorders.failures
        outputs.finish(run)
        return run


class Recorders:
    """The evidence files of one run. One that fails is given up and told at the end; the audit goes on."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        from fleetcheck.recording import Writer

        self._stack = ExitStack()
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
