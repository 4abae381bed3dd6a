"""Files of FlashInfer that decide which sources are compiled, and by what: edited, gone, or put aside by another.

RECORD tells of an edit of the file itself. A module can be replaced without one: of ``jit/env.py``, the folder
``jit/env/`` and the library ``jit/env.cpython-311-….so`` beside each other, Python imports the folder, else the
library, and the file last.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from fleetcheck.facts import releases, rests, shape
from fleetcheck.facts.source import parse, statements

Files = Mapping[str, Mapping[str, Any]]

ENV = "jit/env.py"
CONTEXT = "compilation_context.py"
# Of these no text is sent, and each runs before, or while, trtllm_comm is built: an edit may do anything there.
PATH = ("__init__.py", "jit/__init__.py", "jit/core.py", "jit/cpp_ext.py", "comm/__init__.py", "comm/trtllm_ar.py")
TEXTS = ("jit/comm.py", "comm/trtllm_ar.py", "comm.py", CONTEXT, "version.py", "_build_meta.py")
MODULES = ("__init__.py", CONTEXT, "jit/__init__.py", ENV, "jit/comm.py", "jit/core.py", "jit/cpp_ext.py",
           "comm/__init__.py", "comm/trtllm_ar.py")  # fmt: skip
_BESIDE = {
    module: re.compile(
        re.escape(module.removesuffix(".py")) + r"(?:/__init__)?(?:\.py|(?:\.[\w-]+)*\.so)", re.ASCII
    )
    for module in MODULES
}
HEADERS = (
    "data/include/flashinfer/comm/trtllm_allreduce.cuh",
    "data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh",
)
FUSION_SOURCE = "data/csrc/trtllm_allreduce_fusion.cu"
# Other projects' sources: the compiler is given these folders for every module.
FOREIGN = ("data/cutlass", "data/cccl")
FUNCTION = "gen_trtllm_comm_module"
# The set of architectures that the gate filters: this host's, where nothing changes it.
TARGETS = "TARGET_CUDA_ARCHS"
GONE = ("ENOENT", "ENOTDIR")
BOUND = ("FLASHINFER_CSRC_DIR", "__path__")


def replaced(files: Files) -> dict[str, str]:
    """Return the modules that are never run, with the file beside each that Python imports instead."""
    found: dict[str, str] = {}
    for module in MODULES:
        for name, entry in files.items():
            if (
                name == module
                or not _BESIDE[module].fullmatch(name)
                or not _there(entry)
                or name in found.values()
            ):
                continue
            # A release may turn a module into a folder: then RECORD lists it, or the file is not there.
            if entry.get("record") in ("unlisted", "mismatch") or _there(files.get(module, {})):
                found.setdefault(module, name)
    return found


def lost(files: Files, version: str | None) -> tuple[str, ...]:
    """Return the files that are gone without which the package cannot be imported, or trtllm_comm built."""
    gone = {name for name, entry in files.items() if entry.get("record") == "missing" and _needed(name)}
    # What the package's own files name holds with a RECORD and without.
    gone |= {
        name
        for name, entry in files.items()
        if shape.name(entry.get("needed_by")) and (entry.get("record") == "missing" or entry.get("error") in GONE)
    }
    unlisted = bool(files) and all(entry.get("record") == "no-record" for entry in files.values())
    # Without a RECORD each file of these folders that is there was told of.
    if unlisted and _there(files.get(FUSION_SOURCE, {})) and releases.has_fusion_headers(version):
        gone |= {name for name in HEADERS if files.get(name, {"error": "ENOENT"}).get("error") in GONE}
    return tuple(sorted(gone))


def _needed(name: str) -> bool:
    python = name.endswith(".py") and (name.startswith(("jit/", "comm/")) or name in MODULES)
    return python or name in HEADERS or name.startswith("data/csrc/trtllm_")


def included(files: Files) -> tuple[str, ...]:
    """Return the edited files that trtllm_comm is compiled with, but for those of which more is known."""
    return tuple(
        sorted(
            name
            for name, entry in files.items()
            if entry.get("record") == "mismatch" and entry.get("needed_by") and name.startswith("data/")
            if name not in rests.RESTS
        )
    )


def edited(files: Files) -> tuple[str, ...]:
    """Return the edited files of which it is not known what they do to the folder of sources or to the build."""
    found = {name for name in PATH if files.get(name, {}).get("record") == "mismatch"}
    if not _there(files.get("jit/comm.py", {})):
        found -= {"comm/trtllm_ar.py"}  # up to 0.3.1 it holds the gate itself, which is read
    return tuple(sorted(found | {name for name in TEXTS if moves(files.get(name, {}))}))


def moved(files: Files) -> bool:
    """Return whether one of the edited files may bind the folder of sources anew."""
    return any(not name.startswith("comm/") or moves(files.get(name, {})) for name in edited(files))


def moves(entry: Mapping[str, Any]) -> bool:
    """Return whether a module without a matching row of RECORD binds the folder, or its package's path, anew."""
    text = shape.source(entry.get("text")) if entry.get("record") != "match" else None
    tree = parse(text) if text and any(word in text for word in (*BOUND, FUNCTION)) else ""
    if isinstance(tree, ast.Module) and elsewhere(tree):
        return True
    for node in ast.walk(tree) if isinstance(tree, ast.Module) else ():
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()) if name in BOUND:
                return True
            case ast.Name(id="__path__") | ast.Constant(value="FLASHINFER_CSRC_DIR" | "__path__"):
                return True
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="__path__"))):
                return True
    return False


def elsewhere(tree: ast.Module) -> str | None:
    """Return where the function builds from a source that does not lie in the folder of sources, or None."""
    own = [node for node in statements(tree.body) if isinstance(node, ast.FunctionDef) and node.name == FUNCTION]
    below = {
        id(node.right)
        for function in own
        for node in ast.walk(function)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _named(node.left) == BOUND[0]
    }
    for function in own:
        for node in ast.walk(function):
            name = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            outside = id(node) not in below or name.startswith("/") or ".." in name
            if name.endswith((".cu", ".cuh", ".cpp", ".cc")) and outside:
                return f"line {getattr(node, 'lineno', 0)}: {FUNCTION} builds from a source elsewhere"
    return None


def retargeted(tree: ast.Module) -> str | None:
    """Return where the module may change the set of targets that the gate filters, or None.

    A function for another module may read it, as one of 0.7.4 does.
    """
    at_top = [part for part in tree.body if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for part in (*at_top, *functions):
        names = [node for node in ast.walk(part) if isinstance(node, ast.Attribute)]
        found = next((node for node in names if node.attr == TARGETS), None)
        reads = part in functions and getattr(part, "name", None) != FUNCTION
        if found and not (reads and all(node.attr not in _CHANGES for node in names)):
            return f"line {found.lineno}: {TARGETS} may be changed before the gate filters it"
    return None


def dropped(function: ast.FunctionDef, needed: tuple[str, ...]) -> str | None:
    """Return which source a function that lists its sources does not build from for sure, or None.

    Without one of them the module is built, and what was in there is not found at its first call.
    """
    lists = [node for node in ast.walk(function) if isinstance(node, ast.List | ast.Tuple)]
    plain = {name for one in lists for item in one.elts for name in (_source(item),) if name}
    every = {name for node in ast.walk(function) if (name := _source(node))}
    if not every:
        return None  # they are listed elsewhere
    for node in ast.walk(function):
        method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        part = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice | ast.Constant)
        if part or isinstance(node, ast.comprehension | ast.Delete) or method in _TAKES:
            return f"line {getattr(node, 'lineno', function.lineno)}: the sources of {FUNCTION} are computed"
    gone = [name for name in needed if name not in plain]
    return f"line {function.lineno}: {FUNCTION} does not build from {', '.join(gone)}" if gone else None


_CHANGES = frozenset(
    ("add", "update", "discard", "remove", "pop", "clear", "difference_update", "intersection_update")
) | {"symmetric_difference_update"}
_TAKES = ("remove", "pop", "clear", "discard", "difference")


def _source(node: ast.AST) -> str | None:
    """Return the name of the source that ``FOLDER / "name.cu"`` is."""
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and isinstance(node.right.value, str):
        return node.right.value if node.right.value.endswith(".cu") else None
    return None


def _named(node: ast.expr) -> str | None:
    """Return the last name of ``a.b.NAME`` or ``NAME``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _there(entry: Mapping[str, Any]) -> bool:
    return shape.name(entry.get("sha256"), 64) is not None or shape.source(entry.get("text")) is not None


def context_doubt(entry: Mapping[str, Any]) -> str | None:
    """Return why ``get_nvcc_flags_list`` of a file that nothing vouches for may not apply the gate, or None.

    Every release from 0.3.1 on filters its targets by the list, and raises where none is left.
    """
    text = shape.source(entry.get("text"))
    tree = parse(text) if text is not None else "the text did not come back"
    if isinstance(tree, str):
        return tree
    methods = [
        node
        for owner in tree.body
        if isinstance(owner, ast.ClassDef) and owner.name == "CompilationContext"
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and node.name == "get_nvcc_flags_list"
    ]
    said = sum(isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in _OWN for node in ast.walk(tree))
    if len(methods) != 1 or methods[0].decorator_list or said != len(_OWN):
        return "get_nvcc_flags_list is not plainly defined there"
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        store = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        if name in _HIDDEN or (
            store and (name in _OWN or (name == "TARGET_CUDA_ARCHS" and node is not _set(tree)))
        ):
            return f"line {getattr(node, 'lineno', 0)}: {name} may replace what stands there"
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return f"line {node.lineno}: a star import may replace what stands there"
    body = [node for node in methods[0].body if not _is_text(node)]
    start = "\n".join(ast.unparse(node) for node in body[:2])
    if sha256(start.encode("utf-8", "replace")).hexdigest() != _FILTER:
        return f"line {methods[0].lineno}: get_nvcc_flags_list does not filter by its list as the releases do"
    rest = "\n".join(ast.unparse(node) for node in body[2:])
    if "TARGET_CUDA_ARCHS" in rest or re.search(r"(?:compute|sm)_(?:9|1[12])", rest):
        return f"line {methods[0].lineno}: get_nvcc_flags_list adds targets of its own"
    return None


def _set(tree: ast.Module) -> ast.AST | None:
    """Return the one place at which every release binds ``TARGET_CUDA_ARCHS``, to ``set()``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node) == "self.TARGET_CUDA_ARCHS = set()":
            return node.targets[0]
    return None


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


_OWN = frozenset({"CompilationContext", "get_nvcc_flags_list"})
_HIDDEN = frozenset({"globals", "exec", "eval", "setattr", "vars", "locals", "__dict__", "__code__", "__class__"})
# sha256 of the two statements with which the releases from 0.3.1 on filter and raise, as ast.unparse writes them.
_FILTER = "4d1edd3c487cad23a379302b10b20ca27782b183d599f263bd014842a752d22a"
