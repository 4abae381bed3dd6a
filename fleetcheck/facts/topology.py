"""How GPUs are linked: ``nvidia-smi topo -m`` and ``topo -p2p r``, typed.

A cell is taken by its column's heading. NICs stand in the matrix beside GPUs, CPU and NUMA columns follow it, and
the heading carries colour codes also where it is piped (590 to 610).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from fleetcheck.facts import shape

MAX_GPUS = 64
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_GPU = re.compile(r"GPU(\d{1,3})")
# From the longest way to the shortest. SOC is how releases before 2018 wrote SYS, PSB a link inside one board.
_CLASSES = ("SYS", "SOC", "NODE", "PHB", "PXB", "PIX", "PSB")
_CLASS = re.compile(rf"{'|'.join(_CLASSES)}|NV\d{{1,3}}")
_P2P = re.compile(r"OK|CNS|GNS|TNS|NS|DR|U")


def links(call: object) -> dict[str, str]:
    """Return the link class of each pair of GPUs (``{"0-1": "NV18"}``); no pair where nothing came back."""
    return _matrix(call, _CLASS)


def peers(call: object) -> dict[str, str]:
    """Return whether each pair can read each other's memory (``{"0-1": "OK"}``), in ``topo -p2p``'s words."""
    return _matrix(call, _P2P)


def worst(pairs: Mapping[str, str]) -> str | None:
    """Return the longest way that a pair has, of NVLinks the fewest; None where there is no pair."""
    return min(pairs.values(), key=_rank) if pairs else None


def nvlink(pairs: Mapping[str, str]) -> bool | None:
    """Return whether every pair has NVLink, None where there is no pair."""
    return all(word.startswith("NV") for word in pairs.values()) if pairs else None


def _rank(word: str) -> int:
    return _CLASSES.index(word) if word in _CLASSES else 100 + int(word.removeprefix("NV"))


def _matrix(call: object, words: re.Pattern[str]) -> dict[str, str]:
    said = shape.mapping(call)
    if said.get("timed_out") is True or said.get("rc") != 0:
        return {}
    return dict(_pairs(shape.text(said.get("stdout"), shape.SOURCE_LIMIT) or "", words))


@lru_cache(maxsize=64)
def _pairs(text: str, words: re.Pattern[str]) -> Mapping[str, str]:
    """Read a matrix; it names no GPU by what is its own, so that hosts of one kind print the same."""
    columns: list[str] = []
    found: dict[str, str] = {}
    for raw in text.splitlines()[:1000]:
        cells = _ESCAPE.sub("", raw).split()
        if not cells:
            continue
        if not columns:
            # The headings of CPU and NUMA hold blanks, and stand behind those of all devices.
            if _GPU.fullmatch(cells[0]) and (len(cells) < 2 or not _is_cell(cells[1], words)):
                columns = cells
            continue
        row = _GPU.fullmatch(cells[0])
        if row is not None:
            for heading, word in zip(columns, cells[1:], strict=False):
                column = _GPU.fullmatch(heading)
                if column is not None and words.fullmatch(word):
                    _enter(found, int(row.group(1)), int(column.group(1)), word)
    return found


def _is_cell(text: str, words: re.Pattern[str]) -> bool:
    return text == "X" or words.fullmatch(text) is not None


def _enter(found: dict[str, str], one: int, other: int, word: str) -> None:
    low, high = min(one, other), max(one, other)
    if low != high and high < MAX_GPUS:
        # A pair stands in the matrix twice; P2P may differ by direction, and then it is not OK.
        name = f"{low}-{high}"
        found[name] = word if found.get(name, "OK") == "OK" else found[name]
