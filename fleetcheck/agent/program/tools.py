"""The compilers that FlashInfer's JIT would start from one environment: looked up as it does, none is started."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional

from fleetcheck.agent.program.values import Root, problem, read_bytes, short

TOOL_HEADERS = ("include/cuda.h", "targets/x86_64-linux/include/cuda.h", "targets/sbsa-linux/include/cuda.h")
CUDA_DEFAULT = "/usr/local/cuda"


def find_tool(root: Root, name: str, path: str) -> "Optional[str]":
    """Return where PATH has an executable, None where it has none. Entries that are not absolute are passed by."""
    if "/" in name:
        place = name if root.prefix and root.under(name) else root.at(name)
        return place if os.path.isfile(place) and os.access(place, os.X_OK) else None
    for folder in path.split(":")[:64]:
        if folder.startswith("/"):
            place = folder if root.prefix and root.under(folder) else root.at(folder)
            candidate = place.rstrip("/") + "/" + name
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return candidate
    return None


def cuda_version(home: str) -> "Optional[str]":
    """Return ``12.8`` out of the toolkit's own header: ``#define CUDA_VERSION 12080``."""
    for name in TOOL_HEADERS:
        try:
            data = read_bytes(home + "/" + name, 1 << 17)
        except OSError:
            continue
        for line in data.splitlines():
            words = line.split()
            if words[:2] == [b"#define", b"CUDA_VERSION"] and len(words) > 2 and words[2].isdigit():
                number = int(words[2])
                return "%d.%d" % (number // 1000, number % 1000 // 10)
    return None


def gather_tools(root: Root, env: "Mapping[str, str]", include: "Optional[str]") -> Dict[str, Any]:
    """Return what each step of the search finds; ``include`` is the interpreter's folder of headers.

    The controller decides which step counts, since the search differs from release to release.
    """
    path = env.get("PATH", "")
    nvcc = find_tool(root, "nvcc", path)
    homes = {}
    which = os.path.dirname(os.path.dirname(nvcc)) if nvcc else None
    named = [env.get("CUDA_HOME"), env.get("CUDA_PATH"), CUDA_DEFAULT]
    named_nvcc = env.get("FLASHINFER_NVCC") or env.get("PYTORCH_NVCC")
    if named_nvcc:
        named.append(os.path.dirname(os.path.dirname(named_nvcc)))
    for home in [*named, *([root.show(which)] if which else [])]:
        if home and home not in homes and home.startswith("/"):
            place = home if root.prefix and root.under(home) else root.at(home)
            homes[root.show(place)] = describe_home(root, place)
    compiler = env.get("CXX") or "c++"
    found = find_tool(root, compiler.split()[0] if compiler.split() else "c++", path)
    ninja = find_tool(root, "ninja", path)
    header = None if include is None else include + "/Python.h"
    return {
        "which_nvcc": None if nvcc is None else root.show(nvcc),
        "homes": homes,
        "named_nvcc": None if not named_nvcc else {
            "path": named_nvcc[:1024], "there": find_tool(root, named_nvcc, path) is not None,
        },
        "cxx": {"name": compiler[:200], "path": None if found is None else root.show(found)},
        "ninja": None if ninja is None else root.show(ninja),
        "python_h": None if header is None else {"path": root.show(header), "there": os.path.isfile(header)},
    }  # fmt: skip


def describe_home(root: Root, place: str) -> Dict[str, Any]:
    """Describe one folder that may be a toolkit."""
    value: Dict[str, Any] = {"real": root.show(os.path.realpath(place)), "exists": False, "error": None}
    try:
        value["exists"] = bool(os.stat(place))
    except OSError as error:
        value["error"] = problem(error)
    nvcc = place + "/bin/nvcc"
    value["nvcc"] = os.path.isfile(nvcc) and os.access(nvcc, os.X_OK)
    value["version"] = cuda_version(place)
    value["version_json"] = short(place + "/version.json", 16384)
    return value
