"""Nodesets: ``gpu[01-16].lab`` for sixteen names, folded and expanded by ClusterShell.

In: texts of an inventory or a command line. Out: host names, or the shortest text for them.
ClusterShell's own groups (``@name``) are left out on purpose: resolving one may run a command.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable
from itertools import product

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from fleetcheck.inventory.wording import NO_SECRETS, holds_password, shown

MAX_NAMES = 100_000
MAX_LENGTH = 253  # RFC 1035 leaves 253 characters for a name as it is written
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?:/(\d+))?)?")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_JOINED = re.compile(r"\d\[|\]\d")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?")
_SPACE = re.compile(r"[,\s]+")


def expand(text: str) -> list[str]:
    """Return the host names of nodesets joined by commas or spaces, each once, in the order written.

    Raises ValueError with one sentence for a bad range, a bad host name, or more than ``MAX_NAMES`` names.
    """
    return list(dict.fromkeys(named(text)))


def named(text: str) -> list[str]:
    """As :func:`expand`, but a name stands as often as it is given."""
    names: list[str] = []
    for part in parts(text):
        names += map(check_name, expand_part(part))
        if len(names) > MAX_NAMES:
            raise ValueError(f"more than {MAX_NAMES} names")
    if not names:
        raise ValueError("no host is named")
    return names


def twice(names: Iterable[str]) -> list[str]:
    """Return the names that stand more than once, each once."""
    return [name for name, count in Counter(names).items() if count > 1]


def parts(text: str) -> list[str]:
    """Split at the commas and spaces that stand outside brackets; the parts are never empty."""
    found: list[str] = []
    for number, piece in enumerate(re.split(r"(\[[^\]]*\]?)", text)):
        glued = [piece] if number % 2 else _SPACE.sub("\0", piece).split("\0")
        if found:
            found[-1] += glued[0]
            found += glued[1:]
        else:
            found = glued
    return [part for part in found if part]


def is_nodeset(text: str) -> bool:
    """Tell whether ``text`` has brackets and all of them hold numbers, not characters of a glob."""
    inside = _BRACKETS.findall(text)
    return bool(inside) and all(re.fullmatch(r"[\d,/ -]+", one) for one in inside)


def expand_part(part: str) -> list[str]:
    """Return the names of one nodeset, without judging the names: wildcards may stand around its brackets.

    Raises ValueError with one sentence for a bad or too large range, and for one of two meanings.
    """
    if "[" not in part and "]" not in part:
        return [part]
    size = 1
    for inside in _BRACKETS.findall(part):
        size *= sum(_width(one, part) for one in inside.split(","))
    if size > MAX_NAMES:
        raise ValueError(f"{shown(part)} stands for {shown(str(size))} names; at most {MAX_NAMES} are allowed")
    try:
        nodes = NodeSet(part, resolver=RESOLVER_NOGROUP)
        if _JOINED.search(part):
            _check_joined(part, nodes)
        return list(nodes)
    except NodeSetException as error:
        raise ValueError(f"bad range in {shown(part)}: {_reason(error)}") from error


def _check_joined(part: str, nodes: NodeSet) -> None:
    """Raise ValueError where ``gn7[9-10]`` is not gn79 and gn710, as for Slurm, pdsh and Ansible.

    ClusterShell takes the digits beside a bracket into the range, before it counts: 79 to 710.
    """
    texts = _BRACKETS.split(part)
    ranges = [[name for one in inside.split(",") for name in _numbers(one)] for inside in texts[1::2]]
    form = "%s".join(text.replace("%", "%%") for text in texts[::2])
    literal = dict.fromkeys(form % numbers for numbers in product(*ranges))
    if len(nodes) <= len(literal) and not literal.keys() - set(nodes):
        return
    meant = NodeSet.fromlist(list(literal), resolver=RESOLVER_NOGROUP)
    raise ValueError(
        f"{shown(part)} means {len(literal)} names to some tools and {len(nodes)} to others, as digits stand "
        f"right beside its brackets; for the {len(literal)} write {shown(str(meant), 200)}"
    )


def _numbers(one: str) -> list[str]:
    """Return the numbers of a range that was found to be one, each as wide as the first where that has a zero."""
    first, last, step = re.fullmatch(_RANGE, one.strip()).groups()  # type: ignore[union-attr]  # _width matched it
    width = len(first) if first.startswith("0") else 0
    return [str(number).zfill(width) for number in range(int(first), int(last or first) + 1, int(step or 1))]


def check_name(name: str) -> str:
    """Return ``name`` where it can be a host name or an IP address. Raises ValueError with one sentence."""
    if holds_password(name):
        raise ValueError(f"{shown(name)} holds a password; {NO_SECRETS}")
    if ":" in name:
        if not _is_ipv6(name):
            raise ValueError(f"{shown(name)} is no host name; a port is given by the key port")
    elif "@" in name:
        raise ValueError(f"{shown(name)} is no host name; a user is given by the key user")
    elif len(name) > MAX_LENGTH or not _NAME.fullmatch(name):
        raise ValueError(f"{shown(name)} is no host name")
    return name


def _is_ipv6(name: str) -> bool:
    if not _IPV6.fullmatch(name):
        return False
    try:
        ipaddress.IPv6Address(name)
    except ValueError:
        return False
    return True


def _width(one: str, part: str) -> int:
    match = _RANGE.fullmatch(one.strip())
    if not match or len(one) > 40:
        raise ValueError(
            f"bad range in {shown(part)}: {shown(one) or 'nothing'} is neither a number nor a range such as 01-16"
        )
    first, last, step = match.groups()
    low, high = int(first), int(last or first)
    if high < low:
        raise ValueError(f"bad range in {shown(part)}: {one} runs backwards")
    if step is not None and int(step) == 0:
        raise ValueError(f"bad range in {shown(part)}: {one} has step 0")
    return (high - low) // int(step or 1) + 1


def _reason(error: Exception) -> str:
    """Return ClusterShell's message without the text that it quotes, which the caller names itself."""
    return re.split(r'\s*:\s*"', str(error).removeprefix('bad range: "'))[0]
