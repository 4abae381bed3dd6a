"""One file read and validated, with every problem of it noted.

In: a text. Out: a :class:`Part`: what could be validated, and where each key stands. A value that is wrong is
noted, cut out, and the rest is validated again, so that one bad port does not hide a cycle of groups. In a waiver
or a maintenance, whose keys are all needed, something stands in for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fleetcheck.errors import Problem
from fleetcheck.inventory import explain, shape, tree
from fleetcheck.inventory.source import STDIN, Text, is_stream

SECTIONS = tuple(shape.Document.model_fields)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of an inventory. ``lost`` holds ``hosts`` or ``groups`` where some could not be taken.

    ``cuts`` are the keys and list items that were wrong and are not in ``document``.
    """

    name: str
    root: tree.Node
    document: shape.Document
    lost: frozenset[str]
    cuts: frozenset[explain.Loc]

    @property
    def folder(self) -> Path:
        """The folder from which relative paths are taken."""
        path = Path(self.name)
        return Path.cwd() if self.name == STDIN or is_stream(path) else path.absolute().parent

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections in the order in which they stand."""
        return tuple(self.root.entries) if isinstance(self.root, tree.Mapping) else ()

    def at(self, *loc: str | int) -> tree.Mark:
        """Return the place of the key at ``loc``, or of the nearest above it."""
        return explain.find(self.root, loc)[0]

    def line(self, *loc: str | int) -> int:
        """Return the line of the key at ``loc``, or of the nearest above it."""
        return self.at(*loc).line

    def keys(self, *loc: str | int) -> frozenset[str]:
        """Return the keys that are written in the mapping at ``loc``."""
        _, node, depth = explain.find(self.root, loc)
        return frozenset(node.entries if depth == len(loc) and isinstance(node, tree.Mapping) else ())

    def index(self, loc: explain.Loc, kept: int) -> int:
        """Return the index in the file of what is item ``kept`` of the list at ``loc`` in ``document``."""
        for cut in sorted(cut[-1] for cut in self.cuts if cut[:-1] == loc and isinstance(cut[-1], int)):
            kept += cut <= kept
        return kept

    def problem(self, loc: explain.Loc, message: str) -> Problem:
        """Return the problem ``message`` with the key at ``loc``."""
        at = self.at(*loc)
        return Problem(self.name, at.line, f"{explain.key_path(loc)}: {message}", at.column)


def read(text: Text, problems: list[Problem]) -> Part | None:
    """Return the validated part, or None where nothing of it could be used."""
    known = len(problems)
    root = tree.parse(text, problems)
    if root is None:
        if len(problems) == known:
            problems.append(Problem(text.name, None, "empty; an inventory holds groups or hosts"))
        return None
    if not isinstance(root, tree.Mapping):
        kind = "a list" if isinstance(root, tree.Sequence) else "one value"
        message = f"{kind} at the top; an inventory is a mapping of {', '.join(SECTIONS)}"
        problems.append(Problem(text.name, root.at.line, message, root.at.column))
        return None
    lost = _dropped(root)
    gaps: dict[explain.Loc, Problem] = {}
    data = _plain(text.name, root, (), root.at, gaps)
    document, bad, cuts = _validate(data)
    for error in bad:
        loc = tuple(error["loc"])
        gap = gaps.pop(loc, None)
        if gap is None or error["type"] == "extra_forbidden":
            problems.append(explain.explain(text.name, root, error))
        else:
            problems.append(gap)
        lost |= _lost(root, loc)
    problems += gaps.values()
    return Part(text.name, root, document, lost, cuts)


def _dropped(root: tree.Mapping) -> frozenset[str]:
    """Return what may be absent because a key is given twice: ``hosts``, ``groups``."""
    groups = root.entries["groups"][1] if "groups" in root.entries else None
    if root.dropped or (isinstance(groups, tree.Mapping) and groups.dropped):
        return frozenset({"hosts", "groups"})
    inner = [group for _, group in groups.entries.values()] if isinstance(groups, tree.Mapping) else []
    if any(isinstance(one, tree.Mapping) and one.dropped & {"hosts", "children"} for one in inner):
        return frozenset({"hosts"})
    return frozenset()


def _lost(root: tree.Node, loc: explain.Loc) -> frozenset[str]:
    """Return what may be absent now that the value at ``loc`` was cut out: ``hosts``, ``groups``."""
    match loc:
        case ("groups",) | ("groups", _):
            return frozenset({"hosts", "groups"})
        case ("hosts",) | ("hosts", _) | ("groups", _, "hosts", *_):
            return frozenset({"hosts"})
        case (str() as key,) if key not in SECTIONS:
            return frozenset({"hosts", "groups"})
        case ("groups", _, str() as key) if key not in shape.Group.model_fields and not explain.is_secret(key):
            # It may be meant for "hosts", unless that is there too.
            _, group, _ = explain.find(root, loc[:2])
            return frozenset({"hosts"} if isinstance(group, tree.Mapping) and "hosts" not in group.entries else ())
    return frozenset()


def _validate(data: dict[str, Any]) -> tuple[shape.Document, list[Any], frozenset[explain.Loc]]:
    """Validate ``data``; cut out what is wrong until the rest is right."""
    errors: list[Any] = []
    removed: set[explain.Loc] = set()
    while True:
        try:
            return shape.Document.model_validate(data), errors, frozenset(removed)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
        errors += found
        cuts = {_cut(data, tuple(one["loc"])) for one in found if not _stood_in(data, one)}
        removed |= cuts
        # The highest index first, so that the others stay true.
        for loc in sorted(cuts, key=lambda cut: [(isinstance(step, str), step) for step in cut], reverse=True):
            _remove(data, loc)


def _stood_in(data: dict[str, Any], error: Any) -> bool:
    """Put something in the place of a wrong value of a waiver or a maintenance; whether the error is of one."""
    match tuple(error["loc"]):
        case ("waivers" | "maintenance" as section, int() as index, str() as key, *_):
            entry = data[section][index]
            if error["type"] == "extra_forbidden":
                del entry[key]
            else:
                entry[key] = shape.UNREAD[key]
            return True
    return False


def _cut(data: Any, loc: explain.Loc) -> explain.Loc:
    """Return what to cut out for an error at ``loc``: the item of a list, else the deepest key that is there."""
    for depth, step in enumerate(loc):
        if isinstance(step, int):
            return loc[: depth + 1] if isinstance(data, list) else loc[:depth]
        if not isinstance(data, dict) or step not in data:
            return loc[:depth]
        data = data[step]
    return loc


def _remove(data: Any, loc: explain.Loc) -> None:
    """Remove the key or item at ``loc``, which may have gone already with what was around it."""
    for step in loc[:-1]:
        if not isinstance(data, dict) or step not in data:
            return
        data = data[step]
    if isinstance(data, dict):
        data.pop(loc[-1], None)
    else:
        del data[loc[-1]]


def _plain(name: str, node: tree.Node, loc: explain.Loc, at: tree.Mark, gaps: dict[explain.Loc, Problem]) -> Any:
    """Return the plain values of ``node``; an empty value is a gap, but where it means "nothing more"."""
    if isinstance(node, tree.Mapping):
        return {
            key: _plain(name, value, (*loc, key), key_at, gaps) for key, (key_at, value) in node.entries.items()
        }
    if isinstance(node, tree.Sequence):
        return [_plain(name, item, (*loc, index), item.at, gaps) for index, item in enumerate(node.items)]
    if node.value is not None:
        return node.value
    match loc:
        case ("waivers" | "maintenance",):
            return []
        case ("defaults" | "groups" | "hosts",) | ("groups" | "hosts", _):
            return {}
    gaps[loc] = explain.empty(name, at, loc)
    return None
