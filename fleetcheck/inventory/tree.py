"""YAML as a tree that knows its lines.

In: a text. Out: :class:`Scalar`, :class:`Sequence` and :class:`Mapping` nodes. Built from PyYAML's events and
not from its composer: events come one by one, so that depth and aliases are bounded before they cost anything,
and a duplicate key is seen rather than the last one taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import yaml
from yaml.resolver import Resolver

from fleetcheck.errors import Problem
from fleetcheck.inventory.source import CONTROL, Text
from fleetcheck.inventory.wording import shown

MAX_DEPTH = 20
MAX_NODES = 500_000
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = Resolver()
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_CORE = "tag:yaml.org,2002:"
_TAGS = {f"{_CORE}{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp")}
_SINGLE = (yaml.ScalarEvent, yaml.AliasEvent)
_CLOSING = (yaml.SequenceEndEvent, yaml.MappingEndEvent)


class Mark(NamedTuple):
    """A place in a text; lines and columns count from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Scalar:
    """One value. ``text`` is as written; ``value`` is None, a bool, an int, or the text itself.

    Only a number in its one plain decimal spelling becomes an int: ``022`` (octal to YAML), ``1_000`` and
    ``12.10`` stay the text that the user wrote, so that nothing is changed on the way.
    """

    at: Mark
    text: str
    value: bool | int | str | None
    quoted: bool
    size: int = 1


@dataclass(slots=True)
class Sequence:
    """A list."""

    at: Mark
    items: list[Node] = field(default_factory=list)
    size: int = 1
    open: bool = True


@dataclass(slots=True)
class Mapping:
    """Keys to their place and value. ``key`` is the key whose value comes next, while the mapping is read."""

    at: Mark
    entries: dict[str, tuple[Mark, Node]] = field(default_factory=dict)
    size: int = 1
    open: bool = True
    key: tuple[str, Mark] | None = None
    dropped: frozenset[str] = frozenset()
    """Keys that are given twice, whose second value is not here."""


Node = Scalar | Sequence | Mapping


class _StopError(Exception):
    """The rest of the text cannot be read."""


def parse(text: Text, problems: list[Problem]) -> Node | None:
    """Return the tree of the one document in ``text``; None where there is none, or where it is no YAML."""
    builder = _Builder(text.name, problems)
    try:
        for event in yaml.parse(text.text, Loader=_LOADER):
            builder.take(event)
    except _StopError:
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        problems.append(Problem(text.name, line, f"not YAML: {_syntax(error, text.text)}", column))
        return None
    except yaml.YAMLError as error:
        problems.append(Problem(text.name, None, f"not YAML: {shown(str(error))}"))
        return None
    return builder.root


class _Builder:
    """Takes events, keeps the open collections on a stack, and notes what is wrong on the way."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        self.name = name
        self.problems = problems
        self.root: Node | None = None
        self.stack: list[Sequence | Mapping] = []
        self.anchors: dict[str, Node] = {}
        self.nodes = 0

    def take(self, event: Any) -> None:
        at = Mark(event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            if self.root is not None:
                self._stop(at, "a second document begins; an inventory is one document")
        elif isinstance(event, _SINGLE):
            self._place(self._alias(event, at) if isinstance(event, yaml.AliasEvent) else self._scalar(event, at))
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event, at)
        elif isinstance(event, _CLOSING):
            closed = self.stack.pop()
            closed.open = False
            if self.stack:
                self.stack[-1].size += closed.size

    def _open(self, event: Any, at: Mark) -> None:
        if len(self.stack) >= MAX_DEPTH:
            self._stop(at, f"nested deeper than {MAX_DEPTH} levels")
        self._tag(event, at)
        node = Mapping(at) if isinstance(event, yaml.MappingStartEvent) else Sequence(at)
        if event.anchor:
            self.anchors[event.anchor] = node
        self._place(node)
        self.stack.append(node)

    def _scalar(self, event: Any, at: Mark) -> Scalar:
        self._tag(event, at)
        if CONTROL.search(event.value):
            self._problem(at, f"a control character in {shown(event.value)}")
        quoted = event.style not in (None, "") or event.tag in ("!", f"{_CORE}str")
        node = Scalar(at, event.value, event.value if quoted else _value(event.value), quoted)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, at: Mark) -> Node:
        node = self.anchors.get(event.anchor)
        if node is None:
            self._stop(at, f"the alias *{shown(event.anchor)} has no anchor before it")
        if not isinstance(node, Scalar) and node.open:
            self._stop(at, f"the alias *{shown(event.anchor)} stands inside its own anchor")
        return node

    def _place(self, node: Node) -> None:
        """Put ``node`` where it belongs: the top, a list, a key, or a value."""
        self.nodes += node.size
        if self.nodes > MAX_NODES:
            self._stop(node.at, f"more than {MAX_NODES} values, aliases included")
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if isinstance(node, Scalar) or not node.open:
            parent.size += node.size
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif parent.key is None:
            parent.key = self._key(node)
        else:
            (key, at), parent.key = parent.key, None
            if key in parent.entries:
                first = parent.entries[key][0].line
                self._problem(at, f"the key {shown(key)} is given twice (first in line {first})")
                parent.dropped |= {key}
            else:
                parent.entries[key] = (at, node)

    def _key(self, node: Node) -> tuple[str, Mark]:
        if not isinstance(node, Scalar):
            self._stop(node.at, "a key is a list or a mapping; a key is a name")
        if node.text == "<<" and not node.quoted:
            self._stop(
                node.at, "merge keys (<<) are not read; put what is common under defaults or a parent group"
            )
        if not isinstance(node.value, (int, str)) or isinstance(node.value, bool):
            kind = "an empty value" if node.value is None else "a boolean"
            self._problem(node.at, f"the key {shown(node.text) or '~'} is {kind} to YAML; write it in quotes")
        return node.text, node.at

    def _tag(self, event: Any, at: Mark) -> None:
        if event.tag and event.tag != "!" and event.tag not in _TAGS:
            self._problem(at, f"the tag {shown(event.tag)} is not allowed")

    def _problem(self, at: Mark, message: str) -> None:
        self.problems.append(Problem(self.name, at.line, message, at.column))

    def _stop(self, at: Mark, message: str) -> NoReturn:
        self._problem(at, message)
        raise _StopError


def _value(text: str) -> bool | int | str | None:
    """Return what a plain scalar means to YAML 1.1 where that is safe to say, else its text."""
    tag = str(_RESOLVER.resolve(yaml.ScalarNode, text, (True, False))).removeprefix(_CORE)
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() in ("yes", "true", "on")
    return int(text) if tag == "int" and _INTEGER.fullmatch(text) else text


def _syntax(error: yaml.MarkedYAMLError, text: str) -> str:
    """Return the parser's complaint as one sentence; libyaml and PyYAML's own parser word some differently."""
    mark = error.problem_mark
    message = shown(error.problem or "it cannot be read")
    if "mapping values are not allowed" in message:
        return "a colon where none may stand; indent the line as its neighbours, or put the value in quotes"
    if mark and "cannot start any token" in message:
        lines = text.splitlines()
        line = lines[mark.line] if mark.line < len(lines) else ""
        if "\t" in line[: mark.column + 1]:
            return "a tab where spaces must stand; indent with spaces"
        return f"{shown(line[mark.column : mark.column + 1])} cannot begin a value; put the value in quotes"
    if error.context and error.context_mark:
        return f"{message} ({shown(error.context)} from line {error.context_mark.line + 1})"
    return message
