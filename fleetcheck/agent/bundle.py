"""Joins the host's program into one text, and writes the script that carries it: what goes over the wire.

The modules under ``program/`` share one namespace on the host, so a name may be defined once only. Comments and
docstrings stay here. The text needs Python 3.8; an older interpreter still parses its few outer lines and says so.
"""

from __future__ import annotations

import base64
import re
import secrets
import zlib
from functools import cache
from importlib.resources import files

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.prologue import SYSTEM_PYTHONS, prologue
from fleetcheck.version import __version__

HOST = (
    "values", "processes", "system", "hardware", "kernel_log", "smi", "tools", "contain", "commands", "disk",
    "proc", "find", "startup", "expected", "serving", "caches", "activate", "container", "deep", "jobs",
    "blanks", "gather",
)  # fmt: skip
INSIDE = (
    "values", "system", "tools", "distributions", "cuts", "hashes", "needs", "sources", "absent", "frameworks",
    "constant", "startnames", "startpath", "startscan", "startcode", "sitepath", "startwords", "startfiles",
    "inside",
)  # fmt: skip
IMPORTED = ("values", "startfiles", "imported")
OLDEST = (3, 8)
TOO_OLD = 97
EDGE = "\f"
# Compiled module by module: all as one text takes 3 to 7 MB more. The import holds for what is compiled below it;
# an interpreter that does not know it has ended before.
_EACH = """from __future__ import annotations
for piece in text.split("\\f"): exec(compile(piece, "fleetcheck", "exec"))
"""
LOAD = f"exec(compile({_EACH!a}, 'fleetcheck', 'exec'))\ndel text, piece\n"
_COMMENT = re.compile(r"  # [^\"']*\n\Z")  # no quote behind it, so that it is no part of a string
_OPENED = re.compile(r"""(\w+ = )?\s*r?(\"{3}|'{3})""")
_REPLACED = re.compile(r"\s*from (?:__future__|typing|collections\.abc|fleetcheck\.[\w.]+) import ")
_DEFINED = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)


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
    own, inside, deep = programs(request.deep)
    return (
        "import sys\n"
        f"if sys.version_info < {OLDEST}: sys.exit({TOO_OLD})\n"
        "import binascii, zlib\n"
        "def unpacked(text): return zlib.decompress(binascii.a2b_base64(text)).decode()\n"
        f"text = {own}\n{LOAD}"
        f"main({fields!a}, {marker!a}, {__version__!a}, {inside}, {deep})\n"
    )


def programs(deep: bool) -> tuple[str, str, str]:
    """Return the expressions for the three programs. The first time costs a while, in each thread that asks."""
    return packed(program(HOST)), packed(inside_text()), packed(deep_text()) if deep else "''"


@cache
def packed(text: str) -> str:
    """Return an expression for a text. bash reads a script from a pipe byte by byte: what is short is cheap."""
    return f"unpacked({base64.b64encode(zlib.compress(text.encode(), 7)).decode()!a})"


@cache
def inside_text() -> str:
    """Return the program for an environment's interpreter. It answers on fd 4."""
    return (
        "import os, sys\n"
        f"if sys.version_info < {OLDEST}:\n"
        '    os.write(4, (\'{"too_old": "%d.%d.%d"}\\n\\n\' % sys.version_info[:3]).encode())\n'
        "    sys.exit(0)\n"
        f"text = {program(INSIDE)!a}\n{LOAD}"
        "tell(4)\n"
    )


@cache
def deep_text() -> str:
    """Return the program for the real import; the host's program appends the call, with its scratch folder."""
    return f"import sys\nif sys.version_info < {OLDEST}: sys.exit({TOO_OLD})\ntext = {program(IMPORTED)!a}\n{LOAD}"


@cache
def program(modules: tuple[str, ...]) -> str:
    """Return the modules as one text: no line of comment, no docstring, no import of each other or for types.

    Between two stands a form feed, which is a blank to Python.
    """
    joined = EDGE.join(map(module, modules))
    names = _DEFINED.findall(joined)
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"the program's modules define a name twice: {', '.join(sorted(twice))}")
    return joined


@cache
def module(name: str) -> str:
    """Return a module of the programs as it travels."""
    return stripped((files("fleetcheck.agent.program") / f"{name}.py").read_text(encoding="utf-8"))


def stripped(source: str) -> str:
    """Return a module's text without docstrings, comment lines, blank lines and imports that the bundle replaces.

    It goes by lines, as the modules are written: a text of several lines is a docstring, or stands alone in an
    assignment of the module. A parser would cost 45 ms an audit; the tests hold that it finds the same program.
    Raises ValueError for a text of several lines that stands elsewhere.
    """
    lines = source.splitlines(keepends=True)
    kept: list[str] = []
    at = 0
    while at < len(lines):
        line, begin = lines[at], at
        at += 1
        opened = _OPENED.match(line)
        if opened:
            quotes = opened[2]
            if quotes not in line[opened.end() :]:
                at = next((end for end in range(at, len(lines)) if quotes in lines[end]), at) + 1
            if opened[1] or _alone(lines, begin, at):
                kept += lines[begin:at]
        elif _REPLACED.match(line):
            while "(" in line and ")" not in lines[at - 1]:
                at += 1
        elif '"""' in line or "'''" in line:
            raise ValueError(f"line {at}: a string of several lines, other than a docstring")
        elif line.strip() and not line.lstrip().startswith("#"):
            kept.append(_COMMENT.sub("\n", line))
    return "".join(kept)


def _alone(lines: list[str], begin: int, end: int) -> bool:
    """Return whether a docstring is all that its body holds: then it stays."""
    indent = _indent(lines[begin])
    behind = (line for line in lines[end:] if line.strip() and not line.lstrip().startswith("#"))
    return indent > 0 and _indent(next(behind, "")) < indent


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
