"""Where a reader goes on from a report: commands that work for the inventory of its run.

In: the inventory's name as the run has it. Out: commands for where fleetcheck runs. Those that look at a host
again need an inventory; the demo has none to name, and its hosts are gone when it ends: what remains is a run that
is kept in a file.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

from fleetcheck.report.steps import doctor

DEMO = "fleetcheck demo"
"""What a run of the demo names as its inventory."""
KEPT = "demo.json"
KEEP = f"{DEMO} --output json:{KEPT}"
"""Runs the demo again and keeps its run."""


class Further(NamedTuple):
    """What leads to the commands, and the commands, in their order."""

    said: str
    commands: tuple[str, ...]


def at_host(host: str, inventory: str, *, one_of_many: bool = False) -> Further:
    """Return how to learn more of a host that was not checked; ``host`` is a clean name."""
    if inventory == DEMO:
        return Further(
            "The demo's hosts are gone once it has ended. Run it again, keep that run, and read of one host:",
            (KEEP, shlex.join(["fleetcheck", "show", host, KEPT])),
        )
    return Further(f"Step by step, here{', for one of them' * one_of_many}:", (doctor(host, inventory),))


def of_one_host(inventory: str) -> tuple[str, ...]:
    """Return the commands that show all of one host, which stands in them as ``HOST``."""
    if inventory == DEMO:
        return KEEP, f"fleetcheck show HOST {KEPT}"
    return (doctor("HOST", inventory).replace(" doctor ", " show ", 1),)
