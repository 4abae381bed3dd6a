"""The JSON document ``fleetcheck/run/1``: pure ASCII, the promised names in their promised order."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from fleetcheck.run import Run


def render(run: Run) -> str:
    """Return the document with a line end: a host is one line, and so is a finding."""
    return "".join(pieces(run))


def pieces(run: Run) -> Iterator[str]:
    """Yield the document host by host: as one text a thousand hosts are 16 MB, and as much again to be written."""
    # Indented hosts would be easier on the eye and cost ten times as much: json's fast encoder knows no indent.
    for number, (name, field) in enumerate(type(run).model_fields.items()):
        value = getattr(run, name)
        yield f'{"," if number else "{"}\n  "{field.alias or name}": '
        if isinstance(value, tuple) and value:
            for position, item in enumerate(value):
                yield ("," if position else "[") + "\n    " + _dump(plain(item))
            yield "\n  ]"
        elif isinstance(value, BaseModel):
            yield _dump(plain(value), indent=2).replace("\n", "\n  ")
        else:
            yield _dump(value)
    yield "\n}\n"


def compact(document: Any) -> str:
    """Return values of :func:`plain` on one line, pure ASCII."""
    return _dump(document, separators=(",", ":"))


def plain(record: BaseModel) -> dict[str, Any]:
    """Return a record as values for :mod:`json`, by its promised names."""
    try:
        return record.model_dump(mode="json", by_alias=True)
    except UnicodeEncodeError:  # pydantic, of a key with a lone surrogate: a file name that is not UTF-8
        return record.model_dump(by_alias=True)


def _dump(document: Any, **layout: Any) -> str:
    try:
        text = json.dumps(document, allow_nan=False, **layout)
    except ValueError:
        return json.dumps(_sound(document), allow_nan=False, **layout)
    # Half of a surrogate pair is no text, and strict parsers refuse it (RFC 8259, 8.2).
    return json.dumps(_sound(document), allow_nan=False, **layout) if "\\ud" in text else text


def _sound(value: Any) -> Any:
    """Return a value with infinities and NaN as null, and half surrogates as the text of their escape."""
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sound(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value
