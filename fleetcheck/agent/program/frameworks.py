"""What serves through FlashInfer, and what comes beside it: gates of sglang and vLLM, companions, shadows."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from fleetcheck.agent.program.cuts import blocks, defined
from fleetcheck.agent.program.distributions import Record
from fleetcheck.agent.program.sources import below, describe_file
from fleetcheck.agent.program.values import TEXT_LIMIT, Root, problem, read_bytes

FRAMEWORK_FILES = {
    "sglang": (
        "srt/layers/communicator.py",
        "srt/layers/layer_boundary/residual/add_norm.py",
        "srt/layers/layer_boundary/fusions/allreduce.py",
        "srt/layers/flashinfer_comm_fusion.py",
        "srt/layers/layernorm.py",
        "srt/server_args.py",
        "srt/arg_groups/overrides.py",
        "srt/utils/common.py",
        "srt/utils.py",
        "srt/layers/utils.py",
        "srt/runtime_context.py",
        "srt/distributed/device_communicators/pcie_ipc_ar.py",
    ),
    "vllm": (
        "config/vllm.py",
        "config/compilation.py",
        "compilation/passes/fusion/allreduce_rms_fusion.py",
        "compilation/collective_fusion.py",
        "distributed/device_communicators/flashinfer_all_reduce.py",
        "distributed/device_communicators/flashinfer_pcie_ipc_all_reduce.py",
        "utils/flashinfer.py",
    ),
}
GATE_FUNCTIONS = frozenset(
    (
        "apply_flashinfer_allreduce_fusion", "flashinfer_ar_fusion_applies", "_resolve_backend",
        "_flashinfer_allreduce_fusion_auto_enable", "should_fuse_mlp_allreduce_with_next_layer",
        "_gather_hidden_states_and_residual", "enable_allreduce_rms_fusion", "has_flashinfer",
    )
)  # fmt: skip
FUSION_WORDS = ("allreduce_fusion", "ar_fusion", "allreduce_rms")
ARCH_WORDS = ("is_sm", "is_blackwell", "is_device_capability")
GATE_STATEMENTS = ("is_sm", "_is_sm", "is_blackwell", "_is_blackwell", "FI_ALLREDUCE_FUSION_MAX_SIZE_MB")
FRAMEWORK_LIMIT = 4 << 20
MOST_MODULES = 2000
MOST_CUBINS = 100000


def is_gate(first: str, text: str) -> bool:
    """Whether a block decides on the fusion: by its name, or because it tells of fusion and of a GPU's arch."""
    name = defined(first)
    if name is None:
        return first.startswith(GATE_STATEMENTS)
    if name in GATE_FUNCTIONS or name.startswith(GATE_STATEMENTS):
        return True
    return any(word in text for word in FUSION_WORDS) and any(word in text for word in ARCH_WORDS)


def cut_gates(text: str) -> str:
    """Return the blocks that decide on the fusion, whole; nothing where no word of it is there."""
    if not any(word in text for word in (*FUSION_WORDS, *ARCH_WORDS, "FI_ALLREDUCE_FUSION", "has_flashinfer")):
        return ""
    return "".join("".join(lines) for first, lines in blocks(text) if is_gate(first, "".join(lines)))


def framework_files(root: Root, name: str, place: str, record: Record) -> "Tuple[List[Dict[str, Any]], int]":
    """Return the files of a framework that hold its gates, and how many were compared with RECORD."""
    files, checked = [], 0
    for file in FRAMEWORK_FILES[name]:
        value = describe_file(root, place, file, record)
        if value["error"] in ("ENOENT", "ENOTDIR") and value["record"] != "missing":
            continue  # each release keeps them elsewhere
        if value["sha256"] is not None:
            # Read again rather than kept by all: these few files alone are cut this way.
            text = cut_gates(read_bytes(place + "/" + file, FRAMEWORK_LIMIT).decode("utf-8", "replace"))
            value["text"], value["cut"] = text[:TEXT_LIMIT], "functions"
        checked += value["record"] in ("match", "mismatch", "missing")
        files.append(value)
    return files, checked


def archs_of(names: "Iterator[str]") -> Dict[str, int]:
    """Count the names by the GPU arch that they tell (``sm100a``, ``Sm120``), as digits: ``{"100": 12}``."""
    found: Dict[str, int] = {}
    for name in names:
        lower = name.rpartition("/")[2].lower()
        digits = ""
        start = lower.find("sm")
        while start >= 0 and not digits:
            rest = lower[start + 2 :].lstrip("_")
            digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
            start = lower.find("sm", start + 2)
        if 2 <= len(digits) <= 3:
            found[digits] = found.get(digits, 0) + 1
    return found


def cubins(place: str) -> Dict[str, Any]:
    """Count the cubins of ``flashinfer_cubin`` by arch. ``archs`` is None where the folder cannot be read."""
    try:
        names = [name for name, _ in below(place + "/cubins", MOST_CUBINS) if name.endswith((".cubin", ".so"))]
    except Exception as error:
        return {"archs": None, "count": None, "error": problem(error)}
    return {"archs": archs_of(iter(names)), "count": len(names), "error": None}


def prebuilt(root: Root, folder: str) -> "Dict[str, Any] | None":
    """Return the prebuilt modules below a folder (``<module>/<module>.so``), None where it is not there."""
    try:
        names = sorted(os.listdir(folder))[:MOST_MODULES]
    except FileNotFoundError:
        return None
    except Exception as error:
        return {"path": root.show(folder), "modules": [], "error": problem(error)}
    built = [name for name in names if os.path.isfile(folder + "/" + name + "/" + name + ".so")]
    return {"path": root.show(folder), "modules": built, "error": None}


def shadows(
    root: Root, environ: Mapping[str, str], user: "str | None", name: str, place: str
) -> "List[Dict[str, Any]]":
    """Return what would be imported before the environment's own package by a process that is not isolated.

    Such a process has its working folder, the entries of PYTHONPATH and the user's site-packages (``user``, where
    they count) in front; a login starts in its home. Only a package or a module shadows: a folder without
    ``__init__.py`` gives way to a package behind it.
    """
    places = [("PYTHONPATH", entry) for entry in environ.get("PYTHONPATH", "").split(":") if entry.startswith("/")]
    home = environ.get("HOME", "")
    if home.startswith("/"):
        places.append(("cwd", home))
    if user is not None:
        places.append(("user-site", user))
    found: "List[Dict[str, Any]]" = []
    for by, folder in places[:64]:
        entry = folder if root.prefix and folder.startswith(root.prefix + "/") else root.at(folder)
        for candidate in (entry.rstrip("/") + "/" + name, entry.rstrip("/") + "/" + name + ".py"):
            init = candidate if candidate.endswith(".py") else candidate + "/__init__.py"
            try:
                if os.path.isfile(init) and not os.path.samefile(candidate, place):
                    found.append({"by": by, "path": root.show(candidate)})
            except OSError:
                continue  # it went away meanwhile
    return found
