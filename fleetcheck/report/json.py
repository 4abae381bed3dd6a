"""The JSON document ``fleetcheck/run/1``: pure ASCII, the promised names in their promised order."""

from __future__ import annotations

import json
import math
from typing import Any

from fleetcheck.run import Run


def render(run: Run) -> str:
    """Return the document, indented, with a line end. Numbers that JSON does not have become null."""
    return _dump(run.to_json(), indent=2) + "\n"


def compact(document: Any) -> str:
    """Return any JSON value on one line, pure ASCII."""
    return _dump(document, separators=(",", ":"))


def _dump(document: Any, **layout: Any) -> str:
    try:
        return json.dumps(document, ensure_ascii=True, allow_nan=False, **layout)
    except ValueError:
        return json.dumps(_finite(document), ensure_ascii=True, allow_nan=False, **layout)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
