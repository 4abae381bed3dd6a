"""``fleetcheck completion``: the script that a shell reads, and what completes hosts, groups, rules and runs.

Light, and never slow: it runs at every press of the tab key, so that names come from a cache where they can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FLEETCHECK_COMPLETE"
MOST = 1000
"""More words than a screen holds only make the shell slow."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that completes options, hosts, groups and rules.

    \b
    bash:  eval "$(fleetcheck completion bash)"      in ~/.bashrc
    zsh:   eval "$(fleetcheck completion zsh)"       in ~/.zshrc
    fish:  fleetcheck completion fish > ~/.config/fish/completions/fleetcheck.fish

    Hosts and groups come from the inventory of -i, else from the usual one.
    """
    from click.shell_completion import get_completion_class

    from fleetcheck.cli.main import cli
    from fleetcheck.cli.output import emit

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    script = kind(cli, {}, "fleetcheck", VARIABLE)
    # Not source(): that runs a bash to judge its version, and the script may be for another machine's.
    emit(script.source_template % script.source_vars() + "\n")


def complete_hosts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the hosts and groups that go on from what is typed; the last of ``a,!b,&c`` is completed."""
    cut = max(incomplete.rfind(mark) for mark in ",!&") + 1
    head, last = incomplete[:cut], incomplete[cut:]
    if last.startswith(("@", "~")):
        return _items(["@"], "file") if last == "@" else []
    from fleetcheck.errors import FleetcheckError
    from fleetcheck.inventory.names import known

    try:
        hosts, groups = known(ctx.params.get("inventory"), execute=bool(ctx.params.get("execute")))
    except FleetcheckError:
        return []  # a shell has no place for what is wrong; the command itself says it
    words = _items([f"{head}{name}" for name in groups if name.startswith(last)][:MOST], help_="group")
    words += _items(
        [f"{head}{name}" for name in hosts if name.startswith(last)][: MOST - len(words)], help_="host"
    )
    return words + (_items([f"{head}all"], help_="every host") if "all".startswith(last) else [])


def complete_rules(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the rules that go on from what is typed."""
    from fleetcheck.rules.catalog import RULES

    return [
        item
        for rule in RULES.values()
        if rule.slug.startswith(incomplete)
        for item in _items([rule.slug], help_=rule.summary)
    ]


def complete_runs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return what names a run: a file."""
    return _items([incomplete], "file")


def _items(words: Iterable[str], kind: str = "plain", help_: str | None = None) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, type=kind, help=help_) for word in words]
