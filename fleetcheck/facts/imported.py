"""What the real import says (``--deep``), beside what was resolved without one."""

from __future__ import annotations

from posixpath import normpath

from fleetcheck.facts import shape
from fleetcheck.facts.records import Venv


def beside(venv: Venv, part: object) -> Venv:
    """Return the environment with the answer of the real import, where one was made.

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
        "basis": "imported" if agrees else found.basis,
    }
    return venv.model_copy(update={"flashinfer": found.model_copy(update=update)})
