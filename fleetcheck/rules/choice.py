"""Which rules count, and how grave their findings are: what a user selects, ignores, and overrides.

In: patterns, each a rule, a family, or a glob over rules (``csrc-*``). Out: for a rule, a severity or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import cast

from fleetcheck.errors import InputError, Problem
from fleetcheck.rules.catalog import FAMILIES, RULES
from fleetcheck.rules.finding import Severity
from fleetcheck.rules.rule import Rule

IGNORE = "ignore"
"""The word that stands for a severity where a rule is not to be judged at all."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is judged: ``select`` (nothing given: every rule) without ``ignore``."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    @property
    def rules(self) -> frozenset[str]:
        """The rules that are judged."""
        return _chosen(self.select, self.ignore)

    def severity(self, rule: Rule, severity: Severity, overrides: Mapping[str, str]) -> Severity | None:
        """Return how grave a finding counts on a host with these overrides; None where it does not count."""
        if rule.slug not in self.rules:
            return None
        level = _levels(tuple(overrides.items())).get(rule.slug, severity) if overrides else severity
        return None if level == IGNORE else cast("Severity", level)


def named(pattern: str) -> frozenset[str]:
    """Return the rules that one pattern means; none where it means nothing."""
    if pattern in RULES:
        return frozenset({pattern})
    if pattern in FAMILIES:
        return frozenset(slug for slug, rule in RULES.items() if rule.family == pattern)
    return frozenset(slug for slug in RULES if fnmatchcase(slug, pattern))


def choose(select: Iterable[str], ignore: Iterable[str]) -> Choice:
    """Return the choice that options make; a value may hold several patterns, joined by commas.

    Raises InputError for every pattern that means no rule, with the nearest names, and where nothing is left.
    """
    problems: list[Problem] = []
    given: dict[str, tuple[str, ...]] = {}
    for option, values in (("--select", select), ("--ignore", ignore)):
        patterns = [part.strip() for value in values for part in value.split(",")]
        problems += [Problem(option, None, unknown(one)) for one in patterns if not named(one)]
        given[option] = tuple(dict.fromkeys(patterns))
    choice = Choice(given["--select"], given["--ignore"])
    if not problems and not choice.rules:
        problems.append(Problem("--ignore", None, "no rule is left to judge by"))
    if problems:
        raise InputError(problems)
    return choice


def unknown(pattern: str) -> str:
    """Return the sentence for a pattern that means no rule."""
    nearest = get_close_matches(pattern.lower(), [*RULES, *FAMILIES], n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(nearest)}?" if nearest else "`fleetcheck rules` lists all"
    return f"there is no rule or family {pattern!r}; {hint}"


@lru_cache(maxsize=64)
def _chosen(select: tuple[str, ...], ignore: tuple[str, ...]) -> frozenset[str]:
    wanted = frozenset[str]().union(*map(named, select)) if select else frozenset(RULES)
    return wanted.difference(*map(named, ignore))


@lru_cache(maxsize=1024)
def _levels(overrides: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the level of each rule that is overridden: its own name wins over a glob, and that over a family."""
    levels: dict[str, str] = {}
    for pattern, level in sorted(overrides, key=lambda item: (item[0] in RULES, item[0] not in FAMILIES)):
        levels |= dict.fromkeys(named(pattern), level)
    return levels
