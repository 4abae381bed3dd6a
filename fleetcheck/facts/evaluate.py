"""A small evaluator of a module's top level, for constants. Nothing of the host is executed.

A name that would be bound to something that cannot be told is unknown, and so is all that rests on it.
"""

from __future__ import annotations

import ast
import sys
from pathlib import PurePosixPath
from typing import Any

from fleetcheck.facts.expressions import EXPRESSIONS, MAX_LENGTH, File, Module, Unknown, World, truth

MAX_STEPS = 20_000
MAX_DEPTH = 12
BUILTINS = ("str", "tuple", "list")
# Without these no FlashInfer with an env.py is imported at all.
NEEDED = ("flashinfer", "torch", "tvm_ffi")
_MISSING = object()
# The local in which every release computes its arch folder's name from the GPUs.
ARCH = "arch"


class _Return(Exception):  # noqa: N818 - control flow of the evaluated function
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Frame:
    """One scope: a module, or a call of one of its functions."""

    def __init__(self, world: World, file: File, parent: Frame | None = None) -> None:
        self.world = world
        self.file = file
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.budget: list[int] = [MAX_STEPS] if parent is None else parent.budget
        self.names: dict[str, Any] = {"__file__": file.path} if parent is None else {}

    def run(self, body: list[ast.stmt]) -> None:
        """Execute statements that bind names; all others are passed over."""
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef():
                self.names[node.name] = node
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, value)
            case ast.AugAssign(target=ast.Name(id=name)):
                self.names[name] = _MISSING
            case ast.If():
                self._branch(node)
            case ast.Try():
                self._try(node)
            case ast.With(body=body):
                self.run(body)
            case ast.Return() if self.parent is None:
                raise Unknown(f"line {node.lineno}: 'return' outside function")
            case ast.Return(value=value):
                raise _Return(self.value(value) if value else None)
            case ast.Import(names=aliases):
                for alias in aliases:
                    self.names[alias.asname or alias.name.split(".")[0]] = Module(
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            case ast.ImportFrom(module=module, names=aliases):
                for alias in aliases:
                    self.names[alias.asname or alias.name] = self._imported(module or "", alias.name, node.level)
            case ast.Raise() | ast.For() | ast.While() | ast.Match() | ast.Delete():
                if self.parent is not None:
                    raise Unknown(type(node).__name__)
                self._forget(node)
            case _:
                pass

    def _branch(self, node: ast.If) -> None:
        try:
            taken = node.body if truth(self.value(node.test)) else node.orelse
        except Unknown:
            if self.parent is not None:
                raise
            self._forget(node)
            return
        self.run(taken)

    def _try(self, node: ast.Try) -> None:
        """Run a body that does not raise; behind an import that may fail, what is bound is unknown."""
        end = len(node.body)
        if node.handlers:
            end = next((place for place, one in enumerate(node.body) if self._may_fail(one)), end)
        self.run(node.body[:end])
        rest = [*node.body[end:], *node.orelse]
        if end == len(node.body):
            self.run(node.orelse)
            rest = []
        elif self.parent is not None and any(isinstance(n, ast.Return) for one in rest for n in ast.walk(one)):
            raise Unknown("try")
        for part in (*rest, *node.handlers):
            self._forget(part, but=ARCH)
        self.run(node.finalbody)

    def _may_fail(self, statement: ast.stmt) -> bool:
        """Whether a statement imports a module that is not known to be there."""
        names: list[str] = []
        match statement:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=module, level=level):
                names = ["" if level else module or ""]
        tops = {name.split(".")[0] for name in names}
        there = {name for name, found in self.world.packages.items() if found}
        return not tops <= {*sys.stdlib_module_names, *NEEDED, *there}

    def _forget(self, node: ast.AST, but: str | None = None) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store | ast.Del) and inner.id != but:
                self.names[inner.id] = _MISSING

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            self._forget(target)
            return
        try:
            self.names[target.id] = self.value(value)
        except Unknown:
            local = self.parent is not None and target.id == ARCH and self.world.arch is not None
            self.names[target.id] = self.world.arch if local else _MISSING

    def _imported(self, module: str, name: str, level: int) -> Any:
        if level and module.endswith("version") and name == "__version__":
            return self.world.version if self.world.version else _MISSING
        if not level and module == "pathlib" and name in ("Path", "PurePath", "PosixPath"):
            return Module("pathlib.Path")
        return _MISSING if level else Module(f"{module}.{name}")

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression, or raise :class:`Unknown`."""
        self.budget[0] -= 1
        if self.budget[0] < 0:
            raise Unknown("too long")
        handler = EXPRESSIONS.get(type(node))
        if handler is None:
            raise Unknown(type(node).__name__)
        found = handler(self, node)
        if isinstance(found, str | PurePosixPath) and len(str(found)) > MAX_LENGTH:
            raise Unknown("too long")
        return found

    def lookup(self, name: str) -> Any:
        """Return what a name is bound to here or in an outer scope."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                found = frame.names[name]
                if found is _MISSING:
                    raise Unknown(name)
                return found
            frame = frame.parent
        if name in BUILTINS:
            return Module(name)
        raise Unknown(name)

    def call(self, function: ast.FunctionDef, arguments: list[Any]) -> Any:
        """Run one of the module's own functions."""
        if self.depth >= MAX_DEPTH or function.decorator_list or len(arguments) > len(function.args.args):
            raise Unknown(function.name)
        outer = self
        while outer.parent is not None:
            outer = outer.parent
        inner = Frame(self.world, self.file, outer)
        inner.depth = self.depth + 1
        inner.names.update({argument.arg: _MISSING for argument in function.args.args})
        inner.names.update({a.arg: value for a, value in zip(function.args.args, arguments, strict=False)})
        try:
            inner.run(function.body)
        except _Return as done:
            return done.value
        return None
