"""Joins the host's program into one text, and writes the script that carries it: what goes over the wire.

The modules under ``program/`` share one namespace on the host, so a name may be defined once only. Comments and
docstrings stay here. The text needs Python 3.8; an older interpreter still parses its few outer lines and says so.
"""

from __future__ import annotations

import ast
import base64
import io
import secrets
import tokenize
import zlib
from functools import cache
from importlib.resources import files

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.prologue import SYSTEM_PYTHONS, prologue
from fleetcheck.version import __version__

HOST = (
    "values", "processes", "system", "hardware", "kernel_log", "smi", "tools", "contain", "commands", "disk",
    "proc", "startup", "serving", "caches", "find", "activate", "container", "deep", "jobs", "blanks", "gather",
)  # fmt: skip
INSIDE = ("values", "system", "tools", "distributions", "cuts", "sources", "frameworks", "constant", "inside")
IMPORTED = ("values", "imported")
TYPES_ONLY = ("__future__", "typing", "collections.abc")
OLDEST = (3, 8)
TOO_OLD = 97


def new_marker() -> str:
    """Return what opens each frame of one answer: 128 random bits, which nothing on the host can hold before."""
    return f"fleetcheck:{secrets.token_hex(16)}"


def remote_command(sudo: bool) -> str:
    """Return the remote command: fixed text that every login shell understands."""
    return "exec sudo -n /bin/sh" if sudo else "exec /bin/sh"


def script(request: Request, marker: str, *, pythons: tuple[str, ...] = SYSTEM_PYTHONS) -> bytes:
    """Return what is sent on stdin, which must stay open until the answer is whole. Frames open with ``marker``.

    ``pythons`` are the interpreters to try for the host part before those of the listed environments.
    """
    return prologue(agent_text(request, marker), request, marker, __version__, pythons).encode()


def agent_text(request: Request, marker: str) -> str:
    """Return the program for the host's own interpreter."""
    fields = {name: getattr(request, name) for name in request.__dataclass_fields__}
    deep = packed(deep_text()) if request.deep else "''"
    return (
        "import sys\n"
        f"if sys.version_info < {OLDEST}: sys.exit({TOO_OLD})\n"
        "import binascii, zlib\n"
        "def unpacked(text): return zlib.decompress(binascii.a2b_base64(text)).decode()\n"
        f"exec(compile({packed(program(HOST))}, 'fleetcheck', 'exec'))\n"
        f"main({fields!a}, {marker!a}, {__version__!a}, {packed(inside_text())}, {deep})\n"
    )


@cache
def packed(text: str) -> str:
    """Return an expression for a text. bash reads a script from a pipe byte by byte: what is short is cheap."""
    return f"unpacked({base64.b64encode(zlib.compress(text.encode(), 9)).decode()!a})"


@cache
def inside_text() -> str:
    """Return the program for an environment's interpreter. It answers on fd 4."""
    return (
        "import os, sys\n"
        f"if sys.version_info < {OLDEST}:\n"
        '    os.write(4, (\'{"too_old": "%d.%d.%d"}\\n\\n\' % sys.version_info[:3]).encode())\n'
        "    sys.exit(0)\n"
        f"exec(compile({program(INSIDE)!a}, 'fleetcheck', 'exec'))\n"
        "tell(4)\n"
    )


@cache
def deep_text() -> str:
    """Return the program for the real import; the host's program appends the call, with its scratch folder."""
    return (
        "import sys\n"
        f"if sys.version_info < {OLDEST}: sys.exit({TOO_OLD})\n"
        f"exec(compile({program(IMPORTED)!a}, 'fleetcheck', 'exec'))\n"
    )


@cache
def program(modules: tuple[str, ...]) -> str:
    """Return the modules as one text: no comment, no docstring, no import of each other, no import for types."""
    folder = files("fleetcheck.agent.program")
    texts = [stripped((folder / f"{name}.py").read_text(encoding="utf-8")) for name in modules]
    joined = "from __future__ import annotations\n" + "".join(texts)
    tree = ast.parse(joined, feature_version=OLDEST)
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"the program's modules define a name twice: {', '.join(sorted(twice))}")
    return joined


def stripped(source: str) -> str:
    """Return a module's text without comments, docstrings, blank lines and imports that the bundle replaces."""
    drop = _unneeded_lines(ast.parse(source))
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    kept = [line for number, line in enumerate(lines, 1) if number not in drop]
    strings = _string_lines("".join(kept))
    return "".join(line for number, line in enumerate(kept, 1) if line.strip() or number in strings)


def _unneeded_lines(tree: ast.Module) -> set[int]:
    drop: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (
            node.module in TYPES_ONLY or str(node.module).startswith("fleetcheck.")
        ):
            drop.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        body = getattr(node, "body", None)
        if (
            isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef))
            and isinstance(body, list)
            and len(body) > (0 if isinstance(node, ast.Module) else 1)
            and ast.get_docstring(node) is not None
        ):
            drop.update(range(body[0].lineno, (body[0].end_lineno or body[0].lineno) + 1))
    return drop


def _string_lines(source: str) -> set[int]:
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING:
            inside.update(range(token.start[0], token.end[0] + 1))
    return inside
