"""How the table's rows fit a width: what is shortened first, and what is left out at last."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from fleetcheck.report.nodes import fold, wrap
from fleetcheck.report.rows import MORE, USUAL, Entry, Line
from fleetcheck.report.text import cells, clean, paint, tail

GAP = 2
_PATH_LEAST = 11
_PATH_ROOMY = 36
"""What holds ``…/site-packages/flashinfer/data/csrc``."""
_HOST_LEAST, _HOST_MOST = 16, 40
_HOST_LINES = 3
"""How many lines of names stand in a row; more have a place of their own below."""
_HOST_UNBROKEN = 400
"""As much as three such lines hold at the widest, for a table without a width."""
_ALIKE: Mapping[str, Callable[[Line], str]] = {
    "VENV": lambda line: line.venv, "LINK": lambda line: line.link_short, "DRIVER": lambda line: line.driver,
}  # fmt: skip
"""Columns that are said once where they say one thing of all hosts."""
_WRAPPED = {"GPUS": 8, "FLASHINFER": 8, "CSRC": 8, "FUSION": 11}
"""The columns whose words take several lines at last, and in how many columns of the screen."""
_VERDICT = 19
_HEADERS = {"FLASHINFER": "FLASH-\nINFER"}


class Level(NamedTuple):
    """How much a table shows; each level shows less than the one before it."""

    left_out: tuple[str, ...] = ()
    short: bool = True
    verdict: Literal["long", "middle"] = "middle"
    csrc_path: Literal["all", "moved", "none"] = "moved"
    roomy: bool = False
    """Whether it is for tables alone in which the ends of the paths that count stay readable."""
    wrapped: bool = False
    """Whether cells of several words take a line for each."""
    split: bool = False
    """Whether a header does so too."""


def levels(alike: Sequence[str]) -> Iterator[Level]:
    """Yield what can be shown, from all on. ``alike`` are columns that one line below the table tells as well.

    The gravest rule's name goes last: a row without it looks like that of a healthy host.
    """
    venv = tuple(name for name in alike if name == "VENV")
    told = tuple(alike)
    # The link is shown where the paths stay readable beside it: they tell which sources are wrong.
    yield Level(short=False, verdict="long", csrc_path="all", roomy=True)
    yield Level(verdict="long", csrc_path="all", roomy=True)
    yield Level(venv, verdict="long", csrc_path="all", roomy=True)
    yield Level(venv, verdict="long", roomy=True)
    yield Level(told, verdict="long", roomy=True)
    yield Level(told, roomy=True)
    yield Level(told)
    narrow: Sequence[tuple[Literal["moved", "none"], bool, tuple[str, ...]]] = (
        ("moved", False, ()), ("moved", True, ()), ("none", True, ()),
        ("moved", False, ("DRIVER",)), ("moved", True, ("DRIVER",)), ("none", True, ("DRIVER",)),
        ("none", True, ("DRIVER", "FLASHINFER")), ("none", True, ("DRIVER", "FLASHINFER", "FUSION")),
        ("none", True, ("DRIVER", "FLASHINFER", "FUSION", "VENV")),
    )  # fmt: skip
    for csrc_path, wrapped, names in narrow:
        level = Level(tuple(dict.fromkeys((*told, "LINK", *names))), csrc_path=csrc_path, wrapped=wrapped)
        yield level
        if wrapped and "FLASHINFER" not in names:
            yield level._replace(split=True)


class Many(NamedTuple):
    """Hosts that had no room in their row: the mark that stands there, and whose they are."""

    mark: str
    entry: Entry


class Fitted(NamedTuple):
    """A table that fits, or comes as near as it can.

    ``left_out`` are the columns that had no room, ``said`` those of them that say one thing of all hosts, with it
    (empty: nothing is known of any), and ``many`` the hosts that are named below.
    """

    header: list[str]
    rows: list[list[str]]
    left_out: tuple[str, ...]
    said: dict[str, str]
    many: list[Many]


def fit(found: Sequence[Entry], width: int, colour: bool, columns: Sequence[str] = USUAL) -> Fitted:
    """Return the table in ``width`` columns; 0 means that there is no limit and nothing is shortened.

    A column that was asked for is never left out.
    """
    said = _said(found) if tuple(columns) == USUAL else {}
    tried: list[Level] = list(levels(tuple(said)))
    if tuple(columns) != USUAL:
        tried = list(dict.fromkeys(level._replace(left_out=(), split=False) for level in tried))
    for level in tried:
        hosts, many = _hosts(found, width, level)
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
            row["VERDICT"] = "\n".join(paint(part, line.role, colour) for part in row["VERDICT"].split("\n"))
            rows.append([row[name] for name in columns if name not in level.left_out])
    header = [_header(name, level) for name in columns if name not in level.left_out]
    told = {name: text for name, text in said.items() if name in level.left_out}
    return Fitted(header, rows, tuple(name for name in level.left_out if name not in told), told, many)


def _said(found: Sequence[Entry]) -> dict[str, str]:
    """Return the columns that say one thing of all hosts of which they say anything, with what they say."""
    said = {}
    for name in _ALIKE:
        texts = {_ALIKE[name](line) for entry in found for line in entry.lines} - {"-", ""}
        if len(texts) <= 1:
            said[name] = next(iter(texts), "")
    return said


def _hosts(found: Sequence[Entry], width: int, level: Level) -> tuple[list[list[str]], list[Many]]:
    """Return the lines of each entry's HOST cell, and the entries whose names have no room there."""
    room = _HOST_LEAST if level.wrapped else max(_HOST_LEAST, min(_HOST_MOST, width // 4))
    hosts: list[list[str]] = []
    many: list[Many] = []
    for entry in found:
        lines = _host_cell(entry, room if width else _HOST_UNBROKEN)
        if len(lines) > (_HOST_LINES if width else 1):
            more = f"+{len(entry.hosts) - 1}"
            if entry.seen:
                many.append(Many(f"[{len(many) + 1}]", entry))
                lines = [clean(entry.hosts[0]), f"{more} {many[-1].mark}"]
            else:
                lines = [clean(entry.hosts[0]), f"{more}, see below"]
            lines = lines if width else [" ".join(lines)]
        hosts.append(lines)
    return hosts, many


def _host_cell(entry: Entry, room: int) -> list[str]:
    count = f" ({len(entry.hosts)})" if len(entry.hosts) > 1 else ""
    parts = wrap(fold(entry.hosts), room)
    if count and cells(parts[-1] + count) > max(room, *map(cells, parts)):
        return [*parts, count.strip()]
    return [*parts[:-1], parts[-1] + count]


def _header(name: str, level: Level) -> str:
    return _HEADERS.get(name, name) if level.split else name


def _cells(line: Line, level: Level, columns: Sequence[str]) -> dict[str, str]:
    row = {
        "GPUS": line.gpus_short if level.short else line.gpus,
        "LINK": line.link_short if level.short else line.link,
        "DRIVER": line.driver,
        "VENV": line.venv,
        "FLASHINFER": line.flashinfer,
        "CSRC": line.csrc,
        "FUSION": line.fusion_short if level.short else line.fusion,
        "VERDICT": line.verdict if level.verdict == "long" else line.verdict_middle,
    }
    if level.wrapped:
        row |= {name: _lined(row[name], room) for name, room in _WRAPPED.items()}
        # A rule's name stays whole, so that it can be looked up.
        row["VERDICT"] = _lined(row["VERDICT"], _VERDICT, hyphens=False)
    row |= zip((name for name in columns if name in MORE), line.more, strict=True)
    return {name: text for name, text in row.items() if name in columns and name not in level.left_out}


def _csrc_cell(line: Line, level: Level, room: int) -> str:
    if not line.csrc_path or level.csrc_path == "none" or (level.csrc_path != "all" and not line.moved):
        return _lined(line.csrc, _WRAPPED["CSRC"]) if level.wrapped else line.csrc
    return f"{line.csrc} {tail(line.csrc_path, max(1, room - len(line.csrc) - 1))}"


def _lined(text: str, room: int, *, hyphens: bool = True) -> str:
    """Return a cell broken at its spaces and hyphens into lines of a room; a longer word stays whole."""
    return "\n".join(textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=hyphens)) or text


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
            widths[name] = max(widths.get(name, _widest(_header(name, level))), _widest(text))
    state = widths.get("CSRC", 0)
    fixed = sum(size for name, size in widths.items() if name not in ("VENV", "CSRC"))
    room = width - fixed - GAP * (len(widths) - 1)
    venv = max(venv, len("VENV")) if "VENV" in widths else 0
    csrc = max(csrc, state) if "CSRC" in widths else 0
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
