"""What the package cannot do without: modules that it imports at once, and what trtllm_comm is compiled from.

RECORD tells what is gone of a wheel. What the files themselves name holds for a checkout too, and for any release.
"""

from __future__ import annotations

import os
from typing import Container, Dict, Iterator, List, Optional, Tuple

from fleetcheck.agent.program.values import read_bytes

# Modules that run whenever trtllm_comm is built; what they import at the top of the file must be there.
ENTRIES = (
    "__init__.py", "compilation_context.py", "jit/__init__.py", "jit/comm.py", "jit/core.py", "jit/cpp_ext.py",
    "jit/env.py", "comm/__init__.py", "comm/trtllm_ar.py",
)  # fmt: skip
LAUNCHERS = (
    "data/csrc/trtllm_allreduce.cu",
    "data/csrc/trtllm_allreduce_fusion.cu",
    "data/csrc/trtllm_moe_allreduce_fusion.cu",
)
CSRC, INCLUDE, SPDLOG = "data/csrc/", "data/include/", "data/spdlog/"
# Folders of other projects that the compiler is given, each with files that every version of it has. Of cccl,
# and of cutlass, no more is looked at: they hold thousands of files.
VENDORED = {
    "data/cutlass": (
        "data/cutlass/include/cutlass/cutlass.h",
        "data/cutlass/include/cute/tensor.hpp",
        "data/cutlass/tools/util/include/cutlass/util/packed_stride.hpp",
    ),
    "data/spdlog": ("data/spdlog/include/spdlog/spdlog.h",),
    "data/cccl": (
        "data/cccl/cub/cub/cub.cuh",
        "data/cccl/libcudacxx/include/cuda/std/atomic",
        "data/cccl/thrust/thrust/version.h",
    ),
}
MOST_INCLUDED = 200
SOURCE_LIMIT = 2 << 20


def modules(entry: str, data: bytes) -> "Iterator[str]":
    """Yield the modules of the package, as paths without their ending, that a file imports whenever it runs."""
    for line in data.split(b"\n"):
        if not line.startswith(b"from ."):
            continue
        said = line[5:].split(None, 1)[0].decode("utf-8", "replace")
        name = said.lstrip(".")
        parents = entry.split("/")[: -(len(said) - len(name))]
        if name and len(parents) == entry.count("/") + 1 - (len(said) - len(name)):
            yield "/".join([*parents, *name.split(".")])


def is_module(package: str, name: str) -> bool:
    """Return whether a module of the package is there, as Python would find it."""
    place = package + "/" + name
    if os.path.isfile(place + ".py") or os.path.isfile(place + "/__init__.py"):
        return True
    folder, _, last = place.rpartition("/")
    try:
        return any(one.startswith(last + ".") and one.endswith(".so") for one in os.listdir(folder))
    except (OSError, ValueError):
        return False  # no such folder, or no name of one


def lost_modules(package: str, texts: "Dict[str, bytes]") -> "Dict[str, str]":
    """Return the files of modules that are gone, with the file that imports each. ``texts`` are those entries."""
    lost: "Dict[str, str]" = {}
    for entry, data in texts.items():
        for name in modules(entry, data):
            if not is_module(package, name):
                inside = os.path.isdir(package + "/" + name)
                lost.setdefault(name + ("/__init__.py" if inside else ".py"), entry)
    return lost


def included(data: bytes) -> "Iterator[Tuple[bool, str]]":
    """Yield what a source includes: whether in quotes, and the name."""
    for line in data.split(b"\n"):
        if b"include" not in line:
            continue
        line = line.strip()
        said = line[1:].lstrip()
        if line[:1] != b"#" or not said.startswith(b"include"):
            continue
        said = said[7:].lstrip()
        name = said[1:].replace(b">", b'"').partition(b'"')[0]
        if said[:1] in (b'"', b"<"):
            yield said[:1] == b'"', name.decode("utf-8", "replace")


def places(by: str, quoted: bool, name: str) -> "List[str]":
    """Return where in the package an included file can lie, the likeliest first; none where it need not."""
    if quoted and name.startswith("../"):
        beside = os.path.normpath(os.path.dirname(by) + "/" + name)
        return [beside] if beside.startswith("data/") else []
    if ".." in name:
        return []
    if name.startswith("flashinfer/"):
        return [INCLUDE + name, CSRC + name]
    if name.startswith("spdlog/"):
        return [SPDLOG + "include/" + name]
    if quoted and "/" not in name:
        return [os.path.dirname(by) + "/" + name, CSRC + name, INCLUDE + name]
    return []


def sources(package: str, starts: "List[str]", deep: bool) -> "Tuple[Dict[str, str], Dict[str, str]]":
    """Return what ``starts`` include of the package and is there, and what is gone; each with one that names it.

    spdlog's own files are opened with ``deep`` alone.
    """
    there: "Dict[str, str]" = {}
    lost: "Dict[str, str]" = {}
    waiting = [(name, "") for name in starts]
    while waiting and len(there) < MOST_INCLUDED:
        name, by = waiting.pop()
        if name in there:
            continue
        there[name] = by
        if name.startswith(SPDLOG) and not deep:
            continue
        try:
            data = read_bytes(package + "/" + name, SOURCE_LIMIT)
        except OSError:
            continue  # what may not be read is told of where the file itself is described
        for quoted, said in included(data):
            can = places(name, quoted, said)
            found = [one for one in can if os.path.isfile(package + "/" + one)]
            if found:
                waiting.append((found[0], name))
            elif can and not os.path.lexists(package + "/" + can[0]):
                lost.setdefault(can[0], name)
    return there, lost


def lost_folders(package: str, listed: "Optional[Container[str]]", env: bytes) -> "Dict[str, str]":
    """Return the vendored folders that are gone, with the file that stood for each.

    Those are expected that RECORD lists; without a RECORD (None), those that the text of env.py names.
    """
    lost: "Dict[str, str]" = {}
    for folder, files in VENDORED.items():
        named = b'"' + folder[5:].encode() + b'"' in env
        for file in files:
            if not (named if listed is None else file in listed) or os.path.lexists(package + "/" + file):
                continue
            try:
                empty = not os.listdir(package + "/" + folder)
            except FileNotFoundError:
                empty = True
            except OSError:
                continue  # closed, or no folder: nothing is known of what lies below
            if empty or listed is not None:
                lost[folder if empty else file] = file
    return lost
