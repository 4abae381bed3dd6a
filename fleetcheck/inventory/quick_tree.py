"""The names of a native inventory in any shape of YAML, unjudged: in a fifth of the time that loading takes.

In: the texts of an inventory. Out: as :mod:`fleetcheck.inventory.quick`, which reads the plain shape without this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetcheck.errors import Problem
from fleetcheck.inventory import tree
from fleetcheck.inventory.quick import MAX_NAMES, SECTIONS, OutOfThePlain, expand
from fleetcheck.inventory.source import Text


def of_texts(texts: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Return the hosts in the order of the inventory and the groups by name; None where it must be loaded."""
    hosts: dict[str, None] = {}
    groups: set[str] = set()
    problems: list[Problem] = []
    try:
        for text in texts:
            root = None if text.startswith("#!") else tree.parse(Text("", text), problems)
            if not isinstance(root, tree.Mapping) or problems or not root.entries.keys() <= set(SECTIONS):
                return None
            for section, (_, node) in root.entries.items():
                groups.update(_inside(node) if section == "groups" else ())
                for nodes in _named(section, node):
                    hosts.update(dict.fromkeys(expand(nodes)))
                    if len(hosts) > MAX_NAMES:
                        return None
    except OutOfThePlain:
        return None
    return (list(hosts), sorted(groups)) if hosts else None


def _named(section: str, node: tree.Node) -> Iterator[str]:
    """Yield the nodesets of a section."""
    if section == "hosts":
        yield from _inside(node)
    elif section == "groups":
        for group in _inside(node).values():
            held = _inside(group).get("hosts")
            for item in held.items if isinstance(held, tree.Sequence) else [held] if held is not None else []:
                if not isinstance(item, tree.Scalar) or not isinstance(item.value, str):
                    raise OutOfThePlain
                yield " ".join(item.value.split())  # a text of several lines is joined by spaces


def _inside(node: tree.Node) -> dict[str, tree.Node]:
    """Return the values of a mapping by their keys; none of an empty value."""
    if isinstance(node, tree.Scalar) and node.value is None:
        return {}
    if not isinstance(node, tree.Mapping):
        raise OutOfThePlain
    return {key: value for key, (_, value) in node.entries.items()}
