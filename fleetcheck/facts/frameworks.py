"""The gates of sglang and vLLM on FlashInfer's all-reduce, read from their files by what these do.

Each release keeps them elsewhere: the functions are found by name, wherever they stand. What a file says counts,
not the version, so that a local patch is seen as what it lets in.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fleetcheck.facts import reach, shape
from fleetcheck.facts.records import FileFact, Framework, FrameworkGate
from fleetcheck.facts.source import assigned, parse, statements

Kind = Literal["call", "next-layer", "backend", "auto-enable"]
PINNED = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
PCIE_IPC = {
    "sglang": "srt/distributed/device_communicators/pcie_ipc_ar.py",
    "vllm": "distributed/device_communicators/flashinfer_pcie_ipc_all_reduce.py",
}
# It came with the handler that catches FlashInfer's refusal, here and in the pass.
FALLS_BACK = "distributed/device_communicators/flashinfer_all_reduce.py"
SIZES = "FI_ALLREDUCE_FUSION_MAX_SIZE_MB"
SWITCHES = ("enable_flashinfer_allreduce_fusion", "flashinfer_allreduce_fusion_backend")
GATES: Mapping[str, tuple[Kind, reach.Goal]] = {
    "apply_flashinfer_allreduce_fusion": ("call", reach.returns_true),
    "flashinfer_ar_fusion_applies": ("call", reach.returns_true),
    "_gather_hidden_states_and_residual": ("call", reach.calls("forward_with_allreduce_fusion")),
    "should_fuse_mlp_allreduce_with_next_layer": ("next-layer", reach.returns_true),
    "_resolve_backend": ("backend", reach.returns),
    "enable_allreduce_rms_fusion": ("auto-enable", reach.returns_true),
}
# Where the predicates are defined; read first.
PREDICATES = ("srt/utils/common.py", "srt/utils.py", "srt/layers/utils.py")


def framework(
    name: str, version: str | None, files: Mapping[str, Mapping[str, Any]], dists: Sequence[Mapping[str, Any]]
) -> Framework:
    """Type what the agent sent of a framework; ``files`` by their names relative to its root."""
    texts = tuple(
        (file, text)
        for file, entry in files.items()
        if entry.get("record") != "missing" and (text := shape.source(entry.get("text")))
    )
    gates = read(texts)
    records = {shape.name(entry.get("record"), 40) for entry in files.values()}
    return Framework(
        name=name,
        version=version,
        gates=gates,
        admits=_admits(gates),
        auto_enables=_auto_enables(gates),
        pins=_pins(dists),
        modified=tuple(sorted(f for f, entry in files.items() if entry.get("record") in ("mismatch", "missing"))),
        files=tuple(_fact(file, entry) for file, entry in files.items() if entry.get("record") == "mismatch"),
        verified=None if not records else bool(records & {"match", "mismatch", "missing"}),
        pcie_ipc=(PCIE_IPC[name] in files) if name in PCIE_IPC and files else None,
        falls_back=name == "vllm" and files.get(FALLS_BACK, {}).get("record", "missing") != "missing",
    )


def _fact(name: str, entry: Mapping[str, Any]) -> FileFact:
    return FileFact(
        path=shape.name(entry.get("path")) or name,
        sha256=shape.name(entry.get("sha256"), 64),
        size=shape.integer(entry.get("size")),
        modified_at=shape.number(entry.get("mtime")),
        record="mismatch",
    )


@lru_cache(maxsize=64)
def read(texts: tuple[tuple[str, str], ...]) -> tuple[FrameworkGate, ...]:
    """Return the gates of a framework in the order in which its files were read, predicates first."""
    known: dict[str, frozenset[int]] = {}
    found: list[FrameworkGate] = []
    for file, text in sorted(texts, key=lambda pair: (pair[0] not in PREDICATES, pair[0])):
        tree = parse(text)
        if isinstance(tree, str):
            found.append(FrameworkGate(kind="call", file=file, function="", error=tree))
            continue
        _predicates(tree, known, common=file in PREDICATES)
        for node in statements(tree.body):
            if isinstance(node, ast.FunctionDef):
                found += _gates(file, node, known)
            elif (pair := assigned(node)) and pair[0] == SIZES:
                found.append(_sizes(file, pair[1]))
    return tuple(found)


def _predicates(tree: ast.Module, known: dict[str, frozenset[int]], *, common: bool) -> None:
    """Add what a module says of predicates: their own definitions, and names for an expression of others."""
    for node in statements(tree.body):
        if isinstance(node, ast.FunctionDef) and common and "is_" in node.name:
            majors = _compared(node)
            if majors:
                known[node.name] = majors
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            majors = _listed(node.value) or _alias(node.value, known)
            for name in names if majors is not None else ():
                known[name] = majors or frozenset()


def _listed(value: ast.expr) -> frozenset[int] | None:
    """Return the majors of ``partial(_check…, device_capability_majors=[10, 12], …)``."""
    for node in ast.walk(value):
        if isinstance(node, ast.keyword) and node.arg == "device_capability_majors":
            return _numbers(node.value)
    return None


def _compared(function: ast.FunctionDef) -> frozenset[int] | None:
    """Return the majors with which a function compares the first number of the device's capability."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.In):
            asked = any("capability" in ast.dump(one) for one in ast.walk(node.left))
            if asked and (majors := _numbers(node.comparators[0])):
                return majors
    return None


def _numbers(node: ast.expr) -> frozenset[int] | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    numbers = [value] if isinstance(value, int) else list(value) if isinstance(value, list | tuple | set) else []
    return frozenset(n for n in numbers if isinstance(n, int) and 0 < n < 100) or None


def _alias(value: ast.expr, known: Mapping[str, frozenset[int]]) -> frozenset[int] | None:
    """Return for which majors an expression such as ``_is_cuda and is_sm90_supported()`` may be true."""
    walks = [reach.Walk(known, major, reach.returns) for major in reach.MAJORS]
    found = frozenset(walk.major for walk in walks if walk.truth(value, {}) is not False)
    return found if len(found) < len(walks) else None


def _gates(file: str, node: ast.FunctionDef, known: dict[str, frozenset[int]]) -> list[FrameworkGate]:
    if node.name in GATES:
        kind, goal = GATES[node.name]
        found = _gate(kind, file, node, goal, known)
        if kind == "call" and found.majors is not None:
            known[node.name] = frozenset(found.majors)
        return [found]
    switched = _gate("auto-enable", file, node, _switches_on, known)
    return [switched] if switched.majors or switched.error else []


def _gate(
    kind: Kind, file: str, node: ast.FunctionDef, goal: reach.Goal, known: Mapping[str, frozenset[int]]
) -> FrameworkGate:
    found = reach.majors(node, goal, known)
    if found is None:
        return FrameworkGate(kind=kind, file=file, function=node.name, error="the function is too long")
    return FrameworkGate(kind=kind, file=file, function=node.name, majors=tuple(sorted(found)))


def _switches_on(_: reach.Walk, node: ast.stmt, __: object) -> bool:
    """Goal: the statement switches the fusion on (``self.… = True``, or a returned ``{"…_backend": "auto"}``)."""
    match node:
        case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
            return name in SWITCHES and not _off(value)
        case ast.Return(value=ast.Dict(keys=keys, values=values)):
            return any(
                isinstance(key, ast.Constant) and key.value in SWITCHES and not _off(value)
                for key, value in zip(keys, values, strict=True)
            )
    return False


def _off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _sizes(file: str, value: ast.expr) -> FrameworkGate:
    """Read vLLM's table of sizes: a capability without a row has no size, and the pass is off there."""
    keys = _numbers_of_table(value)
    if keys is None:
        return FrameworkGate(kind="call", file=file, function=SIZES, error="the table is computed")
    return FrameworkGate(kind="call", file=file, function=SIZES, majors=tuple(sorted({k // 10 for k in keys})))


def _numbers_of_table(value: ast.expr) -> list[int] | None:
    if not isinstance(value, ast.Dict):
        return None
    keys = [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, int)]
    return keys if len(keys) == len(value.keys) else None


def _admits(gates: Sequence[FrameworkGate]) -> tuple[int, ...] | None:
    """Return the majors for which some way leads to a call; None where a way cannot be told, or none is known."""
    ways = [gate for gate in gates if gate.kind in ("call", "next-layer")]
    if not ways or any(gate.majors is None for gate in ways):
        return None
    return tuple(sorted({major for gate in ways for major in gate.majors or ()}))


def _auto_enables(gates: Sequence[FrameworkGate]) -> tuple[int, ...] | None:
    if not gates or any(gate.error for gate in gates):
        return None
    switched = [gate for gate in gates if gate.kind == "auto-enable"]
    return tuple(sorted({major for gate in switched for major in gate.majors or ()}))


def _pins(dists: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for dist in dists:
        for text in shape.texts(dist.get("requires"), 50):
            try:
                wanted = Requirement(text)
            except InvalidRequirement:
                continue
            name = canonicalize_name(wanted.name)
            if name in PINNED and str(wanted.specifier):
                found.setdefault(name, str(wanted.specifier))
    return found
