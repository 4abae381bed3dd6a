"""How the table's rows fit a width: what is shortened first, and what is left out at last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fleetcheck.report.nodes import fold, wrap
from fleetcheck.report.rows import MORE, USUAL, Entry, Line
from fleetcheck.report.text import cells, paint, tail

GAP = 2
_PATH_LEAST = 11
_PATH_ROOMY = 36
"""What holds ``…/site-packages/flashinfer/data/csrc``."""


class Level(NamedTuple):
    """How much a table shows; each level shows less than the one before it."""

    short: bool
    verdict: Literal["long", "middle", "short"]
    csrc_path: Literal["all", "moved", "none"]
    left_out: tuple[str, ...]
    roomy: bool = False
    """Whether it is for tables alone in which the ends of the paths that count stay readable."""
    wrapped: bool = False
    """Whether cells of several words take a line for each."""


LEVELS = (
    # The link is shown where the paths stay readable beside it: they tell which sources are wrong.
    Level(False, "long", "all", (), roomy=True),
    Level(True, "long", "all", (), roomy=True),
    Level(False, "long", "all", ("LINK",)),
    Level(True, "long", "all", ("LINK",)),
    Level(True, "middle", "all", ("LINK",)),
    Level(True, "middle", "moved", ("LINK",)),
    Level(True, "middle", "moved", ("LINK", "DRIVER")),
    Level(True, "middle", "none", ("LINK", "DRIVER")),
    Level(True, "short", "moved", ("LINK", "DRIVER")),
    Level(True, "short", "none", ("LINK", "DRIVER")),
    Level(True, "short", "moved", ("LINK", "DRIVER", "FLASHINFER")),
    Level(True, "short", "none", ("LINK", "DRIVER", "FLASHINFER")),
    Level(True, "short", "none", ("LINK", "DRIVER", "FLASHINFER"), wrapped=True),
)


class Fitted(NamedTuple):
    """A table that fits, or comes as near as it can: header, rows of cells, the columns that had no room."""

    header: list[str]
    rows: list[list[str]]
    left_out: tuple[str, ...]


def fit(found: Sequence[Entry], width: int, colour: bool, columns: Sequence[str] = USUAL) -> Fitted:
    """Return the table in ``width`` columns; 0 means that there is no limit and nothing is shortened.

    A column that was asked for is never left out.
    """
    hosts = [_host_cell(entry, width) for entry in found]
    levels: Sequence[Level] = LEVELS
    if tuple(columns) != USUAL:
        kept = [level for level in LEVELS if level.left_out == ("LINK",)]
        levels = [level._replace(left_out=()) for level in kept]
    for level in levels:
        rooms = _rooms(found, hosts, level, width, columns)
        if rooms is not None:
            break
    venv_room, csrc_room = rooms or (_PATH_LEAST, _PATH_LEAST)
    rows = []
    for entry, host in zip(found, hosts, strict=True):
        for line in entry.lines:
            row = _cells(line, level, columns)
            row["HOST"] = "\n".join(host)
            row["VENV"] = tail(line.venv, venv_room)
            row["CSRC"] = _csrc_cell(line, level, csrc_room)
            row["VERDICT"] = paint(row["VERDICT"], line.role, colour)
            rows.append([row[name] for name in columns if name not in level.left_out])
    return Fitted([name for name in columns if name not in level.left_out], rows, level.left_out)


def _host_cell(entry: Entry, width: int) -> list[str]:
    count = f" ({len(entry.hosts)})" if len(entry.hosts) > 1 else ""
    folded = fold(entry.hosts)
    if not width:
        return [folded + count]
    room = max(16, width // 4)
    parts = wrap(folded, room)
    if count and cells(parts[-1] + count) > max(room, *map(cells, parts)):
        return [*parts, count.strip()]
    return [*parts[:-1], parts[-1] + count]


def _cells(line: Line, level: Level, columns: Sequence[str]) -> dict[str, str]:
    row = {
        "GPUS": line.gpus,
        "LINK": line.link_short if level.short else line.link,
        "DRIVER": line.driver,
        "VENV": line.venv,
        "FLASHINFER": line.flashinfer,
        "CSRC": line.csrc,
        "FUSION": line.fusion_short if level.short else line.fusion,
        "VERDICT": {"long": line.verdict, "middle": line.verdict_middle, "short": line.verdict_short}[
            level.verdict
        ],
    }
    if level.wrapped:
        row |= {name: _lined(row[name]) for name in ("GPUS", "CSRC", "FUSION") if name in row}
    row |= zip((name for name in columns if name in MORE), line.more, strict=True)
    return {name: text for name, text in row.items() if name in columns and name not in level.left_out}


def _csrc_cell(line: Line, level: Level, room: int) -> str:
    if not line.csrc_path or level.csrc_path == "none" or (level.csrc_path != "all" and not line.moved):
        return _lined(line.csrc) if level.wrapped else line.csrc
    return f"{line.csrc} {tail(line.csrc_path, max(1, room - len(line.csrc) - 1))}"


def _lined(text: str) -> str:
    """Return a cell with each of its words on a line of its own."""
    return re.sub(r"(?<=,) |(?<=\w-)(?=\w)", "\n", text)


def _widest(text: str) -> int:
    return max(cells(part) for part in text.split("\n"))


def _rooms(
    found: Sequence[Entry], hosts: Sequence[Sequence[str]], level: Level, width: int, columns: Sequence[str]
) -> tuple[int, int] | None:
    """Return the columns that VENV and CSRC get at this level, None where the rest leaves them too few."""
    lines = {line for entry in found for line in entry.lines}
    venv = max((cells(line.venv) for line in lines), default=0)
    csrc = max((_widest(_csrc_cell(line, level, 1 << 30)) for line in lines), default=0)
    if not width:
        return max(venv, 1), max(csrc, 1)
    widths: dict[str, int] = {"HOST": max((cells(part) for host in hosts for part in host), default=4)}
    for line in lines:
        for name, text in _cells(line, level, columns).items():
            widths[name] = max(widths.get(name, len(name)), _widest(text))
    state = widths.get("CSRC", 0)
    fixed = sum(size for name, size in widths.items() if name not in ("VENV", "CSRC"))
    room = width - fixed - GAP * (len(widths) - 1)
    venv, csrc = max(venv, widths.get("VENV", 0) and len("VENV")), max(csrc, state)
    least = _PATH_ROOMY if level.roomy else _PATH_LEAST
    venv_least = min(venv, least)
    csrc_least = min(csrc, state + 1 + least)
    if venv + csrc <= room:
        return venv, csrc
    if venv_least + csrc_least > room:
        return None
    spare = room - venv_least - csrc_least
    more = min(venv - venv_least, (spare + 1) // 2)
    more = max(more, spare - (csrc - csrc_least))
    return venv_least + more, room - venv_least - more
