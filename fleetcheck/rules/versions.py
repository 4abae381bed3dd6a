"""Compare versions: PEP 440 ranges over packages, toolkits, interpreters and drivers."""

from __future__ import annotations

from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

UNKNOWN = Version("0.0.0+unknown")
"""What a FlashInfer that was never built says of itself; it is no version."""


@lru_cache(maxsize=1024)
def parse(text: str) -> Version | None:
    """Return the version that ``text`` names, None where it names none. Driver strings are versions too."""
    try:
        version = Version(text)
    except InvalidVersion:
        return None
    return None if version == UNKNOWN else version


@lru_cache(maxsize=256)
def ranges(text: str) -> SpecifierSet | None:
    """Return the range that ``text`` names, None where it names none. A bare version means ``==``."""
    bare = parse(text)
    try:
        return SpecifierSet(f"=={text}" if bare is not None else text)
    except InvalidSpecifier:
        return None


def admits(expected: str, seen: str) -> bool | None:
    """Return whether the range ``expected`` admits the version ``seen``; None where either does not parse.

    Pre-releases and development builds are versions like any other: ``>=0.6.17`` admits ``0.6.18rc7``, and not
    ``0.6.17rc1``, which came before it. A local version (``0.6.18+cu130``) counts as the release it is built from.
    """
    wanted, version = ranges(expected), parse(seen)
    if wanted is None or version is None:
        return None
    return wanted.contains(version, prereleases=True)


def below(seen: str | None, bound: str) -> bool:
    """Return whether ``seen`` is known to be an older version than ``bound``."""
    return seen is not None and admits(f"<{bound}", seen) is True


def is_prefix(expected: str, seen: str) -> bool:
    """Return whether ``expected`` is a bare version of which ``seen`` is a patch release (3.12 and 3.12.3)."""
    return parse(expected) is not None and admits(f"=={expected}.*", seen) is True
