"""How the table's rows fit a width: what is shortened first, and what is left out at last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from fleetcheck.report.nodes import fold, wrap
from fleetcheck.report.rows import MORE, USUAL, Entry, Line
from fleetcheck.report.text import cells, paint, tail

GAP = 2
_PATH_LEAST = 11


class Level(NamedTuple):
    """How much a table shows; each level asks for less room than the one before it."""

    short: bool
    verdict: Literal["long", "middle", "short"]
    csrc_path: Literal["all", "moved", "none"]
    left_out: tuple[str, ...]


LEVELS = (
    Level(False, "long", "all", ()),
    Level(True, "long", "all", ()),
    Level(True, "middle", "all", ()),
    Level(True, "middle", "moved", ()),
    Level(True, "middle", "moved", ("DRIVER",)),
    Level(True, "middle", "none", ("DRIVER",)),
    Level(True, "short", "moved", ("DRIVER",)),
    Level(True, "short", "none", ("DRIVER",)),
    Level(True, "short", "moved", ("DRIVER", "FLASHINFER")),
    Level(True, "short", "none", ("DRIVER", "FLASHINFER")),
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
    levels = LEVELS if tuple(columns) == USUAL else [level for level in LEVELS if not level.left_out]
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
    folded = fold(entry.hosts) + count
    return wrap(folded, max(16, width // 4)) if width else [folded]


def _cells(line: Line, level: Level, columns: Sequence[str]) -> dict[str, str]:
    row = {
        "GPUS": line.gpus,
        "DRIVER": line.driver,
        "VENV": line.venv,
        "FLASHINFER": line.flashinfer,
        "CSRC": line.csrc,
        "FUSION": line.fusion_short if level.short else line.fusion,
        "VERDICT": {"long": line.verdict, "middle": line.verdict_middle, "short": line.verdict_short}[
            level.verdict
        ],
    }
    row |= zip((name for name in columns if name in MORE), line.more, strict=True)
    return {name: text for name, text in row.items() if name in columns and name not in level.left_out}


def _csrc_cell(line: Line, level: Level, room: int) -> str:
    if not line.csrc_path or (level.csrc_path != "all" and not line.moved):
        return line.csrc
    if level.csrc_path == "none":
        return line.csrc
    return f"{line.csrc} {tail(line.csrc_path, max(1, room - len(line.csrc) - 1))}"


def _rooms(
    found: Sequence[Entry], hosts: Sequence[Sequence[str]], level: Level, width: int, columns: Sequence[str]
) -> tuple[int, int] | None:
    """Return the columns that VENV and CSRC get at this level, None where the rest leaves them too few."""
    lines = {line for entry in found for line in entry.lines}
    venv = max((cells(line.venv) for line in lines), default=0)
    csrc = max((cells(_csrc_cell(line, level, 1 << 30)) for line in lines), default=0)
    if not width:
        return max(venv, 1), max(csrc, 1)
    widths: dict[str, int] = {"HOST": max((cells(part) for host in hosts for part in host), default=4)}
    for line in lines:
        for name, text in _cells(line, level, columns).items():
            widths[name] = max(widths.get(name, len(name)), cells(text))
    state = widths.get("CSRC", 0)
    fixed = sum(size for name, size in widths.items() if name not in ("VENV", "CSRC"))
    room = width - fixed - GAP * (len(widths) - 1)
    venv, csrc = max(venv, widths.get("VENV", 0) and len("VENV")), max(csrc, state)
    venv_least = min(venv, _PATH_LEAST)
    csrc_least = min(csrc, state + 1 + _PATH_LEAST)
    if venv + csrc <= room:
        return venv, csrc
    if venv_least + csrc_least > room:
        return None
    spare = room - venv_least - csrc_least
    more = min(venv - venv_least, (spare + 1) // 2)
    more = max(more, spare - (csrc - csrc_least))
    return venv_least + more, room - venv_least - more
