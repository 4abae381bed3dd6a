"""Files of FlashInfer that are gone although they are needed, and what needs each that is told of."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from fleetcheck.agent.program.distributions import Record
from fleetcheck.agent.program.needs import LAUNCHERS, SPDLOG, lost_folders, lost_modules, sources
from fleetcheck.agent.program.sources import HEADERS, MOST_CHANGED, SOURCES, describe_file, listing
from fleetcheck.agent.program.values import Root, problem


def gone(package: str, record: Record, folder: str) -> "List[str]":
    """Return the files below a folder that RECORD lists and that are not there."""
    listed = [name for name in record.files if name.startswith(folder)]
    try:
        there = listing(package + "/" + folder.rstrip("/")) if listed else {}
    except OSError as error:
        if problem(error) not in ("ENOENT", "ENOTDIR"):
            return []  # what may not be looked into is not gone
        there = {}
    lost = [name for name in listed if name[len(folder) :] not in there]
    return [name for name in lost if not os.path.lexists(package + "/" + name)]


def add_needed(
    root: Root, package: str, record: Record, files: "List[Dict[str, Any]]", texts: "Dict[str, bytes]"
) -> "List[Dict[str, Any]]":
    """Return the files with what is gone beside them; ``needed_by`` names what cannot do without a file."""
    absent = [name for folder in (SOURCES[1], SPDLOG) for name in gone(package, record, folder)]
    starts = [name for name in (*LAUNCHERS, *HEADERS) if os.path.isfile(package + "/" + name)]
    there, lost = sources(package, starts, bool(absent))
    # A clone that was never built has no links below data; that its csrc is not there is told already.
    env = texts.get("jit/env.py", b"") if starts else b""
    folders = lost_folders(package, record.files if record.known else None, env)
    modules = lost_modules(package, texts)
    # Of a folder that is gone itself no file is told of.
    lost = {name: by for name, by in lost.items() if not name.startswith(tuple(one + "/" for one in folders))}
    absent = [name for name in absent if not name.startswith(tuple(one + "/" for one in folders))]
    record.add([name for name in modules if name not in record.files])
    needed = dict(there, **lost, **modules, **dict.fromkeys(folders, "jit/env.py"))
    for value in files:
        if value["record"] != "match" and needed.get(value["name"]):
            value["needed_by"] = needed[value["name"]]
    told = {value["name"] for value in files}
    unneeded = sorted(name for name in absent if name not in needed)[:MOST_CHANGED]
    untold = sorted(name for name in (*lost, *modules, *folders) if name not in told)[:MOST_CHANGED]
    for name in [*untold, *(name for name in unneeded if name not in told)]:
        value = describe_file(root, package, folders.get(name, name), record)
        value.update(name=name, path=root.show(package + "/" + name))
        files.append(dict(value, needed_by=needed[name]) if name in needed else value)
    return files
