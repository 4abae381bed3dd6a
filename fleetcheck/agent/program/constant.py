"""The folder that an edited ``jit/env.py`` names for FLASHINFER_CSRC_DIR, so that it can be looked at here.

Only a line that is not the stock one is evaluated; the controller evaluates the whole file again, with care.
"""

from __future__ import annotations

import os
from typing import Any, Dict

NAME = "FLASHINFER_CSRC_DIR"
OF_PATHS = ("dirname", "abspath", "realpath", "normpath", "expanduser")
STOCK = '_package_root/"data"/"csrc"'


def named_csrc(text: str, file: str) -> "str | None":
    """Return the folder that ``text`` (of ``file``, a real path) sets; None where it is stock or unclear."""
    lines = [line for line in text.splitlines() if line.startswith(NAME)]
    stock = [line for line in lines if line.partition("=")[2].split("#")[0].replace(" ", "") == STOCK]
    if not lines or (len(stock) == len(lines) and "CSRC" not in text.replace("\n" + NAME, "")):
        return None
    import ast

    try:
        module = ast.parse(text)
        assigned: Dict[str, Any] = {}
        for node in module.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                assigned[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                assigned[node.target.id] = node.value
        value = _value(assigned[NAME], assigned, file, 0)
    except Exception:
        return None  # the text goes to the controller, which says why it cannot be read
    return os.path.normpath(value) if value.startswith("/") else None


def _value(node: Any, assigned: "Dict[str, Any]", file: str, depth: int) -> str:
    import ast

    if depth > 40:
        raise ValueError("too deep")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return file if node.id == "__file__" else _value(assigned[node.id], assigned, file, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add)):
        left, right = (_value(side, assigned, file, depth + 1) for side in (node.left, node.right))
        return os.path.join(left, right) if isinstance(node.op, ast.Div) else left + right
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        return os.path.dirname(_value(node.value, assigned, file, depth + 1))
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
        place = _value(node.value.value, assigned, file, depth + 1)
        # Up to Python 3.8 the parser wraps a subscript in ast.Index.
        index: Any = node.slice
        if type(index).__name__ == "Index":
            index = index.value
        for _ in range(int(ast.literal_eval(index)) + 1):
            place = os.path.dirname(place)
        return place
    if isinstance(node, ast.Call):
        return _called(node, assigned, file, depth + 1)
    raise ValueError("not a path")


def _called(node: Any, assigned: "Dict[str, Any]", file: str, depth: int) -> str:
    import ast

    args = [_value(arg, assigned, file, depth) for arg in node.args]
    name = ast.dump(node.func)
    attribute = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if getattr(getattr(node.func, "value", None), "attr", "") == "path" and attribute in OF_PATHS:
        return str(getattr(os.path, attribute)(*args))
    if attribute in ("resolve", "absolute", "expanduser"):
        place = _value(node.func.value, assigned, file, depth)
        return os.path.expanduser(place) if attribute == "expanduser" else os.path.realpath(place)
    if attribute in ("Path", "PurePath", "PosixPath", "join", "str", "fspath"):
        return os.path.join(*args)
    if attribute == "joinpath":
        return os.path.join(_value(node.func.value, assigned, file, depth), *args)
    if attribute == "home":
        return os.path.expanduser("~")
    if attribute in ("get", "getenv") and ("environ" in name or "getenv" in name):
        return str(os.environ.get(*args))
    raise ValueError("not a path")
