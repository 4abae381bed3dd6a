"""What Python does before an environment's first line: start-up files that touch FlashInfer, and paths in front.

Nothing of them is executed here. Of a file only the numbers of its lines are told, never what stands in them.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fleetcheck.agent.program.sitepath import PTH_CODE, PTH_LIMIT, Site, is_code, pth_files, pth_lines
from fleetcheck.agent.program.startnames import module_files
from fleetcheck.agent.program.startwords import StartText
from fleetcheck.agent.program.values import Root, read_bytes

START_LIMIT = 65536
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


def hidden_package(
    root: Root, site: Site, name: str, place: str, added: "List[str]"
) -> "Optional[Dict[str, Any]]":
    """Return the environment's own copy of a package where another one, at ``place``, comes before it."""
    own = sites_of(site.path, site.prefix.rstrip("/") + "/")
    real = os.path.realpath(place)
    owns = [one + "/" + name for one in own if os.path.isfile(one + "/" + name + "/__init__.py")]
    if not owns or real in map(os.path.realpath, owns):
        return None
    by = "activation" if os.path.dirname(place) in [one.rstrip("/") for one in added] else "start-up"
    return {"path": root.show(owns[0]), "by": by}


def start_rows(
    root: Root, site: Site, added: "List[str]", user: "Optional[str]", dists: "List[str]"
) -> "List[Dict[str, Any]]":
    """Return where start-up files touch FlashInfer or the path: file, line, and which (``word``).

    ``.pth`` files count by their lines that are executed; ``sitecustomize`` and ``usercustomize`` (where there is
    a ``user`` site) whole; of what they import, modules in the same folders. What belongs to an editable install
    of FlashInfer (``dists`` are its metadata folders) is left out. ``unread`` is a line that may put another
    package in front, by what cannot be read as data; with an ``error`` it is a file that may not be read at all.
    """
    sites = sites_of(site.path) + ([user] if user is not None else [])
    places = [*added, *site.path, *sites]
    waiting: "List[Tuple[str, bool]]" = [(path, True) for one in sites for path in pth_files(one)]
    for module in ("sitecustomize", "usercustomize") if user is not None else ("sitecustomize",):
        waiting += [(path, False) for path in module_files(places, module)]
    library = os.path.dirname(os.__file__)
    packages = [place for place in places if place != library]
    found: "List[Dict[str, Any]]" = []
    seen: "List[str]" = []
    followed = 0
    while waiting:
        path, executed_alone = waiting.pop(0)
        if path in seen or (os.path.basename(path).startswith("__editable__") and path not in site.closed):
            continue
        seen.append(path)
        try:
            data = read_bytes(path, PTH_LIMIT if executed_alone else START_LIMIT)
            text = StartText(data, executed(pth_lines(data)) if executed_alone else None)
        except OSError as error:
            site.shut(path, error)
            continue
        except UnicodeDecodeError:
            continue  # in the user site: Python does not start for that user alone
        rows = [{"file": root.show(path), "line": number, "word": word} for number, word in text.words()]
        if rows and not _recorded(dists, os.path.basename(path)):
            found += rows
        for number, code in text.code():
            for module in _imported(code):
                files = module_files(packages, module) if followed < MOST_FOLLOWED else []
                if files and text.is_import(number):
                    waiting += [(one, False) for one in files]
                followed += 1
    return _told(root, site, found)


def executed(lines: "List[str]") -> "List[str]":
    """Return the lines of a ``.pth`` file with those alone that are executed, as far as the site follows them."""
    room = PTH_CODE
    kept: "List[str]" = []
    for line in lines:
        room -= len(line) if is_code(line) else 0
        if room < 0:
            break
        kept.append(line if is_code(line) else "")
    return kept


def _told(root: Root, site: Site, found: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
    """Return the rows to tell, the gravest first: with what cannot be read as data, and what may not be read."""
    for path, number, before in site.code.unread:
        row: "Dict[str, Any]" = {"file": root.show(path), "line": number, "word": "sys.path"}
        same = [one for one in found if (one["file"], one["line"]) == (row["file"], number)]
        if before and not same:
            found.append({**row, "unread": True})
        for one in same if before else ():
            one["unread"] = True
    for path, error in site.closed.items():
        row = {"file": root.show(path), "line": None, "word": "sys.path", "unread": True, "error": error}
        found.append(row)
    found.sort(key=lambda row: (row["word"] == "sys.path", "unread" not in row))
    return found[:MOST_TOLD]


def _imported(code: str) -> "Iterator[str]":
    """Yield the names that one line imports, with their parents' names in front."""
    for part in code.split(";"):
        words = part.replace(",", " ").split()
        if len(words) > 1 and words[0] in ("import", "from"):
            for word in words[1:2] if words[0] == "from" else words[1:]:
                name = word.partition(".")[0]
                if word == "as":
                    break
                if name.isidentifier() and name not in NOT_FOLLOWED:
                    yield word
                    if words[0] == "from" and len(words) > 3 and words[3].isidentifier():
                        yield word + "." + words[3]


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
