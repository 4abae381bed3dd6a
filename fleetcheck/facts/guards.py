"""Conditions of a CUDA header that leave kernels empty for compute capability 12.x.

``#if … (__CUDA_ARCH__ < 1200)`` around the body of a kernel compiles it to nothing there: the build succeeds,
and a call returns whatever was in the buffer (flashinfer#3903). The conditions are evaluated, not searched for a
text: ``<= 1190`` and ``!(… >= 1200)`` say the same.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

HEADER = "data/include/flashinfer/comm/trtllm_allreduce.cuh"
FUSED = "data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh"
# Generations that upstream's gate has always admitted; a guard lets one of them pass.
ADMITTED = (900, 1000, 1030)

_CONDITION = re.compile(r"#\s*(?:el)?if\b(.*)", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*#\s*(?:el)?if(?:n?def)?\b")
_DEFINE = re.compile(r"\s{0,8}(?:\d{1,9}\t)?[ \t]*#[ \t]*(?:define|undef)\b")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_PIECE = re.compile(
    r"\s*(defined\s*\(\s*\w+\s*\)|defined\s+\w+|0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*|\w+|&&|\|\||[<>=!]=|[<>!()+*/%-])",
    re.ASCII,
)
_WORDS = {"&&": " and ", "||": " or ", "!": " not ", "/": " // "}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def count(text: str, capabilities: Sequence[str] = ("12.0",)) -> int:
    """Count the conditions that admit an older generation and exclude one of ``capabilities`` (those of 12.x).

    ``text`` holds lines of the header, each with its number and a tab in front, or the header itself. Lines in a
    comment are no conditions.
    """
    archs = tuple(
        sorted({int(major) * 100 + int(minor) * 10 for major, minor in _pairs(capabilities) if major == "12"})
    )
    return sum(_excludes(condition, archs or (1200,)) for condition in conditions(text))


@lru_cache(maxsize=256)
def doubt(text: str, expected: int = 0, closed: int = 0) -> str | None:
    """Return why the guards of an edited header cannot be told from its lines, or None.

    ``expected`` is how many conditions the release's own header holds: where there are fewer, what they kept out
    may be kept out by other means, such as a macro or a file that is included. ``closed`` is how many of them
    admit no GPU that a gate admits. Upstream's own header has none of these: a macro that stands for the
    condition, one that is not understood, or one for 12.x alone, of which another branch may be the kernel.
    """
    # By line: what was sent are single lines, between which a comment may end unseen.
    plain = "\n".join(_COMMENT.sub(" ", line) for line in text.splitlines())
    defines = False
    for line in plain.splitlines():
        defines = defines or _DEFINE.match(line) is not None
        if defines and "__CUDA_ARCH" in line:
            return "a macro stands for __CUDA_ARCH__"
        defines = defines and line.endswith("\\")
    if re.search(r"__CUDA_ARCH_(?!_\b)\w+", plain):
        return "a condition names a feature of one generation"
    if outside := _outside(plain):
        return f"'{outside[:80]}' decides on __CUDA_ARCH__ in the code itself"
    if len(conditions(text)) < expected:
        return f"{len(conditions(text))} of the {expected} conditions on __CUDA_ARCH__ are left"
    shut = [one for one in conditions(text) if not any(_holds(one, arch, 1) for arch in (*ADMITTED, 1200, 1210))]
    if len(shut) > closed:
        return f"the condition '{shut[-1][:80]}' admits no GPU"
    for condition in conditions(text):
        if any(_holds(condition, arch, 1) != _holds(condition, arch, 0) for arch in (*ADMITTED, 1200, 1210)):
            return f"the condition '{condition[:80]}' rests on another macro"
        for other in (1, 0):
            older = [_holds(condition, arch, other) for arch in ADMITTED]
            newer = [_holds(condition, arch, other) for arch in (1200, 1210)]
            if None in older or None in newer:
                return f"the condition '{condition[:80]}' is not understood"
            if any(newer) and not any(older):
                return f"the condition '{condition[:80]}' admits 12.x alone"
    return None


def _outside(plain: str) -> str | None:
    """Return the first line that names ``__CUDA_ARCH__`` and is neither a condition nor what one goes on with."""
    goes_on = False
    for line in plain.splitlines():
        said = re.sub(r"^\s{0,8}\d{1,9}\t", "", line)
        if "__CUDA_ARCH__" in said and not goes_on and not _DIRECTIVE.match(said):
            return said.strip()
        goes_on = said.rstrip().endswith("\\")
    return None


def _pairs(capabilities: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (match.group(1), match.group(2)) for c in capabilities if (match := re.fullmatch(r"(\d{1,2})\.(\d)", c))
    ]


@lru_cache(maxsize=256)
def conditions(text: str) -> tuple[str, ...]:
    """Return the conditions of ``#if`` and ``#elif`` that name ``__CUDA_ARCH__``, joined over continued lines."""
    found: list[str] = []
    whole, expected = "", -1
    for line in [*text.splitlines()[:20_000], ""]:
        numbered = re.match(r"\s{0,8}(\d{1,9})\t", line)
        number = int(numbered.group(1)) if numbered else expected
        if whole and number != expected:
            # The line that went on is not among those sent: what is left of the condition still tells something.
            found += _condition(whole)
            whole = ""
        whole += line[numbered.end() :] if numbered else line
        if whole.rstrip().endswith("\\") and line:
            whole, expected = whole.rstrip()[:-1] + " ", number + 1 if numbered else expected
            continue
        found += _condition(whole)
        whole, expected = "", -1
    return tuple(found)


def _condition(line: str) -> list[str]:
    match = _CONDITION.match(_COMMENT.sub(" ", line).strip())
    said = re.sub(r"(?:&&|\|\|)\s*$", "", match.group(1).strip()) if match else ""
    return [said] if "__CUDA_ARCH__" in said and len(said) < 1000 else []


@lru_cache(maxsize=1024)
def _excludes(condition: str, archs: tuple[int, ...]) -> bool:
    # Another macro may be set or not: a condition that excludes in either case excludes.
    for other in (1, 0):
        admitted = [_holds(condition, arch, other) for arch in ADMITTED]
        if None in admitted:
            return _bounded(condition, archs)
        if any(admitted) and any(_holds(condition, arch, other) is False for arch in archs):
            return True
    return False


def _bounded(condition: str, archs: tuple[int, ...]) -> bool:
    """Judge a condition that is not understood by the upper bound in its text."""
    bounds = re.findall(r"__CUDA_ARCH__\s*(<=?)\s*(\d{3,4})(?!\d)", condition)
    limits = [int(number) + (sign == "<=") for sign, number in bounds]
    return any(min(ADMITTED) < limit <= max(archs) for limit in limits)


@lru_cache(maxsize=4096)
def _holds(condition: str, arch: int, other: int) -> bool | None:
    """Evaluate a condition of the preprocessor for one ``__CUDA_ARCH__``; None where it is not understood."""
    words: list[str] = []
    position = 0
    try:
        while position < len(condition):
            match = _PIECE.match(condition, position)
            if match is None:
                return None
            words.append(_word(match.group(1), arch, other))
            position = match.end()
        # A condition cut in the middle of its line is still one: the open parentheses are closed.
        closing = ")" * max(0, words.count("(") - words.count(")"))
        return bool(_number(ast.parse(" ".join(words).strip() + closing, mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError, ZeroDivisionError, OverflowError):
        return None


def _word(piece: str, arch: int, other: int) -> str:
    if piece in _WORDS:
        return _WORDS[piece]
    if piece.startswith("defined"):
        return "1" if re.search(r"\b__CUDA_ARCH__\b", piece) else str(other)
    if re.fullmatch(r"0\d+[uUlL]*", piece):
        return str(int(piece.rstrip("uUlL"), 8))
    if piece[0].isdigit():
        return str(int(piece.rstrip("uUlL"), 0))
    if piece[0].isalpha() or piece[0] == "_":
        return str(arch if piece == "__CUDA_ARCH__" else other)
    return piece


def _number(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.BoolOp(op=ast.And(), values=values):
            return int(all(_number(value) for value in values))
        case ast.BoolOp(op=ast.Or(), values=values):
            return int(any(_number(value) for value in values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return int(not _number(operand))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            return _ARITHMETIC[type(sign)](_number(left), _number(right))
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _COMPARISONS:
            return int(_COMPARISONS[type(sign)](_number(left), _number(right)))
    raise ValueError("not a condition")
