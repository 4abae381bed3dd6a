"""What reads well and is probably meant otherwise: a byte-order mark, CRLF, tabs.

In: a text. Out: warnings, each kind once a file, with the first place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetcheck.errors import Problem
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
