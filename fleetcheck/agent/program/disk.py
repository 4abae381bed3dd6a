"""FlashInfer as it lies on the disk of a serving process: the files that decide, and the compilers beside it."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from fleetcheck.agent.program.system import sha256_of
from fleetcheck.agent.program.tools import gather_tools
from fleetcheck.agent.program.values import Root, problem, read_bytes

SERVER_FILES = (
    "jit/env.py", "jit/comm.py", "comm/trtllm_ar.py", "comm.py", "compilation_context.py",
    "data/include/flashinfer/comm/trtllm_allreduce.cuh",
    "data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh", "data/csrc/trtllm_allreduce.cu",
    "data/csrc/trtllm_allreduce_fusion.cu", "data/csrc/trtllm_moe_allreduce_fusion.cu",
)  # fmt: skip


def disk_view(
    root: Root, first: "List[str]", sites: "List[str]", prefixes: "List[Optional[str]]", env: "Dict[str, str]"
) -> "Dict[str, Any]":
    """Return where FlashInfer lies for a process, its deciding files, and the compilers of its environment."""
    folders = [*first, *sites]
    for prefix in prefixes:
        if prefix:
            library = root.at(prefix) + "/lib"
            names = sorted(os.listdir(library)) if os.path.isdir(library) else []
            folders += [
                prefix + "/lib/" + name + packages
                for name in names[:64] if name.startswith("python3")
                for packages in ("/site-packages", "/dist-packages")
            ]  # fmt: skip
    found: "Optional[str]" = None
    value: "Dict[str, Any]" = {"root": None, "files": [], "error": None}
    for place in (one for folder in folders for one in (folder, *linked_roots(root.at(folder)))):
        if os.path.isfile(root.at(place) + "/flashinfer/__init__.py"):
            found = place + "/flashinfer"
        if found or os.path.isfile(root.at(place) + "/flashinfer.py"):
            break  # a module of that name hides each package behind it
    value["root"] = None if found is None else root.show(found)
    for name in SERVER_FILES if found else ():
        path = root.at(str(found)) + "/" + name
        try:
            info = os.stat(path)
            value["files"].append({
                "name": name, "path": root.show(path), "size": info.st_size, "mtime": info.st_mtime,
                "ctime": info.st_ctime, "links": info.st_nlink, "sha256": sha256_of(read_bytes(path, 4 << 20)),
            })  # fmt: skip
        except OSError as error:
            if problem(error) not in ("ENOENT", "ENOTDIR"):
                value["files"].append({"name": name, "path": root.show(path), "error": problem(error)})
    value["tools"] = gather_tools(root, env, None)
    return value


def linked_roots(folder: str) -> "List[str]":
    """Return the checkouts that editable installs of FlashInfer lead to, by their ``.pth`` files."""
    found: "List[str]" = []
    try:
        names = [name for name in os.listdir(folder)[:5000] if "flashinfer" in name and "editable" in name]
    except OSError:
        return found
    for name in names[:8]:
        try:
            text = read_bytes(folder + "/" + name, 65536).decode("utf-8", "replace")
        except OSError:
            continue
        if name.endswith(".pth"):
            found += [line.strip() for line in text.splitlines()[:8] if line.startswith("/")]
        at = text.find("'flashinfer': '")
        if at >= 0:
            found.append(os.path.dirname(text[at + 15 :].partition("'")[0]))
    return found
