"""The shell's part of what is sent: it finds an interpreter and feeds it the program, or gathers alone.

The script defines functions, calls one on its last line and exits, so the shell has read all of it before
anything runs. The program travels in a quoted variable and reaches the interpreter through the builtin ``printf``:
no here-document, which shells write to a file. Standard input stays open as fd 3, and its end is the sign to die.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fleetcheck.agent.evidence import Request

SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3", "PATH")
"""Tried in order; ``PATH`` stands for ``python3`` of the login's PATH, then the newer ones of /usr/bin."""


def quoted(text: str) -> str:
    """Return a text as one word of a shell, whatever it holds."""
    return "'" + text.replace("'", "'\\''") + "'"


def prologue(agent: str, request: Request, marker: str, version: str, pythons: tuple[str, ...]) -> str:
    """Return the script for ``/bin/sh`` that runs ``agent``."""
    values = {
        "agent": agent,
        "marker": marker,
        "version": version,
        "sysroot": request.sysroot.rstrip("/"),
        "pythons": "\n".join(pythons),
        "venvs": "\n".join(item for item in request.venvs if "\n" not in item),
        "smi_limit": str(max(1, int(request.smi_limit))),
    }
    settings = "".join(f"fleetcheck_{name}={quoted(value)}\n" for name, value in values.items())
    return f"{shell_text()}\n{settings}fleetcheck_main; exit $?\n"


@cache
def shell_text() -> str:
    """Return the functions of the script, without comments."""
    shell = (files("fleetcheck.agent") / "prologue.sh").read_text(encoding="utf-8")
    return "\n".join(line for line in shell.splitlines() if not line.lstrip().startswith("#"))
