"""The reference page ``docs/cli.md``: every command's own help.

Make it again: ``python -m fleetcheck.cli.reference > docs/cli.md``.
"""

from __future__ import annotations

import click

from fleetcheck.cli.main import SUMMARIES, cli

WIDTH = 80
INTRODUCTION = """\
# Commands

Every command's own help. Exit codes are explained in [exit-codes.md](exit-codes.md), the JSON document in
[json.md](json.md). This page is made from the program: `python -m fleetcheck.cli.reference > docs/cli.md`.

Files named by `--output` are written whole or not at all; a path that is not a regular file, such as a FIFO, is
written as it is. Standard output carries the report alone; progress and errors go to standard error. On a terminal
the table fits its width; `COLUMNS` sets another width; in a pipe or a file nothing is shortened.
"""


def page() -> str:
    """Return the page."""
    top = click.Context(cli, info_name="fleetcheck", terminal_width=WIDTH, **cli.context_settings)
    parts = [INTRODUCTION, _section("fleetcheck", cli.get_help(top))]
    for name in SUMMARIES:
        command = cli.get_command(top, name)
        if command is None:
            raise LookupError(name)
        context = click.Context(command, info_name=name, parent=top)
        parts.append(_section(f"fleetcheck {name}", command.get_help(context)))
    return "\n".join(parts)


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    click.echo(page(), nl=False)
