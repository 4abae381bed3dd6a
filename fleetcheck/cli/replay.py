"""``fleetcheck replay``: judge recorded evidence with the parsers and rules of this version. No SSH, no Fabric."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from fleetcheck.cli.options import Session, Show, fail_on_option, show_options
from fleetcheck.cli.output import Outputs, Progress, prepare, watch


@click.command()
@click.argument("path", metavar="EVIDENCE")
@show_options("json", "table")
@fail_on_option(None, " Without it, as in the recorded run.")
@click.pass_obj
def command(session: Session, /, path: str, fail_on: str | None, **options: Any) -> int:
    """Judge recorded evidence again, without SSH.

    EVIDENCE is a file that "audit --output evidence:PATH" wrote. Its hosts are judged by the parsers and rules of
    the installed version, with the expectations and waivers that were recorded; exit codes are those of audit.
    """
    show = Show.take(options)
    from fleetcheck import recording
    from fleetcheck.judge import pipeline
    from fleetcheck.run import exit_code

    prepare(session)
    recorded = recording.read(path)
    policy = recorded.policy
    if fail_on is not None:
        policy = replace(policy, fail_on=fail_on)  # type: ignore[arg-type]  # click checked the choice
    with Outputs(show) as outputs:
        events = pipeline(recorded.targets, recorded.looks(), recorded.info, policy, recorded.end)
        run = watch(events, Progress(session, show))
        outputs.finish(run)
        return exit_code(run)
