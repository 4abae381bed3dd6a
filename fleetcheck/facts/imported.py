"""What the real import says (``--deep``), beside what was resolved without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import normpath
from typing import Any

from fleetcheck.facts import shape
from fleetcheck.facts.records import ImportState, Venv

NO_GPU = re.compile(
    r"no CUDA[ -](GPU|device|capable)|no NVIDIA (driver|GPU)|no kernel image|invalid device (id|ordinal)|"
    r"CUDA_ERROR_NO_DEVICE|CUDA_ERROR_INVALID_DEVICE|cudaErrorNoDevice",
    re.IGNORECASE,
)
"""What torch and the driver say where CUDA_VISIBLE_DEVICES is empty, as for the real import (flashinfer#4143)."""
REFUSED = re.compile(r"outside of the scratch folder|no connection is made, no port opened")
"""The guard's own words, in recordings of agents that do not say that it was the guard."""
KILLED = (-9, 137)
"""Exit statuses of what was killed from outside: by the kernel for its memory, mostly."""


def beside(venv: Venv, part: object) -> Venv:
    """Return the environment with the answer of the real import, where one was asked for.

    The basis becomes ``imported`` where both name one folder; where they do not, both stay visible.
    """
    whole = shape.mapping(part)
    if not whole or venv.flashinfer is None:
        return venv
    said = shape.mapping(whole.get("imported"))
    csrc = shape.name(said.get("csrc_dir"))
    why = shape.line(said.get("error")) or shape.line(whole.get("error")) or shape.line(whole.get("stderr"))
    found = venv.flashinfer
    paths = {normpath(path) for path in (found.csrc_dir, found.csrc_real) if path}
    agrees = csrc is not None and bool({normpath(csrc), shape.name(said.get("csrc_real"))} & paths)
    update = {
        "imported_csrc_dir": csrc,
        "imported_version": shape.name(said.get("version"), 100),
        "imported_error": None if csrc else why or "the import gave no answer",
        "imported_state": "answered" if csrc else _ended(whole, said, why or ""),
        "basis": "imported" if agrees else found.basis,
    }
    return venv.model_copy(update={"flashinfer": found.model_copy(update=update)})


def _ended(whole: Mapping[str, Any], said: Mapping[str, Any], why: str) -> ImportState:
    """Return how an import without an answer ended: what its own conditions did to it is no fault of the host."""
    if said.get("error"):
        if shape.flag(said.get("refused")) or REFUSED.search(why):
            return "refused"
        return "no-gpu" if NO_GPU.search(why) else "failed"
    if whole.get("state") == "not-made":
        return "not-made"
    if whole.get("state") == "hung" or whole.get("rc") in KILLED:
        return "unfinished"
    return "failed"
