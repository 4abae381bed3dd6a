"""Which GPU generations FlashInfer's modules admit, read from its text by function name.

A plain search for ``supported_major_versions=[9, 10]`` hits several functions from 0.6.10 on, so that each list
is taken from the function that it stands in.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from fleetcheck.facts import deciders, releases, shape
from fleetcheck.facts.source import assigned, parse, statements

FUNCTION = deciders.FUNCTION
# 0.4.0 moved the function from comm/trtllm_ar.py to jit/comm.py; 0.2.6 had one comm.py.
FILES = ("jit/comm.py", "comm/trtllm_ar.py", "comm.py")
CALL = "get_nvcc_flags_list"
KEYWORD = "supported_major_versions"
MAX_GATES = 200
# Names by which a module can bind one of its functions anew without an assignment that can be seen.
HIDDEN = frozenset({"globals", "exec", "eval", "setattr", "vars", "locals", "__dict__", "modules"})
# Attributes that, bound anew, change what the function does or builds from.
BOUND = frozenset({CALL, FUNCTION, deciders.TARGETS, *deciders.BOUND, "__code__"})
# Below these a call may not run, or what it returns is not used whole.
HEDGED = (
    *(ast.IfExp, ast.BoolOp, ast.Lambda, ast.Subscript, ast.Compare),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Await),
)

Majors = tuple[int, ...]
State = Literal["read", "no-gate", "absent", "unreadable"]


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of one function. ``majors`` is None where none is set, ``error`` tells why it cannot be read."""

    majors: Majors | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The gate of :data:`FUNCTION`, where it stands, and those of the other functions beside it."""

    state: State
    gate: Majors | None = None
    file: str | None = None
    error: str | None = None
    record: str | None = None
    gates: Mapping[str, Majors | None] = field(default_factory=dict)


def read(files: Mapping[str, Mapping[str, Any]], version: str | None = None) -> Reading:
    """Read the gate from the files of the package, by their names relative to its root.

    Where ``version`` is a release with a gate, or the file is not the one that was installed, the gate is only
    read from a call that surely runs: what is not found there may stand elsewhere.
    """
    gated = releases.stock_gate(version)[1] is not None
    every: dict[str, Majors | None] = {}
    found: Reading | None = None
    replaced = deciders.replaced(files)
    for name in FILES:
        entry = files.get(name)
        if entry is None or _absent(entry):
            continue
        record = shape.name(entry.get("record"), 40)
        functions, error = _functions(entry)
        if name in replaced:
            error = f"{replaced[name]} lies beside it, and Python imports that instead"
        for function, gate in functions.items():
            if gate.error is None and len(every) < MAX_GATES:
                every.setdefault(function, gate.majors)
        # What nothing vouches for, as in a checkout, is not known to be the release's: it may be edited too.
        edited, vouched = record == "mismatch", record == "match"
        text = shape.source(entry.get("text"))
        needed = releases.csrc_files(version) if gated and not vouched else ()
        doubt = _doubt(text, gated, edited, not vouched, needed) if not error and (gated or not vouched) else None
        error = error or doubt
        if found is None and error:
            found = Reading("unreadable", None, name, error, record)
        elif found is None and FUNCTION in functions:
            gate = functions[FUNCTION]
            state: State = "unreadable" if gate.error else "read" if gate.majors is not None else "no-gate"
            found = Reading(state, gate.majors, name, gate.error, record)
    if found is None:
        return Reading("absent", gates=every)
    return Reading(found.state, found.gate, found.file, found.error, found.record, every)


def _absent(entry: Mapping[str, Any]) -> bool:
    gone = entry.get("error") in ("ENOENT", "ENOTDIR") or entry.get("record") == "missing"
    # A file that RECORD lists and that is gone was removed by hand: that is no older version.
    return gone and entry.get("record") != "missing"


def _functions(entry: Mapping[str, Any]) -> tuple[Mapping[str, Gate], str | None]:
    if entry.get("record") == "missing":
        return {}, "the file is gone, though the package lists it"
    text = shape.source(entry.get("text"))
    if text is None:
        return {}, shape.line(entry.get("error")) or "the text did not come back"
    tree = functions(text)
    return ({}, tree) if isinstance(tree, str) else (tree, None)


@lru_cache(maxsize=256)
def functions(text: str) -> Mapping[str, Gate] | str:
    """Return the gate of every top-level ``gen_*`` function, or why the text cannot be parsed."""
    tree = parse(text)
    if isinstance(tree, str):
        return tree
    found: dict[str, Gate] = {}
    for statement in statements(tree.body):
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("gen_"):
            found[statement.name] = _gate(statement)
        elif (pair := assigned(statement)) and pair[0] in found:
            found[pair[0]] = Gate(error=f"line {statement.lineno}: {pair[0]} is bound anew")
    return found


@lru_cache(maxsize=256)
def _doubt(
    text: str | None, gated: bool, edited: bool, unvouched: bool, needed: tuple[str, ...] = ()
) -> str | None:
    """Return why what the text says of the gate cannot be relied on, or None. ``needed``: the module's sources."""
    tree = parse(text) if text is not None else "the text did not come back"
    if isinstance(tree, str):
        return tree
    if unvouched and (hidden := _rebound(tree) or deciders.retargeted(tree) or deciders.elsewhere(tree)):
        return hidden
    own = [node for node in statements(tree.body) if isinstance(node, ast.FunctionDef) and node.name == FUNCTION]
    if own and (gated or edited):
        gate = _gate(own[-1])
        return gate.error or _not_plain(own[-1]) or deciders.dropped(own[-1], needed)
    # An edited file of a release that has the function, and now lacks it, has it from somewhere else.
    return f"{FUNCTION} is not defined there" if gated and unvouched and not own else None


def _rebound(tree: ast.Module) -> str | None:
    """Return where the module binds the function, or what its gate is called on, in a way that is not followed."""
    bases = {
        call.func.value.id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == CALL
        and isinstance(call.func.value, ast.Name)
    }
    definitions = 0
    for node in ast.walk(tree):
        said: str | None = None
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                said = "a star import may replace what stands here"
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                taken = any((alias.asname or alias.name) == FUNCTION for alias in names)
                said = f"{FUNCTION} is imported" if taken else None
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in HIDDEN:
                said = f"{name} may replace what stands here"
            case ast.Constant(value=str() as name) if name == deciders.TARGETS:
                said = f"{name} may be changed by its name"
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) if name in BOUND:
                said = f"{name} is bound anew"
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name == FUNCTION or name in bases:
                said = f"{name} is bound anew"
            case ast.Global(names=bound) if FUNCTION in bound:
                said = f"{FUNCTION} is bound anew"
            case ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) if name == FUNCTION or name in bases:
                said = f"{name} is no plain function"
            case ast.FunctionDef(name=name) if name == FUNCTION:
                definitions += 1
                if node.decorator_list:
                    said = f"{FUNCTION} is decorated"
                elif definitions > 1 or node not in tree.body:
                    said = f"{FUNCTION} is defined twice, or not at the top"
        if said:
            return f"line {getattr(node, 'lineno', 0)}: {said}"
    return None


def _not_plain(function: ast.FunctionDef) -> str | None:
    """Return why the call that holds the gate may not run, or may not decide; None where it surely does."""
    where = f"line {function.lineno}: {CALL}({KEYWORD}=...) is not plainly found in {function.name}"
    flags: str | None = None
    for node in ast.walk(function):
        said = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Yield | ast.YieldFrom) or (isinstance(said, str) and "gencode" in said):
            return where
    for index, statement in enumerate(function.body):
        pair = assigned(statement)
        value = pair[1] if pair else statement.value if isinstance(statement, ast.Return) else None
        if value is not None and (calls := _open(value)):
            if len(calls) > 1 or not (calls[0].args or any(k.arg == KEYWORD for k in calls[0].keywords)):
                return where
            if pair is None:
                return None
            if isinstance(value, ast.Call) and value is not calls[0]:
                return where
            flags, rest = pair[0], function.body[index + 1 :]
            break
        if any(isinstance(n, ast.Return | ast.Raise | ast.Assert) for n in ast.walk(statement)):
            return where
    if flags is None:
        return where
    uses = [node for part in rest for node in ast.walk(part) if isinstance(node, ast.Name) and node.id == flags]
    last = next((part for part in rest if isinstance(part, ast.Return | ast.Raise)), None)
    used = last.value if isinstance(last, ast.Return) and last.value is not None else None
    if len(uses) != 1 or used is None or uses[0] not in _reached(used):
        return f"line {function.lineno}: what {CALL} returns is not plainly what {function.name} builds with"
    return None


def _open(value: ast.expr) -> list[ast.Call]:
    return [node for node in _reached(value) if isinstance(node, ast.Call) and _called(node.func) == CALL]


def _reached(root: ast.expr) -> list[ast.AST]:
    """Return the nodes that are evaluated in any case and are not handed to a helper within ``root``."""
    found: list[ast.AST] = []
    pending: list[ast.AST] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, HEDGED):
            continue
        found.append(node)
        if node is root or not isinstance(node, ast.Call):
            pending.extend(ast.iter_child_nodes(node))
    return found


def _gate(function: ast.FunctionDef) -> Gate:
    gates: list[Gate] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _called(node.func) == CALL:
            gates.append(_of_call(node))
    if not gates:
        return Gate()
    bad = next((gate for gate in gates if gate.error), None)
    if bad or len({gate.majors for gate in gates}) > 1:
        return bad or Gate(error=f"line {function.lineno}: {function.name} holds several gates")
    return gates[0]


def _called(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def _of_call(call: ast.Call) -> Gate:
    if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        return Gate(error=f"line {call.lineno}: the arguments are computed")
    values = [keyword.value for keyword in call.keywords if keyword.arg == KEYWORD] or call.args[:1]
    if not values:
        return Gate()
    try:
        value = ast.literal_eval(values[0])
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return Gate(error=f"line {call.lineno}: {KEYWORD} is computed, not a list")
    if not value:
        # The function tests the list for truth: None and an empty one admit every GPU.
        return Gate()
    majors = _majors(value)
    return Gate(majors) if majors else Gate(error=f"line {call.lineno}: {KEYWORD} is no list of numbers")


def _majors(value: object) -> Majors | None:
    if not isinstance(value, Sequence | set) or isinstance(value, str | bytes) or len(value) > 32:
        return None
    numbers = [number for item in value if (number := shape.integer(item, 0, 99)) is not None]
    return tuple(sorted(set(numbers))) if len(numbers) == len(value) else None
