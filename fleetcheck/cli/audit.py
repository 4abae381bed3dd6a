"""``fleetcheck audit``: look at hosts over SSH and judge them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.options import Output, Session, Show, fail_on_option, show_options
from fleetcheck.cli.output import Outputs, Progress, prepare, watch
from fleetcheck.errors import InputError, OutputError, Problem

if TYPE_CHECKING:
    from fleetcheck.agent.evidence import Evidence
    from fleetcheck.inventory.model import Target
    from fleetcheck.judge import Policy
    from fleetcheck.recording import Writer
    from fleetcheck.remote.settings import Settings
    from fleetcheck.run import Run

LIMITS = ("connect", "banner", "auth", "channel", "smi", "host", "run")


class LimitType(click.ParamType[Any]):
    """``NAME=SECONDS``."""

    name = "name=seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Split and check a limit. Fails where the name is unknown or the seconds are not above 0."""
        if isinstance(value, tuple):
            return value
        name, _, seconds = str(value).partition("=")
        if name not in LIMITS:
            self.fail(f"{name!r} is not a limit; limits are {', '.join(LIMITS)}", param, ctx)
        try:
            limit = float(seconds)
        except ValueError:
            limit = -1.0
        if not 0 < limit < 1e9:
            self.fail(f"{value!r}: seconds must be a number above 0", param, ctx)
        return name, limit


@click.command()
@click.argument("hosts", nargs=-1)
@click.option("-i", "--inventory", metavar="INV", help="Inventory: a file, a folder, - or names.")
@show_options("json", "table", "evidence")
@fail_on_option("error")
@click.option("--workers", type=click.IntRange(1, 1024), help="Hosts looked at side by side.")
@click.option(
    "--limit",
    "limits",
    type=LimitType(),
    multiple=True,
    metavar="NAME=SECONDS",
    help=f"Change a limit: {', '.join(LIMITS)}. Repeatable.",
)
@click.option(
    "--accept-new", is_flag=True, help="Record the key of a host never seen before. A changed key is refused."
)
@click.option(
    "--ssh-config", metavar="FILE", help="Read this ssh config instead of the user's; none reads no config."
)
@click.option(
    "--known-hosts",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Trust the host keys of this file instead of the configured ones. Repeatable.",
)
@click.pass_obj
def command(
    session: Session,
    /,
    hosts: tuple[str, ...],
    inventory: str | None,
    fail_on: str,
    limits: tuple[tuple[str, float], ...],
    **options: Any,
) -> int:
    """Look at hosts over SSH and judge them.

    HOSTS are names, node sets (gpu[01-16].lab), groups or patterns, as in "fleetcheck hosts"; without any, all.

    The audit changes nothing on a host. Exit codes: 0 all ok; 1 findings; 2 fleetcheck could not do its work;
    3 some hosts not checked; 4 both 1 and 3; 130 interrupted.
    """  # fmt: skip
    show = Show.take(options)
    from fleetcheck.inventory.load import load
    from fleetcheck.inventory.selection import select
    from fleetcheck.judge import Policy
    from fleetcheck.run import exit_code

    loaded = load(inventory)
    targets = select(loaded, hosts)
    policy = Policy.of(loaded, fail_on)  # type: ignore[arg-type]  # click checked the choice
    settings = _settings(dict(limits), options)
    return exit_code(watched(session, show, targets, source=loaded.source, policy=policy, settings=settings))


def _settings(limits: dict[str, float], options: dict[str, Any]) -> Settings:
    from fleetcheck.remote.settings import NO_CONFIG, Limits, Settings

    chosen: dict[str, Any] = {"limits": Limits(**limits), "accept_new": options["accept_new"]}
    if options["workers"] is not None:
        chosen["workers"] = options["workers"]
    if options["ssh_config"] is not None:
        if options["ssh_config"] != NO_CONFIG and not Path(options["ssh_config"]).is_file():
            raise InputError([Problem("--ssh-config", None, f"{options['ssh_config']} is not a file")])
        chosen["ssh_config"] = options["ssh_config"]
    if options["known_hosts"]:
        chosen["known_hosts"] = tuple(str(path) for path in options["known_hosts"])
    return Settings(**chosen)


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
        run = watch(events, Progress(session, show))
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
