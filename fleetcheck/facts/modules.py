"""Which modules of a FlashInfer its own gates close to a GPU, from the lists that the agent cut out."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from fleetcheck.facts import shape

MAX_ROWS = 400
MAX_MODULES = 300

Majors = tuple[int, ...]


def gates(rows: Sequence[Any]) -> dict[str, Majors | None]:
    """Return the majors of every gated ``gen_*`` function; None where its list admits all.

    A function that picks one of several lists has those of all. One whose list is computed is left out.
    """
    names: dict[tuple[str | None, str], Majors] = {}
    values: dict[tuple[str | None, str], list[str]] = {}
    via: dict[tuple[str | None, str], tuple[str, ...]] = {}
    for raw in rows[:MAX_ROWS]:
        row = shape.mapping(raw)
        file, function, name = (shape.name(row.get(key), 300) for key in ("file", "function", "name"))
        texts = list(shape.texts(row.get("values"), 20))
        if name and texts and (found := _literal(texts[0], {}, file)):
            names[file, name] = found
        elif function:
            values.setdefault((file, function), []).extend(texts)
            via[file, function] = shape.texts(row.get("via"), 20)
    result: dict[str, Majors | None] = {}
    for (file, function), own in values.items():
        texts = own + [text for helper in via[file, function] for text in values.get((file, helper), ())]
        lists = [_literal(text, names, file) for text in texts]
        if function.startswith("gen_") and lists and None not in lists and len(result) < MAX_MODULES:
            known = [one for one in lists if one is not None]
            result[function] = None if () in known else tuple(sorted({major for one in known for major in one}))
    return result


def _literal(text: str, names: Mapping[tuple[str | None, str], Majors], file: str | None) -> Majors | None:
    """Return the majors that a text lists, none of them where it admits all, None where it is computed."""
    text = text.removeprefix("list(").rstrip(")") if text.startswith("list(") else text
    if (file, text) in names:
        return names[file, text]
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    if not value:
        return ()
    items = list(value) if isinstance(value, list | tuple | set) else []
    numbers = [number for item in items if (number := shape.integer(item, 0, 99)) is not None]
    return tuple(sorted(set(numbers))) if numbers and len(numbers) == len(items) else None


def closed(found: Mapping[str, Majors | None], capabilities: Sequence[str]) -> tuple[str, ...] | None:
    """Return the functions whose gate misses one of these compute capabilities; None where none is known."""
    majors = {int(capability.partition(".")[0]) for capability in capabilities}
    if not majors:
        return None
    return tuple(sorted(name for name, gate in found.items() if gate is not None and majors - set(gate)))
