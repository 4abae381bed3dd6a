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
COLUMNS = (
    "host", "gpus", "link", "driver", "venv", "flashinfer", "csrc", "fusion", "verdict", "address", "groups",
    "outcome", "gpu-name", "kernel", "seconds", "python", "torch", "cuda", "nvcc",
)  # fmt: skip
"""Those of :mod:`fleetcheck.report.rows`, which is slow to import."""
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
    return [
        item
        for slug, summary in _rules().items()
        if slug.startswith(incomplete)
        for item in _items([slug], help_=summary)
    ]


def complete_choice(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the rules that go on from the last of ``a,b``."""
    cut = incomplete.rfind(",") + 1
    head, last = incomplete[:cut], incomplete[cut:]
    return [
        item
        for slug, summary in _rules().items()
        if slug.startswith(last)
        for item in _items([head + slug], help_=summary)
    ]


def _rules() -> dict[str, str]:
    """Return what rules there are, as the page of a report ships them: the catalog is slow to import."""
    import json
    from importlib import resources

    text = resources.files("fleetcheck.report").joinpath("page", "rules.json").read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(text)
    return found


def complete_columns(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the columns that go on from the last of ``a,b``, those left out that stand before it."""
    cut = incomplete.rfind(",") + 1
    head, last = incomplete[:cut], incomplete[cut:]
    taken = head.lower().split(",")
    return _items(head + name for name in COLUMNS if name.startswith(last.lower()) and name not in taken)


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return what names a run: a file, or one of the history."""
    # Files first: at their word, the script for bash drops what it was given before.
    return _items([incomplete], "file") + complete_stored(ctx, param, incomplete)


def complete_stored(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runs of the history that go on from what is typed, the newest first."""
    import sqlite3
    from pathlib import Path
    from urllib.parse import quote

    if "latest".startswith(incomplete) and incomplete:
        return _items(["latest"], help_="the latest run")
    path = ctx.params.get("db")
    if not isinstance(path, (str, Path)):
        from platformdirs import user_state_path

        path = user_state_path("fleetcheck") / "history.db"
    question = "SELECT id, started FROM run WHERE state IN ('done', 'interrupted') ORDER BY seq DESC LIMIT ?"
    try:
        # Not History.read, which imports pydantic: its time is felt at every press of the key.
        db = sqlite3.connect(f"file:{quote(str(Path(path).absolute()))}?mode=ro", uri=True, timeout=0.2)
        try:
            runs = db.execute(question, (MOST,)).fetchall()
        finally:
            db.close()
    except (sqlite3.Error, ValueError):
        return []  # none yet, or damaged: the command itself says it
    words = [*([("latest", "the latest run")] if runs and not incomplete else []), *runs]
    return [
        item for id_, at in words if str(id_).startswith(incomplete) for item in _items([str(id_)], help_=str(at))
    ]


def _items(words: Iterable[str], kind: str = "plain", help_: str | None = None) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, type=kind, help=help_) for word in words]
