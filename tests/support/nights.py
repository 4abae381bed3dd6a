"""Runs for the history: hosts by verdict, stored one after the other, with times that are given."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from support import runs

from fleetcheck.facts.records import System
from fleetcheck.history.store import History
from fleetcheck.judge import stamp
from fleetcheck.rules.finding import Finding
from fleetcheck.run import HostResult, Run, RunInfo, summarise

FIRST = datetime(2030, 1, 1, tzinfo=UTC)


def machine(name: str, verdict: Any = "ok", *, identity: str | None = None, **more: Any) -> HostResult:
    """Return a host with a machine-id of its own."""
    system = System(hostname=name, kernel="6.1.0", machine_id=identity or f"id-{name}")
    return runs.host(name, verdict, **{"system": system if verdict in ("ok", "findings") else None, **more})


def run(
    number: int, hosts: Sequence[HostResult], findings: Sequence[Finding] = (), *, complete: bool = True,
    at: datetime | None = None, inventory: str = "fleet.yaml",
) -> Run:  # fmt: skip
    """Return the run ``number``, an hour after the one before where no time is given."""
    began = at or FIRST + timedelta(hours=number)
    info = RunInfo(
        id=f"run-{number}", started=stamp(began), finished=stamp(began + timedelta(minutes=1)), version="0.1.0",
        inventory=inventory, complete=complete,
    )  # fmt: skip
    return Run(run=info, summary=summarise(tuple(hosts)), hosts=tuple(hosts), findings=tuple(findings))


def store(history: History, made: Run, source: str = "fleet.yaml") -> int:
    """Store a run and return its number."""
    number = history.begin(made.run, source=source)
    history.store(number, made)
    return number
