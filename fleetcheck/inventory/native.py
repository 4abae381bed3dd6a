"""The native format: the texts of one inventory become targets, waivers and maintenance.

In: texts. Out: a resolved :class:`Inventory` and where its entries stand, or :class:`InputError` with every
problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fleetcheck.errors import InputError, Problem
from fleetcheck.folding import fold
from fleetcheck.inventory import document, explain, origins, resolve, selection, shape
from fleetcheck.inventory.model import Inventory, Maintenance, Target, Waiver
from fleetcheck.inventory.source import Text

Places = dict[tuple[str, str | int], tuple[str, int]]
Unruly = Callable[[str, bool], str]
"""Says what is wrong with the name of a rule, nothing where it is right; True: a family or glob is right too."""


def parse(
    name: str, texts: Sequence[Text], problems: list[Problem], unruly: Unruly | None = None
) -> tuple[Inventory, Places, resolve.Fleet]:
    """Return the inventory that ``texts`` make together; ``problems`` are those found while reading them.

    Without ``unruly``, names of rules are not judged. Raises InputError with every problem.
    """
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
    places: Places = {}
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
    if unruly is not None:
        problems += [problem for part in parts for problem in _unruly(part, unruly)]
    if problems:
        raise InputError(_ordered(problems, [text.name for text in texts]))
    for host, (part, loc) in fleet.hosts.items():
        places["hosts", host] = (part.name, part.line(*loc))
    for group in fleet.groups.values():
        places["groups", group.name] = (group.place[0].name, group.place[0].line(*group.place[1]))
    update = {"waivers": tuple(waivers), "maintenance": tuple(maintenance)}
    return inventory.model_copy(update=update), places, fleet


def _unruly(part: document.Part, unruly: Unruly) -> Iterator[Problem]:
    """Yield a problem for each rule that is not there, in waivers and in what sets levels."""
    written = part.document
    for kept, waiver in enumerate(written.waivers):
        wrong = "" if waiver.rule == shape.UNREAD["rule"] else unruly(waiver.rule, False)
        if wrong:
            yield part.problem(("waivers", part.index(("waivers",), kept), "rule"), wrong)
    levels: dict[explain.Loc, shape.Settings] = {("defaults",): written.defaults}
    levels |= {("groups", name): group for name, group in written.groups.items()}
    levels |= {("hosts", name): host for name, host in written.hosts.items()}
    for loc, settings in levels.items():
        for pattern in settings.rules:
            wrong = unruly(pattern, True)
            if wrong:
                yield part.problem((*loc, "rules", pattern), wrong)


def places_of(fleet: resolve.Fleet, target: Target) -> Mapping[str, str]:
    """Return the place of each value of a target."""
    return origins.native(fleet, target)


def _hosts(
    index: selection.Index,
    part: document.Part,
    loc: tuple[str, int],
    entry: shape.WaiverEntry | shape.MaintenanceEntry,
    fleet: resolve.Fleet,
) -> str:
    """Return the hosts of a waiver or of a maintenance as a nodeset of names that exist."""
    found: list[Problem] = []
    line, column = part.at(*loc, "hosts")
    tokens = selection.tokens(part.name, line, entry.hosts, found)
    names = selection.choose(index, tokens, found)
    if not fleet.lost:
        where = f"{loc[0]}[{loc[1]}].hosts: "
        for one in found:
            place = column if (one.source, one.line) == (part.name, line) else one.column
            fleet.problems.append(Problem(one.source, one.line, where + one.message, place))
        if not names and not found:
            fleet.problems.append(part.problem((*loc, "hosts"), "no host is left"))
    return fold(names) or "-"


def _ordered(problems: list[Problem], names: list[str]) -> list[Problem]:
    """Return the problems in the order of the files and lines, each once."""
    rank = {name: number for number, name in enumerate(names)}
    return sorted(
        dict.fromkeys(problems), key=lambda one: (rank.get(one.source, -1), one.line or 0, one.column or 0)
    )
