"""What reads well and is probably meant otherwise: a byte-order mark, CRLF, tabs, one host under two names.

In: a text, each kind once a file, with the first place; or an inventory. Out: warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fleetcheck.errors import Problem
from fleetcheck.inventory.model import Inventory
from fleetcheck.inventory.source import Text

_TAB = re.compile(r"^[^#\n]*?(?<!\\)(\t)", re.MULTILINE)


def lint(text: Text, *, ansible: bool = False) -> Iterator[Problem]:
    """Yield what is suspicious in one file."""
    if text.bom:
        effect = (
            "Ansible takes it for a part of the first line" if ansible else "it is left out; save the file without"
        )
        yield Problem(text.name, 1, f"a byte-order mark (BOM); {effect}", 1)
    crlf = text.text.find("\r\n")
    if crlf >= 0:
        line = text.text.count("\n", 0, crlf) + 1
        column = crlf - text.text.rfind("\n", 0, crlf)
        yield Problem(text.name, line, "lines end in CRLF; save the file with LF", column)
    tab = _TAB.search(text.text)
    if tab is not None and not ansible:
        line = text.text.count("\n", 0, tab.start(1)) + 1
        yield Problem(
            text.name, line, "a tab; YAML aligns by spaces alone, write spaces", tab.start(1) - tab.start() + 1
        )


def same_hosts(inventory: Inventory, places: Mapping[tuple[str, str | int], tuple[str, int]]) -> Iterator[Problem]:
    """Yield each host whose name differs from another's by its final dot alone: to the resolver they are one."""
    bare = {target.name for target in inventory.targets if target.address is None}
    for name in sorted(one for one in bare if one.endswith(".") and one[:-1] in bare):
        source, line = places.get(("hosts", name), (inventory.source, None))
        yield Problem(source, line, f"{name} and {name[:-1]} are one host under two names; name it once")
