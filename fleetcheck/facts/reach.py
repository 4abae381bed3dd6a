"""Which GPU generations can come to a point of a function: its branches followed, never executed.

Conditions are true, false or open. What asks for a compute capability is settled for one major at a time; what is
not NVIDIA's is false; all else is open, and both branches are followed. So a condition that was edited by hand is
judged by what it does: ``(_is_sm90 or _is_sm100) and ready`` keeps major 12 out, ``or _is_sm120`` lets it in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAJORS = (7, 8, 9, 10, 11, 12)
MAX_STEPS = 5_000
FOREIGN = re.compile(r"aiter|_hip\b|is_hip|rocm|_npu|_xpu|_hpu|_musa|_mps|is_cpu\b|_is_cpu")
NVIDIA = re.compile(r"_?is_cuda(_alike)?")
BY_NAME = re.compile(r"_?is_sm(\d{2,3})(?:_supported)?")
BY_NUMBER = ("is_device_capability", "is_device_capability_family", "has_device_capability")

Truth = bool | None
Known = Mapping[str, frozenset[int]]
Goal = Callable[["Walk", ast.stmt, dict[str, Truth]], bool]


class TooLong(Exception):  # noqa: N818 - not an error: the function is larger than any that is known
    """The function takes more steps than any known one."""


@dataclass
class Walk:
    """One function followed for one major. ``known`` maps predicates and functions to the majors they admit."""

    known: Known
    major: int
    goal: Goal
    reached: bool = False
    steps: list[int] = field(default_factory=lambda: [MAX_STEPS])

    def run(self, body: list[ast.stmt], names: dict[str, Truth]) -> bool:
        """Follow statements; return whether control may come out behind them."""
        for statement in body:
            self.steps[0] -= 1
            if self.steps[0] < 0:
                raise TooLong
            self.reached = self.reached or self.goal(self, statement, names)
            if not self._one(statement, names):
                return False
        return True

    def _one(self, node: ast.stmt, names: dict[str, Truth]) -> bool:
        match node:
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                return False
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = self.truth(value, names)
            case ast.If():
                return self._branch(node, names)
            case ast.For() | ast.While() | ast.AsyncFor():
                self._aside([*node.body, *node.orelse], names)
            case ast.With() | ast.AsyncWith():
                return self.run(node.body, names)
            case ast.Try():
                self._aside(node.body, names)
                for handler in node.handlers:
                    self._aside(handler.body, names)
                self._aside([*node.orelse, *node.finalbody], names)
            case ast.Match():
                for case in node.cases:
                    self._aside(case.body, names)
            case _:
                pass
        return True

    def _branch(self, node: ast.If, names: dict[str, Truth]) -> bool:
        settled = self.truth(node.test, names)
        if settled is not None:
            return self.run(node.body if settled else node.orelse, names)
        return any([self._aside(node.body, names), self._aside(node.orelse, names)])

    def _aside(self, body: list[ast.stmt], names: dict[str, Truth]) -> bool:
        """Follow statements that may run, or not, or several times."""
        local = dict(names)
        through = self.run(body, local)
        for name, value in local.items():
            if name not in names or names[name] != value:
                names[name] = None
        return through

    def truth(self, node: ast.expr, names: dict[str, Truth]) -> Truth:
        """Return what a condition is for this major, None where it is open."""
        match node:
            case ast.Constant(value=value):
                return bool(value)
            case ast.BoolOp(op=op, values=values):
                found = [self.truth(value, names) for value in values]
                stop = isinstance(op, ast.Or)
                return stop if stop in found else None if None in found else not stop
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.truth(operand, names)
                return None if inner is None else not inner
            case ast.Name(id=name):
                return names[name] if name in names else self._named(name)
            case ast.Attribute(attr=name):
                return self._named(name)
            case ast.Call(func=function):
                return self._called(function, node)
            case ast.IfExp(test=test, body=body, orelse=other):
                settled = self.truth(test, names)
                if settled is None:
                    one, two = self.truth(body, names), self.truth(other, names)
                    return one if one == two else None
                return self.truth(body if settled else other, names)
        return None

    def _called(self, function: ast.expr, call: ast.Call) -> Truth:
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name in BY_NUMBER:
            match call.args[:1]:
                case [ast.Constant(value=int() as number)]:
                    hit = self.major == number // 10
                    return (self.major >= number // 10) if name.startswith("has_") else hit
            return None
        return self._named(name)

    def _named(self, name: str) -> Truth:
        majors = self.known.get(name, self.known.get(f"{name}_supported"))
        if majors is None and (match := BY_NAME.fullmatch(name)):
            majors = frozenset({int(match.group(1)) // 10})
        if majors is not None:
            # A predicate also asks for a CUDA version and the like: it admits at most these.
            return None if self.major in majors else False
        if FOREIGN.search(name):
            return False
        return True if NVIDIA.fullmatch(name) else None


def majors(function: ast.FunctionDef, goal: Goal, known: Known) -> frozenset[int] | None:
    """Return the majors for which ``goal`` can be reached in a function, None where it is too long to be told."""
    found: set[int] = set()
    for major in MAJORS:
        walk = Walk(known, major, goal)
        try:
            walk.run(function.body, {})
        except (TooLong, RecursionError):
            return None
        if walk.reached:
            found.add(major)
    return frozenset(found)


def returns_true(walk: Walk, node: ast.stmt, names: dict[str, Truth]) -> bool:
    """Goal: a return whose value may be true."""
    return isinstance(node, ast.Return) and node.value is not None and walk.truth(node.value, names) is not False


def returns(_: Walk, node: ast.stmt, __: dict[str, Truth]) -> bool:
    """Goal: any return of a value."""
    return isinstance(node, ast.Return) and node.value is not None


def calls(name: str) -> Goal:
    """Goal: a statement, itself no block, that calls a function or method of that name."""

    def goal(_: Walk, node: ast.stmt, __: dict[str, Truth]) -> bool:
        if isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.FunctionDef | ast.Match):
            return False
        return any(
            isinstance(one, ast.Call) and getattr(one.func, "attr", getattr(one.func, "id", "")) == name
            for one in ast.walk(node)
        )

    return goal
