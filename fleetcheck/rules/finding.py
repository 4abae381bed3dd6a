"""A finding: what one rule says of one host, one environment or one GPU."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from fleetcheck.facts.records import Basis

Severity = Literal["info", "warning", "error", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


def rank(severity: Severity) -> int:
    """Return how grave a severity is: 0 for ``info`` to 3 for ``critical``."""
    return SEVERITIES.index(severity)


class Waived(BaseModel):
    """Why a finding is accepted, and the last day on which it is (``YYYY-MM-DD``)."""

    model_config = ConfigDict(frozen=True)

    reason: str
    until: str


class Finding(BaseModel):
    """One finding. ``host`` is None for a finding of the whole fleet; ``gpu`` is the uuid, else the bus id.

    ``cause`` is the rule whose finding on the same host explains this one.
    """

    model_config = ConfigDict(frozen=True)

    rule: str
    severity: Severity
    host: str | None
    venv: str | None = None
    gpu: str | None = None
    message: str
    expected: Any = None
    seen: Any = None
    basis: Basis | None = None
    remedy: tuple[str, ...] = ()
    """Steps in order, the reversible first; a step that is a command is quoted for the shell."""
    reference: str | None = None
    cause: str | None = None
    waived: Waived | None = None
