"""Names, literals and conditions of start-up code, as they stand in its text: what :mod:`startcode` follows."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from fleetcheck.agent.program.constant import _value

DEEPEST = 12
LONGEST = 40


def module_files(places: "List[str]", name: str) -> "List[str]":
    """Return the files that an import of a name, dotted or not, would run: those of its packages first."""
    found: "List[str]" = []
    for part in name.split(".")[:DEEPEST]:
        for place in places:
            files = (place + "/" + part + "/__init__.py", place + "/" + part + ".py")
            file = next((one for one in files if os.path.isfile(one)), None)
            if file is not None:
                break
        else:
            break
        found.append(file)
        places = [file[: -len("/__init__.py")]] if file.endswith("/__init__.py") else []
    return found


class Names:
    """What a text has defined so far: nodes of values, functions, and the modules that names stand for."""

    def __init__(self, file: str, first: int = 1, *, direct: bool = False) -> None:
        self.file, self.first, self.direct = file, first, direct
        self.values: "Dict[str, Any]" = {}
        self.functions: "Dict[str, Any]" = {}
        self.modules = {"sys": "sys", "os": "os", "site": "site"}

    def copy(self) -> "Names":
        """Return the names as a function of this text finds them; what it defines stays its own."""
        made = Names(self.file, self.first, direct=self.direct)
        made.values, made.functions, made.modules = dict(self.values), dict(self.functions), dict(self.modules)
        return made


def dotted(node: Any, names: Names, depth: int = 0) -> str:
    """Return the dotted name that an expression is, of the module that its first name stands for.

    ``getattr(sys, "path")``, ``vars(sys)["path"]`` and the like are names too; ``?`` stands for what is computed.
    """
    import ast

    if depth > LONGEST:
        return ""
    if isinstance(node, ast.Attribute):
        # Whatever module it is taken from (os.sys), there is one sys.
        return "sys" if node.attr == "sys" else dotted(node.value, names, depth + 1) + "." + node.attr
    if isinstance(node, ast.Name):
        return names.modules.get(node.id, node.id)
    if isinstance(node, ast.Call) and node.args and isinstance(node.func, (ast.Name, ast.Attribute)):
        called = dotted(node.func, names, depth + 1)
        if called in ("__import__", "importlib.import_module"):
            first = str(getattr(node.args[0], "value", ""))
            return names.modules.setdefault(first, first)
        if called == "getattr" and len(node.args) > 1:
            return dotted(node.args[0], names, depth + 1) + "." + (plain(node.args[1], names) or "?")
        if called == "vars":
            return dotted(node.args[0], names, depth + 1) + ".__dict__"
    if isinstance(node, ast.Subscript):
        owner = dotted(node.value, names, depth + 1)
        if owner == "sys.modules":
            return plain(node.slice, names)
        if owner.endswith(".__dict__"):
            return owner[: -len("__dict__")] + (plain(node.slice, names) or "?")
    return ""


def plain(node: Any, names: Names) -> str:
    """Return the text that an expression is; none where that is not read."""
    try:
        # Up to Python 3.8 the parser wraps a subscript in ast.Index.
        return text_of(node.value if type(node).__name__ == "Index" else node, names)
    except Exception:
        return ""


def text_of(node: Any, names: Names) -> str:
    return _value(node, names.values, names.file, 0)


def condition(node: Any, names: Names, path: "List[str]") -> "bool | None":
    """Return whether a condition holds, None where that is not read."""
    import ast

    try:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            holds = condition(node.operand, names, path)
            return None if holds is None else not holds
        if isinstance(node, ast.Constant):
            return bool(node.value)
        if isinstance(node, ast.Compare) and getattr(node.left, "id", "") == "__name__":
            return isinstance(node.ops[0], ast.NotEq)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            if dotted(node.comparators[0], names) == "sys.path":
                return (text_of(node.left, names) in path) == isinstance(node.ops[0], ast.In)
        if isinstance(node, ast.Call) and dotted(node.func, names) in (
            "os.path.isdir", "os.path.exists", "os.path.isfile",
        ):  # fmt: skip
            return bool(getattr(os.path, dotted(node.func, names)[8:])(text_of(node.args[0], names)))
    except Exception:
        return None  # it asks for what is not read here
    return None


def tables_of(text: str) -> "Optional[Tuple[Dict[Any, Any], Dict[Any, Any]]]":
    """Return the tables of setuptools' finder, of packages and of namespaces; None where they are no literals."""
    import ast

    tables: "Dict[str, Any]" = {}
    try:
        for node in ast.parse(text).body:
            target = getattr(node, "target", None) or getattr(node, "targets", [None])[0]
            name = getattr(target, "id", None)
            if name in ("MAPPING", "NAMESPACES"):
                tables[name] = ast.literal_eval(getattr(node, "value"))  # noqa: B009  not every node has one
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    packages, spaces = tables.get("MAPPING"), tables.get("NAMESPACES")
    if not isinstance(packages, dict):
        return None
    return packages, spaces if isinstance(spaces, dict) else {}
