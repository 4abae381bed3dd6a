"""``fleetcheck baseline``: the expectations that good hosts meet, ready to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fleetcheck.cli.gather import gather, gather_options
from fleetcheck.cli.inventory import hosts_argument
from fleetcheck.cli.options import Session
from fleetcheck.cli.output import emit

if TYPE_CHECKING:
    from fleetcheck.cli.gather import Gathered


@click.command()
@hosts_argument(metavar="HOST...")
@click.option("--group", default="baseline", show_default=True, help="The name of the group that is written.")
@gather_options
@click.pass_obj
def command(session: Session, /, hosts: tuple[str, ...], group: str, **options: Any) -> None:
    """Write the expectations that good hosts meet, ready to paste into an inventory.

    Of several hosts it is what they agree in; what they differ in is a comment. HOST is a name or a pattern as in
    "fleetcheck hosts". Audited against what this writes, the same hosts show no new finding until they change.
    """
    if not hosts:
        raise click.UsageError("Name the hosts whose state is good.")
    from fleetcheck import baseline
    from fleetcheck.inventory.shape import NAME

    if group == "all" or not NAME.fullmatch(group):
        raise click.UsageError(f"{group!r} is no name for a group.")
    gathered = gather(session, hosts, options)
    emit(baseline.render(gathered.hosts, run=gathered.run.run.id, group=group, warnings=doubts(gathered)))


def doubts(gathered: Gathered) -> list[str]:
    """Return a line for each host that is not in good order, since a baseline makes its state the standard."""
    from fleetcheck.rules.finding import rank

    lines = []
    for host in gathered.hosts:
        grave = [
            finding.rule
            for finding in gathered.run.findings
            if finding.host == host.name and not finding.waived and rank(finding.severity) > 0
        ]
        if grave:
            lines.append(f"Not in good order: {host.name} has {', '.join(dict.fromkeys(grave))}.")
    return lines
