"""An inventory from whatever the user named: a file, a folder, standard input, or host names.

In: the text behind ``-i``. Out: a resolved :class:`Inventory`, or :class:`InputError` with every problem.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fleetcheck.errors import InputError, Problem
from fleetcheck.inventory import document, nodes, resolve, selection, shape
from fleetcheck.inventory.model import Inventory, Maintenance, Target, Waiver
from fleetcheck.inventory.source import STDIN, SUFFIXES, Text, read_path, read_stream
from fleetcheck.inventory.wording import shown

VARIABLE = "FLEETCHECK_INVENTORY"
_PATHLIKE = (*SUFFIXES, ".json", ".ini", ".toml", ".cfg", ".txt")


@dataclass(frozen=True, slots=True)
class Loaded:
    """An inventory, and where its entries stand.

    ``places`` maps ``("hosts", name)``, ``("groups", name)``, ``("waivers", index)`` and
    ``("maintenance", index)`` to a file and line; it is empty for an inventory of bare names.
    """

    inventory: Inventory
    places: Mapping[tuple[str, str | int], tuple[str, int]]

    def problem(self, section: str, key: str | int, message: str) -> Problem:
        """Return ``message`` as a problem of one entry, with its file and line."""
        source, line = self.places.get((section, key), (self.inventory.source, None))
        where = f"{section}[{key}]" if isinstance(key, int) else f"{section}.{key}"
        return Problem(source, line, f"{where}: {message}")


def load(source: str | Path | None, *, stdin: TextIO | None = None) -> Inventory:
    """Return the inventory that ``source`` names: a path, ``-`` for standard input, or host names.

    None means ``$FLEETCHECK_INVENTORY``, then ``inventory.yaml`` in the config folder. A text that is no existing
    path and does not look like one is taken for names (``gpu01,gpu02`` or ``gpu[01-16].lab``).
    Raises :class:`InputError` with every problem at once.
    """
    return read(source, stdin=stdin).inventory


def read(source: str | Path | None, *, stdin: TextIO | None = None) -> Loaded:
    """As :func:`load`, with the places of the entries."""
    if source is None:
        source = os.environ.get(VARIABLE) or default_path()
    problems: list[Problem] = []
    if isinstance(source, str) and source == "-":
        name, texts = STDIN, read_stream(stdin, problems)
    elif isinstance(source, Path) or _is_path(source):
        path = Path(source)
        name, texts = str(path), read_path(path, problems)
    else:
        return Loaded(named(source), {})
    return parse(name, texts, problems)


def default_path() -> Path:
    """Return the inventory of the config folder. Raises :class:`InputError` where there is none."""
    from platformdirs import user_config_path  # noqa: PLC0415  (only this last resort needs it)

    path = user_config_path("fleetcheck") / "inventory.yaml"
    if not path.exists():
        message = f"no inventory: give one with -i, set ${VARIABLE}, or write {path}"
        raise InputError([Problem("fleetcheck", None, message)])
    return path


def named(source: str) -> Inventory:
    """Return an inventory of bare names. Raises :class:`InputError` where one is no host name."""
    try:
        names = nodes.expand(source)
    except ValueError as error:
        message = f"neither an inventory file nor host names: {error}"
        raise InputError([Problem(shown(source) or "-i", None, message)]) from error
    return Inventory(source=source, targets=tuple(Target(name=name) for name in names))


def parse(name: str, texts: Sequence[Text], problems: list[Problem]) -> Loaded:
    """Return the inventory that ``texts`` make together; ``problems`` are those found while reading them."""
    lost = frozenset({"hosts", "groups"}) if problems else frozenset[str]()
    parts = []
    for text in texts:
        part = document.read(text, problems)
        if part is None:
            lost = frozenset({"hosts", "groups"})
        else:
            parts.append(part)
    fleet = resolve.join(parts, problems, lost)
    targets = resolve.targets(fleet)
    if not targets and not problems:
        problems.append(Problem(name, None, "no host is defined; an inventory holds groups or hosts"))
    inventory = Inventory(source=name, targets=targets)
    index = selection.Index(targets)
    places: dict[tuple[str, str | int], tuple[str, int]] = {}
    waivers: list[Waiver] = []
    maintenance: list[Maintenance] = []
    for part in parts:
        for kept, waiver in enumerate(part.document.waivers):
            number = part.index(("waivers",), kept)
            places["waivers", len(waivers)] = (part.name, part.line("waivers", number))
            hosts = _hosts(index, part, ("waivers", number), waiver, fleet)
            waivers.append(Waiver(rule=waiver.rule, hosts=hosts, reason=waiver.reason, until=waiver.until))
        for kept, pause in enumerate(part.document.maintenance):
            number = part.index(("maintenance",), kept)
            places["maintenance", len(maintenance)] = (part.name, part.line("maintenance", number))
            hosts = _hosts(index, part, ("maintenance", number), pause, fleet)
            maintenance.append(Maintenance(hosts=hosts, reason=pause.reason, until=pause.until))
    if problems:
        raise InputError(_ordered(problems, [text.name for text in texts]))
    for host, (part, loc) in fleet.hosts.items():
        places["hosts", host] = (part.name, part.line(*loc))
    for group in fleet.groups.values():
        places["groups", group.name] = (group.place[0].name, group.place[0].line(*group.place[1]))
    update = {"waivers": tuple(waivers), "maintenance": tuple(maintenance)}
    return Loaded(inventory.model_copy(update=update), places)


def _is_path(source: str) -> bool:
    if not source:
        return False
    if "/" in source or source.startswith((".", "~")) or source.lower().endswith(_PATHLIKE):
        return True
    try:
        return Path(source).exists()
    except (OSError, ValueError):
        return False


def _hosts(
    index: selection.Index,
    part: document.Part,
    loc: tuple[str, int],
    entry: shape.WaiverEntry | shape.MaintenanceEntry,
    fleet: resolve.Fleet,
) -> str:
    """Return the hosts of a waiver or of a maintenance as a nodeset of names that exist."""
    found: list[Problem] = []
    tokens = selection.tokens(part.name, part.line(*loc, "hosts"), entry.hosts, found)
    names = selection.choose(index, tokens, found)
    if not fleet.lost:
        where = f"{loc[0]}[{loc[1]}].hosts: "
        fleet.problems += [Problem(one.source, one.line, where + one.message) for one in found]
        if not names and not found:
            fleet.problems.append(part.problem((*loc, "hosts"), "no host is left"))
    return nodes.fold(names) or "-"


def _ordered(problems: list[Problem], names: list[str]) -> list[Problem]:
    """Return the problems in the order of the files and lines, each once."""
    rank = {name: number for number, name in enumerate(names)}
    return sorted(dict.fromkeys(problems), key=lambda one: (rank.get(one.source, -1), one.line or 0))
