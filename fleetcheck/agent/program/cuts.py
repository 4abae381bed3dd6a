"""Cutting Python text by indentation: a file whose syntax is broken still gives the blocks that are whole."""

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
