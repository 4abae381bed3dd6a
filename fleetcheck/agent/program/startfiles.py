"""What Python does before an environment's first line: start-up files that touch FlashInfer, and paths in front.

Nothing of them is executed here. Of a file only the numbers of its lines are told, never what stands in them.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fleetcheck.agent.program.values import Root, read_bytes

START_LIMIT = 65536
MOST_START_FILES = 200
MOST_FOLLOWED = 24
MOST_TOLD = 20
NOT_FOLLOWED = ("flashinfer", "torch", "sglang", "vllm", "os", "sys")


def added_paths(root: Root, login: str, environ: "Dict[str, str]") -> "List[str]":
    """Return the entries of PYTHONPATH that the activation put there: ``login`` is what it was before."""
    before = login.split(":")
    entries = [one for one in environ.get("PYTHONPATH", "").split(":") if one.startswith("/")]
    inside = root.prefix + "/"
    return [
        one if not root.prefix or one.startswith(inside) else root.at(one) for one in entries if one not in before
    ][:64]


def sites_of(folders: "List[str]", below: str = "/") -> "List[str]":
    """Return the folders of packages, whose ``.pth`` files Python reads; those below one folder alone."""
    ends = ("/site-packages", "/dist-packages")
    return [one for one in folders if one.startswith(below) and one.rstrip("/").endswith(ends)]


def hidden_package(root: Root, name: str, place: str, added: "List[str]") -> "Optional[Dict[str, Any]]":
    """Return the environment's own copy of a package where another one, at ``place``, comes before it."""
    own = sites_of(sys.path, sys.prefix.rstrip("/") + "/")
    real = os.path.realpath(place)
    owns = [site + "/" + name for site in own if os.path.isfile(site + "/" + name + "/__init__.py")]
    if not owns or real in map(os.path.realpath, owns):
        return None
    by = "activation" if os.path.dirname(place) in [one.rstrip("/") for one in added] else "start-up"
    return {"path": root.show(owns[0]), "by": by}


def start_rows(
    root: Root, added: "List[str]", user: "Optional[str]", dists: "List[str]"
) -> "List[Dict[str, Any]]":
    """Return where start-up files touch FlashInfer or the path: file, line, and which (``word``).

    ``.pth`` files count by their lines that are executed; ``sitecustomize`` and ``usercustomize`` (where there is
    a ``user`` site) whole; of what they import, modules in the same folders. What belongs to an editable install
    of FlashInfer (``dists`` are its metadata folders) is left out.
    """
    sites = sites_of(sys.path) + ([user] if user is not None else [])
    places = [*added, *sys.path, *sites]
    waiting: "List[Tuple[str, bool]]" = [(path, True) for site in sites for path in _pth_files(site)]
    for module in ("sitecustomize", "usercustomize") if user is not None else ("sitecustomize",):
        waiting += [(path, False) for path in _module(places, module)]
    library = os.path.dirname(os.__file__)
    packages = [place for place in places if place != library]
    found: "List[Dict[str, Any]]" = []
    seen: "List[str]" = []
    followed = 0
    while waiting:
        path, executed_alone = waiting.pop(0)
        if path in seen or os.path.basename(path).startswith("__editable__"):
            continue
        seen.append(path)
        try:
            lines = read_bytes(path, START_LIMIT).decode("utf-8", "replace").splitlines()
        except OSError:
            continue  # an unreadable one stops no interpreter either
        told = len(found)
        for number, line in enumerate(lines, 1):
            code = line.partition("#")[0]
            if executed_alone and not code.startswith(("import ", "import\t")):
                continue
            for word in ("FLASHINFER_CSRC_DIR", "flashinfer", "sys.path"):
                if word in code:
                    found.append({"file": root.show(path), "line": number, "word": word})
                    break
            for module in _imported(code):
                if followed < MOST_FOLLOWED:
                    followed += 1
                    waiting += [(one, False) for one in _module(packages, module)]
        if len(found) > told and _recorded(dists, os.path.basename(path)):
            del found[told:]
    found.sort(key=lambda row: row["word"] == "sys.path")
    return found[:MOST_TOLD]


def _pth_files(site: str) -> "List[str]":
    try:
        names = sorted(name for name in os.listdir(site) if name.endswith(".pth") and not name.startswith("."))
    except OSError:
        return []  # sys.path names folders that need not be there
    return [site + "/" + name for name in names[:MOST_START_FILES]]


def _module(places: "List[str]", name: str) -> "List[str]":
    """Return the file of a module in the first of these folders that has it."""
    for place in places:
        for path in (place + "/" + name + "/__init__.py", place + "/" + name + ".py"):
            if os.path.isfile(path):
                return [path]
    return []


def _imported(code: str) -> "Iterator[str]":
    """Yield the top-level names that one line imports."""
    for part in code.split(";"):
        words = part.replace(",", " ").split()
        if len(words) > 1 and words[0] in ("import", "from"):
            for word in words[1:2] if words[0] == "from" else words[1:]:
                name = word.partition(".")[0]
                if word == "as":
                    break
                if name.isidentifier() and name not in NOT_FOLLOWED:
                    yield name


def _recorded(dists: "List[str]", name: str) -> bool:
    """Whether a metadata folder lists a file of that name as its own."""
    for folder in dists:
        try:
            text = read_bytes(folder + "/RECORD", 4 << 20)
        except OSError:
            continue
        if b"\n" + name.encode("utf-8", "replace") + b"," in b"\n" + text:
            return True
    return False
