"""The formats of a run: a name, the module that renders it, and what such a file is. Light: ``--help`` imports it.

A format is one module with ``render(run: Run) -> str``; the table and the formats of :data:`CARRIES` take more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetcheck.run import Run

MODULES: Mapping[str, str] = {
    "table": "fleetcheck.report.table",
    "json": "fleetcheck.report.json",
    "jsonl": "fleetcheck.report.jsonl",
    "csv": "fleetcheck.report.csv",
    "markdown": "fleetcheck.report.markdown",
    "junit": "fleetcheck.report.junit",
    "prometheus": "fleetcheck.report.prometheus",
    "nagios": "fleetcheck.report.nagios",
    "html": "fleetcheck.report.html",
}
FORMATS = tuple(MODULES)
STREAMED = frozenset({"jsonl"})
"""Formats that standard output gets line by line, as hosts end."""
CARRIES = frozenset({"prometheus"})
"""Formats whose file outlives a run: the next is handed what it held, and an interrupted run leaves it alone."""

PIECES = frozenset({"json"})
"""Formats whose module also has ``pieces(run: Run) -> Iterator[str]``."""


@dataclass(frozen=True, slots=True)
class View:
    """How to show a run: the table's choices, and what the file held before (:data:`CARRIES` alone reads it).

    ``width`` is in terminal columns, 0 where nothing is to be shortened; no ``columns`` means the usual ones.
    """

    wide: bool = False
    width: int = 0
    colour: bool = False
    columns: tuple[str, ...] = ()
    earlier: str = ""


def render(run: Run, name: str, view: View = View()) -> str:
    """Return the run in one of :data:`FORMATS`, as text with a line end."""
    return "".join(pieces(run, name, view))


def pieces(run: Run, name: str, view: View = View()) -> Iterator[str]:
    """Yield the text of :func:`render` piece by piece, where the format can be made so."""
    module = import_module(MODULES[name])
    if name == "table":
        yield module.render(run, wide=view.wide, width=view.width, colour=view.colour, columns=view.columns)
    elif name in CARRIES:
        yield module.render(run, view.earlier)
    elif name in PIECES:
        yield from module.pieces(run)
    else:
        yield module.render(run)
