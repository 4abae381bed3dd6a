"""The files of which the inventory expects a content: hashed where they lie. Nothing of them leaves the host."""

from __future__ import annotations

import glob
import os
from typing import Any, Dict, List

from fleetcheck.agent.program.find import expand_home
from fleetcheck.agent.program.values import Root, open_file, problem

MOST_EXPECTED = 200
EXPECTED_LIMIT = 64 << 20
PACKAGE = "/lib/python3*/%s-packages/flashinfer/"


def gather_expected(root: Root, names: "List[str]", prefixes: "List[str]") -> "Dict[str, Any]":
    """Return the part ``expected``: absolute ``names``, and those relative to FlashInfer in each environment."""
    places: "List[str]" = []
    for name in names[:MOST_EXPECTED]:
        if name.startswith(("/", "~")):
            places.append(root.at(expand_home(name)))
            continue
        for prefix in prefixes:
            for kind in ("site", "dist"):
                folders = sorted(glob.glob(glob.escape(root.at(prefix)) + PACKAGE % kind))
                places += [folder + name for folder in folders[:4]]
    cut = None if len(names) <= MOST_EXPECTED else "%d of %d files" % (MOST_EXPECTED, len(names))
    return {"files": [hashed(root, place) for place in places[: 4 * MOST_EXPECTED]], "truncated": cut}


def hashed(root: Root, place: str) -> "Dict[str, Any]":
    """Return path, size and sha256 of one regular file, or why there is none."""
    from hashlib import sha256

    value: "Dict[str, Any]" = {"path": root.show(place), "size": None, "sha256": None, "error": None}
    try:
        fd = open_file(place)
    except OSError as error:
        value["error"] = "not a regular file" if problem(error) == "EINVAL" else problem(error)
        return value
    try:
        size = os.fstat(fd).st_size
        if size > EXPECTED_LIMIT:
            value["error"] = "larger than %d MiB" % (EXPECTED_LIMIT >> 20)
            return value
        digest, left = sha256(), EXPECTED_LIMIT
        while left > 0:
            piece = os.read(fd, min(left, 1 << 20))
            if not piece:
                break
            left -= len(piece)
            digest.update(piece)
        value["size"], value["sha256"] = size, digest.hexdigest()
    except OSError as error:
        value["error"] = problem(error)
    finally:
        os.close(fd)
    return value
