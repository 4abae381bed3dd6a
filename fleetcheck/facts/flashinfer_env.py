"""The constants of ``flashinfer/jit/env.py``, evaluated from its text. Nothing of the host is executed.

Paths built from ``__file__``, literals and the login's environment can be told; a constant that rests on
anything else (a GPU query, a companion package) is left out, not guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath

from fleetcheck.facts import shape
from fleetcheck.facts.evaluate import Frame
from fleetcheck.facts.expressions import File, Unknown, World
from fleetcheck.facts.source import assigned, parse, statements

CSRC = "FLASHINFER_CSRC_DIR"
MAX_PATHS = 100


@dataclass(frozen=True, slots=True)
class Constants:
    """``values`` maps a constant to its path, or to the paths of a list; ``error`` tells why csrc is not told."""

    values: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    error: str | None = None


def constants(text: str, path: str, real: str, world: World) -> Constants:
    """Evaluate the text of ``jit/env.py``, found at ``path``, which is ``real`` without links.

    In a fleet most hosts have the same text among the same things: it is evaluated once for all of them.
    """
    env = None if world.env is None else tuple(sorted(world.env.items()))
    return _evaluated(text, (path, real), env, tuple(sorted(world.packages.items())), (world.arch, world.version))


@lru_cache(maxsize=64)
def _evaluated(
    text: str,
    places: tuple[str, str],
    env: tuple[tuple[str, str], ...] | None,
    packages: tuple[tuple[str, bool], ...],
    detected: tuple[str | None, str | None],
) -> Constants:
    world = World(None if env is None else dict(env), *detected, dict(packages))
    path, real = places
    tree = parse(text)
    if isinstance(tree, str):
        return Constants(error=tree)
    frame = Frame(world, File(PurePosixPath(path), PurePosixPath(real)))
    try:
        frame.run(tree.body)
    except (Unknown, RecursionError) as reason:
        return Constants(error=str(reason) or "nested too deeply")
    names = {pair[0] for statement in statements(tree.body) if (pair := assigned(statement))}
    values: dict[str, str | tuple[str, ...]] = {}
    for name in sorted(names):
        if name.isupper() and not name.startswith("_") and (value := _plain(frame.names.get(name))) is not None:
            values[name] = value
    return Constants(values, None if CSRC in values else _unread(tree))


SKIPPED = frozenset({"exec", "eval", "globals", "locals", "setattr", "vars", "__dict__", "modules", "__import__"})


def skipped(text: str) -> str | None:
    """Return what an edited ``jit/env.py`` does that the evaluator passes over, or None."""
    tree = parse(text)
    nodes = list(ast.walk(tree)) if isinstance(tree, ast.Module) else []
    sys_imported = any(
        isinstance(node, ast.Import | ast.ImportFrom)
        and "sys" in {getattr(node, "module", None), *(alias.name for alias in node.names)}
        for node in nodes
    )
    for node in nodes:
        said: str | None = None
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                said = "a star import"
            case ast.Name(id="modules", ctx=ast.Store()) | ast.Attribute(attr="modules") if not sys_imported:
                said = None  # a field of AOTProvider in 0.7.x
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in SKIPPED:
                said = name
            case ast.Name(id="__name__"):
                said = "what is handed the module's name"
            case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.MatchMapping(rest=name) if name == CSRC:
                said = f"case {CSRC}"
            case ast.Global(names=names) if CSRC in names:
                said = f"global {CSRC}"
            case ast.NamedExpr(target=ast.Name(id=name)) if name == CSRC:
                said = f"{CSRC} := ..."
            case ast.withitem(optional_vars=ast.Name(id=name) as node) if name == CSRC:
                said = f"with ... as {CSRC}"
            case ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name) if name == CSRC:
                said = f"{name} is no path"
        if said:
            return f"line {getattr(node, 'lineno', 0)}: {said} may set {CSRC}"
    return None


def _plain(value: object) -> str | tuple[str, ...] | None:
    if isinstance(value, list) and len(value) <= MAX_PATHS:
        paths = tuple(text for item in value if (text := _path(item)) is not None)
        return paths if len(paths) == len(value) else None
    return _path(value)


def _path(value: object) -> str | None:
    return shape.text(str(value)) if isinstance(value, PurePosixPath | str) else None


def _unread(tree: ast.Module) -> str:
    lines = [statement.lineno for statement in statements(tree.body) if (assigned(statement) or ("",))[0] == CSRC]
    return f"line {lines[-1]}: {CSRC} is computed" if lines else f"{CSRC} is not set there"
