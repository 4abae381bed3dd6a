"""The JSON document ``fleetcheck/run/1``: pure ASCII, the promised names in their promised order."""

from __future__ import annotations

import json
import math
from typing import Any

from fleetcheck.run import Run


def render(run: Run) -> str:
    """Return the document, indented, with a line end. Numbers that JSON does not have become null."""
    document = run.to_json()
    try:
        return _dump(document)
    except ValueError:
        return _dump(_finite(document))


def _dump(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
