"""Environments and the processes that serve from them, brought together: what is in force, not what would be."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import normpath

from fleetcheck.facts.fusion import effective
from fleetcheck.facts.records import FusionEffective, Process, Venv


def of_venvs(
    venvs: Sequence[Venv], processes: Sequence[Process] | None, capabilities: Sequence[str]
) -> tuple[Venv, ...]:
    """Return the environments with ``fusion.effective`` by the flags of what serves from each."""
    return tuple(_of_venv(venv, processes, capabilities) for venv in venvs)


def serves_from(process: Process, venv: Venv) -> bool:
    """Return whether a process takes its packages from an environment, which may be known by two paths."""
    if process.venv is None:
        return False
    paths = {normpath(path) for path in (venv.path, venv.real, venv.prefix) if path}
    return normpath(process.venv) in paths


def of_server(
    venv: Venv, server: str, processes: Sequence[Process], capabilities: Sequence[str]
) -> FusionEffective:
    """Return what is in force for what one framework serves from an environment, whatever the others do there."""
    callers = [one for one in venv.fusion.callers if one.name == server] if venv.fusion is not None else []
    own = [one for one in processes if one.server == server and serves_from(one, venv)]
    if venv.fusion is None or not callers or not own:
        return "unknown"
    return effective(venv.fusion.verdict, callers, capabilities, own)


def _of_venv(venv: Venv, processes: Sequence[Process] | None, capabilities: Sequence[str]) -> Venv:
    own = [process for process in processes or () if serves_from(process, venv)]
    if venv.fusion is None or not own:
        return venv
    state = effective(venv.fusion.verdict, venv.fusion.callers, capabilities, own)
    return venv.model_copy(update={"fusion": venv.fusion.model_copy(update={"effective": state})})
