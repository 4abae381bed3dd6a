"""What kind of inventory a text is: told by its content, never by its name.

In: a text. Out: one :data:`Form`. A text of no kind is taken for the native one, whose errors say what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

from fleetcheck.inventory.nodes import parts

Form = Literal["native", "ansible", "ansible-list", "script", "ssh_config", "names"]
"""``ansible`` is for Ansible's own parsers, ``ansible-list`` is what ``ansible-inventory --list`` prints."""

SECTIONS = frozenset({"defaults", "groups", "hosts", "waivers", "maintenance"})
_TOP_KEY = re.compile(r"""^(["']?)([^\s"'#\[\]{},&*!|>%@`:][^\s"':]*)\1[ \t]*:(?=\s|$)""", re.MULTILINE)
_SECTION = re.compile(r"""\[[A-Za-z_][^\]\[,"'{}]*\][ \t]*(?:[#;].*)?""")
_SSH = re.compile(r"(?:host|match|include)(?:[ \t]*=[ \t]*|[ \t]+)\S", re.IGNORECASE)
_PART = re.compile(r"""[ \t]+["']?(?:hosts|children|vars)["']?[ \t]*:""")
_FLOW_PART = re.compile(r"""["']?[^\s"':{}#]+["']?[ \t]*:[ \t]*\{[ \t]*["']?(?:hosts|children|vars)["']?[ \t]*:""")
_NAMES = re.compile(r"(?:[A-Za-z0-9_.,/-]|\[[0-9,/ -]*\])+")
_ANSIBLE_LINE = re.compile(r"\S+[ \t]+[A-Za-z_]\w*[ \t]*=|\S*\[[0-9A-Za-z]+:[0-9A-Za-z]+(?::\d+)?\]")


def form_of(text: str) -> Form:
    """Return the form of ``text``."""
    if text.startswith("#!"):
        return "script"
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and line[0] not in "#;" and line != "---"]
    if not lines:
        return "native"
    if lines[0].startswith("{"):
        try:
            return _of_json(json.loads(text))
        except (ValueError, RecursionError):
            return _of_keys(re.findall(r"""["']?([\w.-]+)["']?\s*:""", text[:4096]), text)
    if _SECTION.fullmatch(lines[0]):
        return "ansible"
    keys = [match[2] for match in _TOP_KEY.finditer(text)]
    if keys:
        return _of_keys(keys, text)
    if any(_SSH.match(line) for line in lines):
        return "ssh_config"
    bare = [re.split(r"\s#", line)[0] for line in lines]
    if all(map(_is_names, bare)):
        return "names"
    if any(_SECTION.fullmatch(line) or _ANSIBLE_LINE.match(line) for line in bare):
        return "ansible"
    return "native"


def _is_names(line: str) -> bool:
    """Return whether a line holds only names, or what was meant as one (``user@host``)."""
    return not line.startswith("- ") and all(_NAMES.fullmatch(word) or "@" in word for word in parts(line))


def _of_keys(keys: Collection[str], text: str) -> Form:
    if "_meta" in keys:
        return "ansible-list"
    if {"all", "plugin"} & set(keys):
        return "ansible"
    if SECTIONS & set(keys):
        return "native"
    return "ansible" if _holds_groups(text) else "native"


def _holds_groups(text: str) -> bool:
    """Return whether what stands right below a key at the top is a part of an Ansible group."""
    above = False
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if (above and _PART.match(line)) or _FLOW_PART.match(line):
            return True
        above = not line[0].isspace() and line.split("#")[0].rstrip().endswith(":")
    return False


def _of_json(value: Any) -> Form:
    if not isinstance(value, Mapping):
        return "native"
    groups = [group for group in value.values() if isinstance(group, Mapping)]
    if "_meta" in value or any(isinstance(group.get("hosts"), list) for group in groups):
        return "native" if SECTIONS & value.keys() and "_meta" not in value else "ansible-list"
    if "all" in value or "plugin" in value:
        return "ansible"
    if SECTIONS & value.keys():
        return "native"
    return "ansible" if any({"hosts", "children", "vars"} & group.keys() for group in groups) else "native"
