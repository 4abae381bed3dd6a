"""What is wrong with a value: one line with the key, what was given, and what is allowed.

In: pydantic's errors and the tree with its lines. Out: :class:`fleetcheck.errors.Problem` records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from fleetcheck.errors import Problem
from fleetcheck.inventory import shape, tree
from fleetcheck.inventory.model import Expect
from fleetcheck.inventory.wording import meant, shown

Loc = tuple[str | int, ...]

_RANGE = "a PEP 440 range such as >=580.95.05, or one version"
_TEXT = "text"
ALLOWED: Mapping[str, str] = {
    "defaults": "a mapping of settings",
    "groups": "a mapping of group names to groups",
    "waivers": "a list of waivers",
    "maintenance": "a list of hosts to leave alone",
    "hosts": "a nodeset such as gpu[01-16].lab, or a list of them",
    "children": "a list of group names",
    "address": "a host name or an IP address",
    "port": "a whole number from 1 to 65535",
    "user": "a login name",
    "identity_file": "the path of a private key",
    "known_hosts": "the path of a known_hosts file",
    "proxy_jump": "[USER@]HOST[:PORT], several joined by commas, or none",
    "proxy_command": "a shell command on one line, with the tokens of ssh such as %h and %p",
    "ssh_config": "the path of an ssh config, or none",
    "connection": "ssh or local",
    "sudo": "true or false",
    "sysroot": "an absolute path on the host",
    "venvs": "a list of paths, globs, running, usual, or {path, expect}",
    "scan": "a path, folder or glob that begins with / or ~, or a list of them",
    "path": "a path or glob that begins with / or ~, running, or usual",
    "expect": "a mapping of expectations",
    "gpus": "a whole number from 0 to 64",
    "gpu_name": _TEXT,
    "compute_capability": "major.minor, such as 12.0",
    "csrc_dir": "a path",
    "allreduce_fusion": "any, required or forbidden",
    "link": _TEXT,
    "files": "a mapping of paths to sha256 sums in lower-case hex",
    "rules": "a mapping of rules, families or globs such as csrc-* to info, warning, error, critical or ignore",
    "rule": "the name of a rule, such as pcie-width",
    "reason": _TEXT,
    "until": "a day, written YYYY-MM-DD",
    **dict.fromkeys(("driver", "flashinfer", "sglang", "vllm", "torch_cuda", "nvcc", "venv_python"), _RANGE),
}
_SECRET = re.compile(r"pass(word|wd|phrase)?$|^pass|secret|token|private_?key$", re.IGNORECASE)


def problems(name: str, root: tree.Node, errors: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Return one problem for each of pydantic's errors on the document ``root`` of the file ``name``."""
    return [explain(name, root, error) for error in errors]


def explain(name: str, root: tree.Node, error: Mapping[str, Any]) -> Problem:
    """Return the problem that one of pydantic's errors means."""
    loc: Loc = tuple(error["loc"])
    at, node, depth = find(root, loc)
    kind = str(error["type"])
    if kind == "extra_forbidden":
        return Problem(name, at.line, _unknown(loc), at.column)
    if kind == "missing":
        message = f"{key_path(loc[:-1])}: {loc[-1]} is missing; allowed: {_allowed(loc)}"
        return Problem(name, at.line, message, at.column)
    where = key_path(loc[:depth])
    if kind == "value_error":
        return Problem(name, at.line, f"{where}: {error['ctx']['error']}", at.column)
    if isinstance(node, tree.Scalar) and node.at.line == at.line and node.at.column > at.column:
        at = node.at  # what an alias stands for has its place elsewhere
    message = f"{where}: given {_given(node)}; allowed: {_allowed(loc)}{_hint(node, kind, loc)}"
    return Problem(name, at.line, message, at.column)


def empty(name: str, at: tree.Mark, loc: Loc) -> Problem:
    """Return the problem of a key, or an item of a list, without a value."""
    model = model_at(loc[:-1])
    optional = (
        model is not None and loc[-1] in model.model_fields and not model.model_fields[str(loc[-1])].is_required()
    )
    rest = "; or leave the key out" if optional else ""
    return Problem(name, at.line, f"{key_path(loc)}: given nothing; allowed: {_allowed(loc)}{rest}", at.column)


def find(root: tree.Node, loc: Loc) -> tuple[tree.Mark, tree.Node, int]:
    """Follow ``loc`` as far as the tree goes: the place of the last key, the node there, and how far that was."""
    at, node = root.at, root
    for depth, step in enumerate(loc):
        if isinstance(node, tree.Mapping) and step in node.entries:
            at, node = node.entries[str(step)]
        elif isinstance(node, tree.Sequence) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            at = node.at
        else:
            return at, node, depth
    return at, node, len(loc)


def key_path(loc: Loc) -> str:
    """Return ``loc`` as a user would write it: ``groups.rtx6000.venvs[0].path``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{shown(step)}" for step in loc)
    return text.removeprefix(".") or "the inventory"


def model_at(loc: Loc) -> type[BaseModel] | None:
    """Return the record that stands at ``loc``."""
    match loc:
        case ():
            return shape.Document
        case (*_, "expect"):
            return Expect
        case (*_, "venvs", int()):
            return shape.VenvEntry
        case ("defaults",) | ("hosts", _):
            return shape.Settings
        case ("groups", _):
            return shape.Group
        case ("waivers", _):
            return shape.WaiverEntry
        case ("maintenance", _):
            return shape.MaintenanceEntry
    return None


def is_secret(key: str) -> bool:
    """Return whether a key is called as what an inventory never holds."""
    return bool(_SECRET.search(key))


def _unknown(loc: Loc) -> str:
    key = str(loc[-1])
    if is_secret(key):
        return f"{key_path(loc)}: an inventory holds no secrets; use identity_file, or a key in the ssh agent"
    model = model_at(loc[:-1])
    known = tuple(model.model_fields) if model else ()
    return f"{key_path(loc)}: unknown key{meant(key, known)}; allowed: {', '.join(known)}"


def _allowed(loc: Loc) -> str:
    """Return what may stand at ``loc``, by the last of its keys that has a meaning of its own."""
    match loc:
        case ("hosts",):
            return "a mapping of host names to settings"
        case ("groups" | "hosts" as section, _):
            return f"a mapping of the settings of a {section[:-1]}"
        case ("waivers", int()):
            return "a mapping of rule, hosts, reason and until"
        case ("maintenance", int()):
            return "a mapping of hosts, reason and until"
        case ("waivers" | "maintenance", _, "hosts", *_):
            return "a nodeset, a group, or another pattern, or a list of them"
        case (*_, "venvs", int()):
            return ALLOWED["path"]
        case (*_, "files", str()):
            return "a sha256 sum of 64 lower-case hex digits"
    named = [step for step in loc if isinstance(step, str) and step in ALLOWED]
    return ALLOWED[named[-1]] if named else "another value"


def _given(node: tree.Node) -> str:
    if isinstance(node, tree.Mapping):
        return "a mapping"
    if isinstance(node, tree.Sequence):
        return "a list" if node.items else "an empty list"
    if re.search(r"\S:\S*@", node.text):
        return "a value with a password in it"
    if "PRIVATE KEY" in node.text:
        return "a private key"
    return f'"{shown(node.text)}"' if node.quoted else shown(node.text) or "nothing"


def _hint(node: tree.Node, kind: str, loc: Loc) -> str:
    """Return what probably happened, where YAML reads something else than was written."""
    if not isinstance(node, tree.Scalar):
        return ""
    if isinstance(node.value, bool) and kind != "bool_type":
        return f"; {node.text} is a boolean to YAML, write it in quotes if it is meant"
    if kind in ("int_type", "not_allowed") and re.fullmatch(r"0+[0-7]+", node.text) and not node.quoted:
        return f"; {node.text} is the octal number {int(node.text, 8)} to YAML, write {int(node.text)}"
    if loc[-1:] in (("port",), ("gpus",)) and node.quoted and re.fullmatch(r"[1-9][0-9]{0,4}", node.text):
        return f"; write {node.text} without quotes"
    if loc[-1:] == ("sudo",) and node.quoted:
        return "; write it without quotes"
    if isinstance(loc[-1], int) or loc[-1] in ("path", "allreduce_fusion"):
        return meant(node.text, ("running", "usual", "required", "forbidden"))
    return ""
