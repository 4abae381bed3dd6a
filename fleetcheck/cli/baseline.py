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

    After a look now, or with --run and a file of evidence, it is a whole inventory: how the hosts are reached is
    written too. A run of json, jsonl or the history does not hold that (connection, address, port, user and the
    like): take it over from your inventory, into which expect and venvs are pasted.
    """
    if not hosts:
        raise click.UsageError("Name the hosts whose state is good.")
    from fleetcheck import baseline
    from fleetcheck.inventory.shape import NAME

    if group == "all" or not NAME.fullmatch(group):
        raise click.UsageError(f"{group!r} is no name for a group.")
    again = given(options)
    gathered = gather(session, hosts, options)
    text = baseline.render(
        gathered.hosts, run=gathered.run.run.id, group=group, warnings=[*doubts(gathered), *again],
        targets=gathered.targets, findings=gathered.run.findings,
    )  # fmt: skip
    emit(text)


def given(options: dict[str, Any]) -> list[str]:
    """Return a line on the options that the look needed and an inventory does not hold."""
    import shlex

    words = ["--ssh-config", options["ssh_config"]] if options["ssh_config"] is not None else []
    for path in options["known_hosts"]:
        words += ["--known-hosts", str(path)]
    return [f"The look had {shlex.join(words)}; give audit the same."] if words and not options["stored"] else []


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
