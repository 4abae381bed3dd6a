"""Python text of a host, parsed without being executed. Equal texts are parsed once for the whole fleet.

The cache is keyed by the text itself: a checksum that a host claims proves nothing.
"""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache

_ONE_AT_A_TIME = threading.Lock()


@lru_cache(maxsize=32)
def parse(text: str) -> ast.Module | str:
    """Return the syntax tree, or one line that says why there is none (``line 7: invalid syntax``)."""
    try:
        # An invalid escape in a host's file is no warning of ours; the filters are global to the process.
        with _ONE_AT_A_TIME, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.removeprefix("\ufeff"))
    except SyntaxError as error:
        return f"line {error.lineno or 0}: {error.msg}"
    except (RecursionError, MemoryError):
        return "nested too deeply"
    except ValueError as error:
        return str(error)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that an import may run, those under ``if``, ``try`` and ``with`` included."""
    pending = list(reversed(body))
    while pending:
        statement = pending.pop()
        yield statement
        inner: list[ast.stmt] = []
        if isinstance(statement, ast.If):
            inner = [*statement.body, *statement.orelse]
        elif isinstance(statement, ast.Try):
            handlers = [child for handler in statement.handlers for child in handler.body]
            inner = [*statement.body, *handlers, *statement.orelse, *statement.finalbody]
        elif isinstance(statement, ast.With):
            inner = statement.body
        pending.extend(reversed(inner))


def assigned(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """Return the name and the value of ``X = …`` or ``X: T = …``, or None for any other statement."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        return statement.target.id, statement.value
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            return target.id, statement.value
    return None


@lru_cache(maxsize=256)
def literals(text: str) -> Mapping[str, object]:
    """Return the module's names that are bound to a plain text or None (``__version__ = "0.6.2"``); first wins."""
    tree = parse(text)
    found: dict[str, object] = {}
    for statement in statements(tree.body) if isinstance(tree, ast.Module) else ():
        pair = assigned(statement)
        if pair and isinstance(pair[1], ast.Constant) and isinstance(pair[1].value, str | None):
            found.setdefault(pair[0], pair[1].value)
    return found
