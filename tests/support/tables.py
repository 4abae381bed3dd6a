"""How a person reads the table back: the cells of its rows, and every host with how it stands."""

from __future__ import annotations

import re
from itertools import takewhile

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from fleetcheck.report import table
from fleetcheck.run import Run


def render(run: Run, width: int = 0, *, wide: bool = False, colour: bool = False) -> str:
    return table.render(run, wide=wide, width=width, colour=colour)


def rows(text: str) -> list[list[str]]:
    """Return the cells of the table's rows, header first; the table is the second block."""
    return [re.split(r" {2,}", line) for line in lines_of(text)]


NOTES = ("Without room", "FUSION with use?", "Alike wherever known", "Known of no host", "[1]")


def lines_of(text: str) -> list[str]:
    """Return the lines of the table before its notes."""
    return list(takewhile(lambda line: not line.startswith(NOTES), text.split("\n\n")[1].splitlines()))


def told(text: str) -> dict[str, str]:
    """Return how each host of the table stands, wherever its name is, in cells of several lines too."""
    head, *lines = lines_of(text)
    width, start = head.index(head.split()[1]), head.index("VERDICT")
    rows: list[tuple[str, str]] = []
    for line in lines:
        verdict = line[start:]
        if verdict and not verdict.startswith("+"):
            rows.append(("", ""))
        if rows:  # before the first is the rest of the header
            rows[-1] = f"{rows[-1][0]}{line[:width].strip()} ", f"{rows[-1][1]} {verdict}".strip()
    shared = joined(text, "Hosts that share a row") if "\n\nHosts that share a row\n" in text else ""
    unseen = joined(text, "Not checked") if "\n\nNot checked\n" in text else ""
    ends: dict[str, str] = {}
    for host, verdict in rows:
        some = re.fullmatch(r"(\S+) \+(\d+)(?: (\[\d+\])|, see below) +", host)
        if some is None:
            names = unfolded(re.sub(r" |\(\d+\)", "", host))
        else:
            lead = re.escape(f"{some[3]} " if some[3] else f"{verdict.split()[0]} (")
            (listed,) = re.findall(rf"^  {lead}.*?: (\S+)$", shared if some[3] else unseen, re.MULTILINE)
            names = unfolded(listed)
            assert some[1] in names
            assert len(names) == int(some[2]) + 1
        assert not names & set(ends) or verdict == "findings"
        ends = dict.fromkeys(names, verdict) | ends
    return ends


def joined(text: str, start: str) -> str:
    """Return a block in which names that go over several lines stand in one."""
    return re.sub(r",\n {4}", ",", block(text, start))


def unfolded(folded: str) -> set[str]:
    return set(NodeSet(folded, resolver=RESOLVER_NOGROUP))


def block(text: str, start: str) -> str:
    return next(part for part in text.rstrip("\n").split("\n\n") if part.startswith(start))
