"""``fleetcheck replay``: judge recorded evidence with the parsers and rules of this version. No SSH, no Fabric."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import click

from fleetcheck.cli.choice import choice_options, fold_option, folded, take
from fleetcheck.cli.options import Session, Show, fail_on_option, show_options
from fleetcheck.cli.output import Outputs, Progress, code, prepare, spare, watch


@click.command()
@click.argument("path", metavar="EVIDENCE")
@show_options()
@fail_on_option(None, " Without it, as in the recorded run.")
@choice_options(" Without both, as in the recorded run.")
@fold_option
@click.pass_obj
def command(session: Session, /, path: str, fail_on: str | None, fold: bool, **options: Any) -> int:
    """Judge recorded evidence again, without SSH.

    EVIDENCE is a file that "audit --output evidence:PATH" wrote. Its hosts are judged by the parsers and rules of
    the installed version, with the expectations and waivers that were recorded; exit codes are those of audit.
    """
    show = Show.take(options)
    choice = take(options)
    from fleetcheck import recording
    from fleetcheck.errors import InputError, Problem
    from fleetcheck.judge import pipeline

    prepare(session)
    spare(show, path)
    try:
        recorded = recording.read(path)
    except InputError:
        if path == "-" or not holds_run(path):
            raise
        hint = f"is a run, not evidence: fleetcheck report {shlex.quote(path)}"
        raise InputError([Problem(path, None, hint)]) from None
    policy = recorded.policy
    if fail_on is not None:
        policy = replace(policy, fail_on=fail_on)  # type: ignore[arg-type]  # click checked the choice
    if choice is not None:
        policy = replace(policy, choice=choice)
    with Outputs(show) as outputs:
        events = pipeline(recorded.targets, recorded.looks(), recorded.info, policy, recorded.end)
        run = watch(events, Progress(session, show), outputs, session.interrupts)
        outputs.finish(run)
        if fold:
            folded(run, show)
        return code(run, show)


def holds_run(path: str) -> bool:
    """Return whether a file is a run document, which somebody gave in the place of evidence."""
    from fleetcheck.errors import InputError
    from fleetcheck.report.documents import read

    try:
        read(path)
    except InputError:
        return False
    return True
