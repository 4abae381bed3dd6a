"""Values that stand for a look which did not come back."""

from __future__ import annotations

from typing import Any, Dict


def unseen(path: str, state: str, why: str) -> Dict[str, Any]:
    """Return the item of an entry whose very path could not be looked at."""
    return {
        "path": path, "item": path, "origin": "listed", "state": state, "error": why, "kind": "plain",
        "script": None, "python": None, "real": None, "id": None,
    }  # fmt: skip


def blind(item: Dict[str, Any], why: str) -> Dict[str, Any]:
    """Return the value of an environment whose look did not come back: out of time, or a failure of its own."""
    late = why == "limit"
    return {
        "index": item["index"], "path": item["path"], "real": item["real"], "item": item["item"],
        "origin": item["origin"], "state": "hung" if late else "broken", "error": "timeout" if late else why,
        "rc": None, "stderr": "", "cfg": None, "activation": None,
    }  # fmt: skip
