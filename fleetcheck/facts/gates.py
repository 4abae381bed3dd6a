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

from fleetcheck.facts import shape
from fleetcheck.facts.source import assigned, parse, statements

FUNCTION = "gen_trtllm_comm_module"
# 0.4.0 moved the function from comm/trtllm_ar.py to jit/comm.py; 0.2.6 had one comm.py.
FILES = ("jit/comm.py", "comm/trtllm_ar.py", "comm.py")
CALL = "get_nvcc_flags_list"
KEYWORD = "supported_major_versions"
MAX_GATES = 200

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


def read(files: Mapping[str, Mapping[str, Any]]) -> Reading:
    """Read the gate from the files of the package, by their names relative to its root."""
    every: dict[str, Majors | None] = {}
    found: Reading | None = None
    for name in FILES:
        entry = files.get(name)
        if entry is None or _absent(entry):
            continue
        record = shape.name(entry.get("record"), 40)
        functions, error = _functions(entry)
        for function, gate in functions.items():
            if gate.error is None and len(every) < MAX_GATES:
                every.setdefault(function, gate.majors)
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
