"""How the table's rows fit a width: what is shortened first, and what is left out at last."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
_WRAPPED = {"GPUS": 8, "FLASHINFER": 8, "CSRC": 8}
"""The columns whose words take several lines at last, and in how many columns of the screen."""
_FUSION = (16, 13, 11, 9)
"""The same for FUSION: as much of a word on one line as there is room for."""
_GIVING = ("LINK", "DRIVER", "FLASHINFER", "FUSION", "VENV")
"""The columns that can be left out, in this order."""
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
    wrapped: int = 0
    """The columns of the screen in which FUSION's words go over several lines, as others do then; 0: none does."""
    split: bool = False
    """Whether a header does so too."""


def levels(alike: Sequence[str], fired: Collection[str] = ()) -> Iterator[Level]:
    """Yield what can be shown, from all on. ``alike`` are columns that one line below the table tells as well.

    Columns about which a rule ``fired`` are left out after those that tell of no fault. The gravest rule's name
    goes last: a row without it looks like that of a healthy host.
    """
    venv = tuple(name for name in alike if name == "VENV")
    told = tuple(alike)
    # The path of sources that are where they belong says nothing: it is shown where all else has its room.
    # The link is shown where the paths stay readable beside it: they tell which sources are wrong.
    yield Level(short=False, verdict="long", csrc_path="all", roomy=True)
    yield Level(short=False, verdict="long", roomy=True)
    yield Level(venv, short=False, verdict="long", roomy=True)
    if venv:
        yield Level(venv, short=False, verdict="long")
    yield Level(venv, verdict="long", roomy=True)
    yield Level(told, verdict="long", roomy=True)
    yield Level(told, roomy=True)
    yield Level(told)
    giving = sorted((name for name in _GIVING if name not in told), key=lambda name: name in fired)
    first = 1 if giving[:1] == ["LINK"] else 0
    for count in range(first, len(giving) + 1):
        level = Level((*told, *giving[:count]))
        if count - first < 2:
            yield level
            yield level._replace(csrc_path="none")
        for room in _FUSION if "FUSION" not in level.left_out else _FUSION[-1:]:
            yield from _narrow(level._replace(wrapped=room), paths=count - first < 2)


def _narrow(level: Level, *, paths: bool) -> Iterator[Level]:
    for one in [level] * paths + [level._replace(csrc_path="none")]:
        yield one
        if "FLASHINFER" not in one.left_out:
            yield one._replace(split=True)


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


def fit(
    found: Sequence[Entry],
    width: int,
    colour: bool,
    columns: Sequence[str] = USUAL,
    fired: Collection[str] = (),
) -> Fitted:
    """Return the table in ``width`` columns; 0 means that there is no limit and nothing is shortened.

    A column that was asked for is never left out; one about which a rule ``fired`` is after all others.
    """
    said = _said(found) if tuple(columns) == USUAL else {}
    tried: list[Level] = list(levels(tuple(said), fired))
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
        # One name is as long as it is; of several, a set that is longer has a place of its own below.
        longest = max(room, cells(clean(entry.hosts[0])) + 1)
        wide = width and len(entry.hosts) > 1 and max(map(cells, lines)) > longest
        if wide or len(lines) > (_HOST_LINES if width else 1):
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
        row["FUSION"] = _lined(row["FUSION"], level.wrapped)
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
