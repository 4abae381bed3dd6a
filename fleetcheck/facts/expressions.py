"""Expressions of path arithmetic: enough of Python to read constants, and nothing that acts.

Every value is a text, a number, a list, None or a PurePosixPath; an imported name is a :class:`Module`. Whatever
is not known here raises :class:`Unknown`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol

MAX_LENGTH = 4096
MAX_PARTS = 200
# What the agent sends of a login's environment; that any other variable is absent proves nothing.
KNOWN_VARIABLES = ("HOME", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST")


class Unknown(Exception):  # noqa: N818 - not an error: the value cannot be told from the text alone
    """The value cannot be told from the text and the known environment."""


@dataclass(frozen=True, slots=True)
class World:
    """What is known around a module. ``env`` is None where no environment came back.

    ``arch`` is the arch folder that detection would give, ``packages`` tells of an import name whether it is
    installed, ``version`` is ``flashinfer.__version__``.
    """

    env: Mapping[str, str] | None = None
    arch: str | None = None
    version: str | None = None
    packages: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class File:
    """Where the module was found, and the real path of that."""

    path: PurePosixPath
    real: PurePosixPath


@dataclass(frozen=True, slots=True)
class Module:
    """A dotted name that was imported; only the calls below know what some of them do."""

    name: str


class Scope(Protocol):
    """Where an expression is evaluated: names, functions, the module's own file, the world around."""

    world: World
    file: File

    def value(self, node: ast.expr) -> Any: ...
    def lookup(self, name: str) -> Any: ...
    def call(self, function: ast.FunctionDef, arguments: list[Any]) -> Any: ...


def truth(value: Any) -> bool:
    """Return whether a value is true, or raise :class:`Unknown`."""
    if isinstance(value, Module | ast.FunctionDef):
        raise Unknown("truth")
    return bool(value)


def _name(scope: Scope, node: ast.Name) -> Any:
    return scope.lookup(node.id)


def _constant(_: Scope, node: ast.Constant) -> Any:
    if node.value is None or isinstance(node.value, str | int):
        return node.value
    raise Unknown("constant")


def _sequence(scope: Scope, node: ast.List | ast.Tuple) -> list[Any]:
    return [scope.value(item) for item in node.elts]


def _comprehension(scope: Scope, node: ast.GeneratorExp | ast.ListComp) -> list[Any]:
    # Over nothing it is nothing, whatever it asks of each: FLASHINFER_AOT_DIRS of 0.7.x without a jit-cache.
    if scope.value(node.generators[0].iter) == []:
        return []
    raise Unknown("comprehension")


def _binary(scope: Scope, node: ast.BinOp) -> Any:
    left, right = scope.value(node.left), scope.value(node.right)
    path = isinstance(left, PurePosixPath) or isinstance(right, PurePosixPath)
    if (
        isinstance(node.op, ast.Div)
        and path
        and all(isinstance(one, PurePosixPath | str) for one in (left, right))
    ):
        return PurePosixPath(left) / right
    if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, str | list):
        if len(left) + len(right) > MAX_LENGTH:
            raise Unknown("too long")
        return left + right
    raise Unknown("operator")


def _formatted(scope: Scope, node: ast.JoinedStr) -> str:
    pieces = []
    for piece in node.values:
        if isinstance(piece, ast.FormattedValue):
            if piece.conversion != -1 or piece.format_spec is not None:
                raise Unknown("format")
            pieces.append(_text(scope.value(piece.value)))
        else:
            pieces.append(_text(scope.value(piece)))
    return "".join(pieces)


def _text(value: Any) -> str:
    if isinstance(value, str | int | PurePosixPath):
        return str(value)[:MAX_LENGTH]
    raise Unknown("text")


def _conditional(scope: Scope, node: ast.IfExp) -> Any:
    return scope.value(node.body if truth(scope.value(node.test)) else node.orelse)


def _boolean(scope: Scope, node: ast.BoolOp) -> Any:
    stop = isinstance(node.op, ast.Or)
    found: Any = None
    for item in node.values:
        found = scope.value(item)
        if truth(found) is stop:
            return found
    return found


def _unary(scope: Scope, node: ast.UnaryOp) -> Any:
    value = scope.value(node.operand)
    if isinstance(node.op, ast.Not):
        return not truth(value)
    raise Unknown("operator")


def _compare(scope: Scope, node: ast.Compare) -> bool:
    left = scope.value(node.left)
    if len(node.ops) != 1:
        raise Unknown("comparison")
    right = scope.value(node.comparators[0])
    if any(isinstance(side, Module | ast.FunctionDef) for side in (left, right)):
        raise Unknown("comparison")
    match node.ops[0]:
        case ast.Is() if left is None or right is None:
            return left is right
        case ast.IsNot() if left is None or right is None:
            return left is not right
        case ast.Eq() | ast.NotEq() if not isinstance(left, list) and not isinstance(right, list):
            return bool(left == right) is isinstance(node.ops[0], ast.Eq)
    raise Unknown("comparison")


def _subscript(scope: Scope, node: ast.Subscript) -> Any:
    container, key = scope.value(node.value), scope.value(node.slice)
    if container == Module("os.environ"):
        return _variable(scope, key, _unset)
    if isinstance(container, list) and isinstance(key, int) and -len(container) <= key < len(container):
        return container[key]
    raise Unknown("subscript")


def _unset() -> Any:
    raise Unknown("variable not set")


def _attribute(scope: Scope, node: ast.Attribute) -> Any:
    owner = scope.value(node.value)
    if isinstance(owner, Module):
        return Module(f"{owner.name}.{node.attr}")
    if isinstance(owner, PurePosixPath):
        if node.attr == "parents" and len(owner.parts) <= MAX_PARTS:
            return list(owner.parents)
        if node.attr in ("parent", "name", "stem"):
            return getattr(owner, node.attr)
    raise Unknown(node.attr)


def _call(scope: Scope, node: ast.Call) -> Any:
    if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
        raise Unknown("arguments")
    if isinstance(node.func, ast.Attribute):
        owner = scope.value(node.func.value)
        if not isinstance(owner, Module):
            return _method(scope, owner, node.func.attr, [scope.value(argument) for argument in node.args])
    function = scope.value(node.func)
    if isinstance(function, ast.FunctionDef):
        return scope.call(function, [scope.value(argument) for argument in node.args])
    if not isinstance(function, Module):
        raise Unknown("call")
    if function.name in ("os.getenv", "os.environ.get") and 1 <= len(node.args) <= 2:
        name, *rest = node.args
        # The default is evaluated late: a home folder that is not known does not matter where the variable is set.
        return _variable(scope, scope.value(name), lambda: scope.value(rest[0]) if rest else None)
    return _known(scope, function.name, [scope.value(argument) for argument in node.args])


def _method(scope: Scope, owner: Any, name: str, arguments: list[Any]) -> Any:
    if isinstance(owner, PurePosixPath):
        if name == "resolve" and not arguments:
            return _resolved(scope, owner)
        if name == "absolute" and not arguments and owner.is_absolute():
            return owner
        if name in ("as_posix", "__str__", "__fspath__") and not arguments:
            return str(owner)
        if name == "expanduser" and not arguments:
            return _expand(scope, owner)
        if name == "joinpath" and all(isinstance(one, str | PurePosixPath) for one in arguments):
            return owner.joinpath(*arguments)
    raise Unknown(name)


def _known(scope: Scope, name: str, arguments: list[Any]) -> Any:
    paths = bool(arguments) and all(isinstance(one, str | PurePosixPath) for one in arguments)
    match name:
        case "pathlib.Path" | "pathlib.PurePath" | "pathlib.PosixPath" if paths:
            return PurePosixPath(*arguments)
        case "pathlib.Path.home":
            return _home(scope)
        case "os.path.join" if paths:
            return str(PurePosixPath(*arguments))
        case "os.path.dirname" if paths:
            return str(PurePosixPath(arguments[0]).parent)
        case "os.path.expanduser" if paths:
            return str(_expand(scope, PurePosixPath(arguments[0])))
        case "os.path.realpath" | "os.path.abspath" if paths:
            return str(_resolved(scope, PurePosixPath(arguments[0])))
        case "tuple" | "list" if len(arguments) == 1 and isinstance(arguments[0], list):
            return list(arguments[0])
        case "os.fspath" | "str" if paths and len(arguments) == 1:
            return str(arguments[0])
        case "importlib.util.find_spec" if len(arguments) == 1 and arguments[0] in scope.world.packages:
            return True if scope.world.packages[arguments[0]] else None
    raise Unknown(name)


def _variable(scope: Scope, name: object, default: Callable[[], Any]) -> Any:
    env = scope.world.env
    if not isinstance(name, str) or env is None:
        raise Unknown("environment")
    if name in env:
        return env[name]
    if name not in KNOWN_VARIABLES and not name.startswith("FLASHINFER_"):
        raise Unknown(name)
    return default()


def _home(scope: Scope) -> PurePosixPath:
    folder = (scope.world.env or {}).get("HOME")
    if not folder:
        raise Unknown("HOME")
    return PurePosixPath(folder)


def _resolved(scope: Scope, path: PurePosixPath) -> PurePosixPath:
    # Links are the host's: known are the module's own file, and the folders above its real path.
    if path == scope.file.path:
        return scope.file.real
    if path == scope.file.real or path in scope.file.real.parents:
        return path
    raise Unknown("resolve")


def _expand(scope: Scope, path: PurePosixPath) -> PurePosixPath:
    if path.parts[:1] == ("~",):
        return _home(scope).joinpath(*path.parts[1:])
    if path.parts[:1] and path.parts[0].startswith("~"):
        raise Unknown("home of another user")
    return path


EXPRESSIONS: dict[type[ast.expr], Callable[[Scope, Any], Any]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.GeneratorExp: _comprehension,
    ast.ListComp: _comprehension,
    ast.BinOp: _binary,
    ast.JoinedStr: _formatted,
    ast.IfExp: _conditional,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.Subscript: _subscript,
    ast.Attribute: _attribute,
    ast.Call: _call,
}
