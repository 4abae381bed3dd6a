"""The host's side of ``--deep``: a scratch folder, one import at a time in it, and no trace of it afterwards."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple

from fleetcheck.agent.program.activate import Talk, converse
from fleetcheck.agent.program.values import Root, dumps

DEEP_SECONDS = 60.0
MOST_DEEP = 16


def make_scratch() -> str:
    """Make a folder of our own below TMPDIR or /tmp, and return its real path."""
    parent = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  # the name is random and mkdir refuses an existing one
    path = os.path.realpath(parent) + "/fleetcheck-" + os.urandom(12).hex()
    os.mkdir(path, 0o700)
    return path


def remove_scratch(path: str) -> "str | None":
    """Remove it with all that is in it, following no link; returns why something is left, else None."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files + folders:
            place = folder + "/" + name
            try:
                if os.path.isdir(place) and not os.path.islink(place):
                    os.rmdir(place)
                else:
                    os.unlink(place)
            except OSError:
                continue  # what is left keeps the folder, which is told
    try:
        os.rmdir(path)
    except OSError as error:
        return "%s is left: %s" % (path, error.strerror)
    return None


def to_import(items: "List[Dict[str, Any]]") -> "Tuple[List[Dict[str, Any]], Dict[str, str]]":
    """Return the environments to import in, and the parts ``deep/N`` of those that are left out."""
    usable = [item for item in items if item["python"] is not None and item["state"] == "present"]
    left = [(item, "more than %d environments" % MOST_DEEP) for item in usable[MOST_DEEP:]]
    left += [(item, "it is in a container") for item in items if item["kind"] == "container"]
    return usable[:MOST_DEEP], {"deep/%d" % item["index"]: not_made(item, why) for item, why in left}


def not_made(item: "Dict[str, Any]", why: str) -> str:
    """Return the part ``deep/N`` of an environment in which nothing was imported, or that gave no answer."""
    return dumps({"index": item["index"], "path": item["path"], "state": "not-made", "error": why})


def look_deep(root: Root, item: "Dict[str, Any]", source: bytes, scratch: str, limit: float) -> str:
    """Return the part ``deep/N``: what the real import says of one environment."""
    value: "Dict[str, Any]" = {
        "index": item["index"], "path": item["path"], "state": "ran", "error": None, "rc": None, "stderr": "",
    }  # fmt: skip
    call = "tell_import(%r, 4)\n" % scratch
    kind = item["kind"] if item["script"] is not None or item["kind"] != "venv" else "plain"
    lines = converse(Talk(root, item, kind, source + call.encode(), normally=True), value, limit)
    if lines is None:
        return dumps(value)
    return dumps(value)[:-1] + ', "imported": ' + lines[1] + "}"
