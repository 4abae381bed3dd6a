"""Cutting texts: Python by indentation, so that broken syntax still gives whole blocks; C++ by its lines."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

MAJORS = "supported_major_versions"
MOST_ROWS = 400
MOST_VALUE = 200


def blocks(text: str) -> "Iterator[Tuple[str, List[str]]]":
    """Yield the statements of a module, and the methods of its classes, each with its first line stripped.

    Methods lose their own indentation.
    """
    block: "List[str]" = []
    shift, in_class = 0, False
    for line in text.splitlines(keepends=True):
        stripped = line.lstrip(" ")
        indent = len(line) - len(stripped)
        opens = indent in (0, 4) and stripped[:1] not in ("\n", "\r", "\t", "#", ")", "]", "}", "")
        if opens and indent == 0:
            if block:
                yield block[0].strip(), block
            block, shift, in_class = [line], 0, stripped.startswith("class ")
        elif opens and in_class:
            if block:
                yield block[0].strip(), block
            block, shift = [stripped], 4
        else:
            block.append(line[4:] if shift and line.startswith("    ") else line)
    if block:
        yield block[0].strip(), block


def defined(first: str) -> "str | None":
    """Return the name of the function that a block's first line opens, None where it opens none."""
    for opening in ("def ", "async def "):
        if first.startswith(opening):
            return first[len(opening) :].partition("(")[0].strip()
    return None


def argument(text: str) -> str:
    """Return the first expression of a text, up to the comma or bracket that ends it, on one line."""
    depth = 0
    for position, sign in enumerate(text[:MOST_VALUE]):
        depth += (sign in "([{") - (sign in ")]}")
        if depth < 0 or (depth == 0 and sign in ",#\n" and text[:position].strip()):
            return " ".join(text[:position].split())
    return " ".join(text[:MOST_VALUE].split())


def gate_rows(file: str, text: str) -> "List[Dict[str, Any]]":
    """Return what ``file`` says of supported majors: a row a function, with the text of each list.

    A ``gen_*`` function that calls one of these names it in ``via``. Names that stand for a list come as rows
    without a function.
    """
    if MAJORS not in text:
        return []
    rows: "List[Dict[str, Any]]" = []
    bodies: "Dict[str, str]" = {}
    for first, lines in blocks(text):
        body = "".join(lines)
        name = defined(first)
        if name is not None:
            bodies[name] = body
            values = [argument(piece) for piece in body.split(MAJORS + "=")[1:]]
            if values:
                rows.append({"file": file, "function": name, "values": values[:20], "via": []})
        elif "MAJOR" in first and "=" in first:
            value = body.partition("=")[2].strip()
            name = first.partition("=")[0].partition(":")[0].strip()
            rows.append({"file": file, "name": name, "values": [argument(value)]})
    helpers = [row["function"] for row in rows if not row.get("function", "gen_").startswith("gen_")]
    for name, body in bodies.items():
        via = [helper for helper in helpers if helper + "(" in body]
        if name.startswith("gen_") and via:
            rows.append({"file": file, "function": name, "values": [], "via": via})
    return rows[:MOST_ROWS]


def cut_functions(text: str) -> str:
    """Return the top-level ``gen_*`` functions with decorators, by indentation: broken syntax does not matter."""
    out: "List[str]" = []
    decorators: "List[str]" = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line[:1] not in (" ", "\t", "\n", "\r", "#", ")", "]", "}"):  # a new statement of the module
            inside = line.startswith(("def gen_", "async def gen_"))
            if inside:
                out.extend(decorators)
            decorators = [line] if line.startswith("@") else []
        if inside:
            out.append(line)
    return "".join(out)


def without_blocks(text: str) -> str:
    """Return C++ text with its block comments blanked; every line keeps its number."""
    out: "List[str]" = []
    at = look = 0
    while True:
        begin = text.find("/*", look)
        end = text.find("*/", begin + 2) if begin >= 0 else -1
        if end < 0:
            return "".join(out) + text[at:]
        if "//" in text[text.rfind("\n", 0, begin) + 1 : begin]:
            look = begin + 2  # behind // it opens nothing, and what follows is code
            continue
        out += [text[at:begin], "\n" * text.count("\n", begin, end)]
        at = look = end + 2


def cut_lines(text: str, word: str) -> str:
    """Return the lines that hold ``word``, each behind its number and a tab."""
    lines = enumerate(text.split("\n"), 1)
    return "".join("%d\t%s\n" % (number, line.rstrip("\r")) for number, line in lines if word in line)


def rest_of(text: str, word: str) -> str:
    """Return C++ text without comments, blank lines, and the ``#if`` and ``#elif`` that hold ``word``.

    A line that goes on behind a backslash is one with the next. A comment that holds the word takes no code with
    it.
    """
    whole = without_blocks(text.replace("\r\n", "\n").replace("\\\n", " "))
    lines = (line.partition("//")[0].rstrip() for line in whole.split("\n"))
    return "\n".join(line for line in lines if line and not (word in line and _is_condition(line)))


def _is_condition(line: str) -> bool:
    first, _, said = line.lstrip().partition("#")
    return not first and said.lstrip().startswith(("if ", "if(", "elif ", "elif("))
