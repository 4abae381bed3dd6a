"""A finding: what one rule says of one host, one environment or one GPU."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from fleetcheck.facts.records import Basis

Severity = Literal["info", "warning", "error", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


def rank(severity: Severity) -> int:
    """Return how grave a severity is: 0 for ``info`` to 3 for ``critical``."""
    return SEVERITIES.index(severity)


_COST: tuple[tuple[str, ...], ...] = (
    # Wrong results, or a server that dies of them.
    ("fusion-*",),
    # The host or a GPU is down, does not answer, or works in part.
    ("smi-*", "driver-*", "gpu-*"),
    ("ecc-uncorrected", "memory-*", "inforom-*", "p2p-*", "pcie-*"),
    # The environment cannot be used.
    ("venv-*", "activate-*", "flashinfer-*", "import-*", "*-missing", "csrc-incomplete", "csrc-unreadable"),
    ("nvcc-*", "torch-*", "arch-*", "cuda-*", "cubins-*", "companion-*"),
    # Wrong, moved or edited sources.
    ("csrc-unexpected", "csrc-running-elsewhere", "csrc-shadowed", "env-*", "package-*", "framework-*"),
    ("csrc-stale-cache", "cache-*"),
    # Sources that FlashInfer does not read.
    ("csrc-*",),
)
"""Names of rules by what they tell of, the costliest first; what is in none comes last."""
_OTHERWISE = ("driver-version", "driver-minimum", "gpu-name", "gpu-mixed")
"""Rules of those names about what works, and is not what was expected."""


@lru_cache(maxsize=1024)
def weight(slug: str) -> int:
    """Return where a rule stands among those of its severity: 0 for what costs most. Any name has a place."""
    if slug in _OTHERWISE:
        return len(_COST)
    for place, patterns in enumerate(_COST):
        if any(fnmatchcase(slug, pattern) for pattern in patterns):
            return place
    return len(_COST)


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
