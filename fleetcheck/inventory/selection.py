"""Which hosts of an inventory are meant: the one grammar of every command.

In: an inventory and patterns. Out: its targets, in its order. A pattern is a name, a nodeset, a group, a glob,
``all``, ``~regex``, ``@file``, or several joined by commas; ``!x`` takes away, ``&y`` keeps only those in y.
As with Ansible the order of patterns does not matter: first what is named is joined, then ``&``, then ``!``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetcheck.errors import InputError, Problem
from fleetcheck.folding import fold
from fleetcheck.inventory.model import Inventory, Target
from fleetcheck.inventory.nodes import expand_part, is_nodeset, parts
from fleetcheck.inventory.source import MAX_BYTES, decode
from fleetcheck.inventory.wording import nearest, shown


@dataclass(frozen=True, slots=True)
class Token:
    """Patterns that stand together under one mark (``!``, ``&`` or none); each with where it was read."""

    mark: str
    patterns: tuple[tuple[str, str, int | None], ...]


class Index:
    """The names of an inventory, ready to be matched."""

    def __init__(self, targets: Iterable[Target]) -> None:
        self.targets = tuple(targets)
        self.names = {target.name: None for target in self.targets}
        self.groups: dict[str, list[str]] = {}
        for target in self.targets:
            for group in target.groups:
                self.groups.setdefault(group, []).append(target.name)

    def matched(self, pattern: str) -> set[str]:
        """Return the names that one pattern without ``!``, ``&``, ``@`` means; never none of them.

        Raises ValueError with one sentence where it matches nothing or cannot be read.
        """
        if pattern == "all":
            return set(self.names)
        if pattern.startswith("~"):
            return self._regex(pattern)
        if pattern in self.names:
            return {pattern}
        if pattern in self.groups:
            return set(self.groups[pattern])
        wild = any(mark in pattern for mark in "*?")
        if is_nodeset(pattern) and not wild:
            return self._nodeset(pattern)
        if wild or "[" in pattern:
            return self._glob(pattern)
        raise ValueError(self._nothing(pattern))

    def _nodeset(self, pattern: str) -> set[str]:
        found: set[str] = set()
        absent: list[str] = []
        for name in expand_part(pattern):
            if name in self.names:
                found.add(name)
            elif name in self.groups:
                found.update(self.groups[name])
            else:
                absent.append(name)
        if absent:
            raise ValueError(self._nothing(fold(absent), absent[0]))
        return found

    def _glob(self, pattern: str) -> set[str]:
        """Match host names, or group names where no host matches.

        Brackets are a nodeset where that matches something (``gpu[01-16]*``), else characters.
        """
        ways = [expand_part(pattern), [pattern]] if is_nodeset(pattern) else [[pattern]]
        for globs in ways:
            match = re.compile("|".join(map(fnmatch.translate, globs))).match
            found = {name for name in self.names if match(name)}
            if found:
                return found
            groups = [name for name in self.groups if match(name)]
            if groups:
                return {name for group in groups for name in self.groups[group]}
        raise ValueError(self._nothing(pattern))

    def _regex(self, pattern: str) -> set[str]:
        try:
            regex = re.compile(pattern[1:])
        except re.error as error:
            raise ValueError(f"{shown(pattern)} is no regular expression: {error}") from error
        found = {name for name in self.names if regex.search(name)}
        if not found:
            raise ValueError(f"no host matches {shown(pattern)}")
        return found

    def _nothing(self, pattern: str, word: str | None = None) -> str:
        near = nearest(re.sub(r"[*?]", "", word or pattern), [*self.names, *self.groups])
        return f"no host or group matches {shown(pattern)}" + (f"; nearest: {', '.join(near)}" if near else "")


def select(inventory: Inventory, patterns: Sequence[str]) -> tuple[Target, ...]:
    """Return the targets that ``patterns`` mean, in inventory order; every target where there are none.

    Raises :class:`InputError` naming every pattern that matches nothing, with the nearest names.
    """
    if not patterns:
        if inventory.kind == "ssh_config":
            message = "an ssh config names every host that you ever reach; say which are meant (all for every one)"
            raise InputError([Problem(inventory.source, None, message)])
        return inventory.targets
    index = Index(inventory.targets)
    problems: list[Problem] = []
    chosen = choose(index, tokens(inventory.source, None, patterns, problems), problems)
    if not problems and not chosen:
        problems.append(Problem(inventory.source, None, f"no host is left of {shown(' '.join(patterns))}"))
    if problems:
        raise InputError(tuple(dict.fromkeys(problems)))
    return tuple(target for target in index.targets if target.name in chosen)


def choose(index: Index, tokens: Iterable[Token], problems: list[Problem]) -> set[str]:
    """Return the names that the tokens mean together; a pattern that fails is added to ``problems``."""
    sets: dict[str, list[set[str]]] = {"": [], "&": [], "!": []}
    for token in tokens:
        union: set[str] = set()
        for pattern, source, line in token.patterns:
            try:
                union |= index.matched(pattern)
            except ValueError as error:
                problems.append(Problem(source, line, str(error)))
        sets[token.mark].append(union)
    chosen = set[str]().union(*sets[""]) if sets[""] else set(index.names)
    return chosen.intersection(*sets["&"]).difference(*sets["!"])


def tokens(source: str, line: int | None, patterns: Iterable[str], problems: list[Problem]) -> Iterator[Token]:
    """Yield the tokens of ``patterns``, which stand in ``source``; ``@file`` is read here."""
    for pattern in patterns:
        texts = split(pattern)
        if not texts:
            problems.append(Problem(source, line, "an empty pattern names no host"))
        for text in texts:
            mark, plain = _mark(text)
            if plain.startswith("@"):
                yield from _from_file(mark, plain[1:], problems)
            else:
                yield Token(mark, ((plain, source, line),))


def is_file(name: str) -> bool:
    """Return whether what stands behind an ``@`` is a file, or is written as one."""
    try:
        return "/" in name or name.startswith("~") or Path(name).is_file()
    except (OSError, ValueError):
        return False


def split(pattern: str) -> list[str]:
    """Split at commas and spaces outside brackets; a regular expression reaches to the end."""
    regex = re.search(r"(?:^|[,\s])([!&]?~.*)", pattern, re.DOTALL)
    return [*parts(pattern[: regex.start()]), regex[1]] if regex else parts(pattern)


def _mark(text: str) -> tuple[str, str]:
    return (text[0], text[1:]) if text.startswith(("!", "&")) else ("", text)


def _from_file(mark: str, name: str, problems: list[Problem]) -> Iterator[Token]:
    """Yield the patterns of a file; ``#`` begins a comment. Under a mark they are joined to one token."""
    joined: list[tuple[str, str, int | None]] = []
    known, found = len(problems), False
    for number, text in lines(name, problems):
        found = True
        inner, plain = _mark(text)
        if plain.startswith("@"):
            problems.append(Problem(name, number, f"{shown(text)}: a file of patterns names no other file"))
        elif mark and inner:
            problems.append(Problem(name, number, f"{shown(text)}: {mark}@{name} takes patterns without ! and &"))
        elif mark:
            joined.append((plain, name, number))
        else:
            yield Token(inner, ((plain, name, number),))
    if joined:
        yield Token(mark, tuple(joined))
    elif not found and len(problems) == known:
        problems.append(Problem(name, None, "the file holds no pattern"))


def lines(name: str, problems: list[Problem]) -> Iterator[tuple[int, str]]:
    """Yield the patterns of a file, each with its line; ``#`` begins a comment."""
    try:
        with Path(name).expanduser().open("rb") as stream:
            texts = decode(name, stream.read(MAX_BYTES + 1), problems)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.append(Problem(name, None, f"cannot be read: {reason}"))
        return
    for text in texts:
        for number, line in enumerate(text.text.splitlines(), 1):
            for one in split(re.split(r"(?:^|\s)#", line)[0]):
                yield number, one
