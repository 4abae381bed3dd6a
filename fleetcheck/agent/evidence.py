"""Evidence: what came back from one host, raw, and how the look ended. Nothing here judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Outcome = Literal[
    "checked", "probe-error", "auth-failed", "host-key-unknown", "host-key-changed",
    "unreachable", "timeout", "gateway-failed", "skipped",
]  # fmt: skip
Stage = Literal["queue", "resolve", "connect", "banner", "kex", "auth", "channel", "probe"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True, slots=True)
class Request:
    """What the agent is asked on one host. Limits are seconds; ``max_bytes`` bounds the whole answer.

    ``venvs`` are paths or globs as the inventory gives them, ``discover`` holds ``running`` and ``usual``.
    ``scan`` are files, folders and globs to search for written down paths of sources.
    ``files`` are those to hash: absolute, or relative to FlashInfer's package in each environment.
    """

    venvs: tuple[str, ...] = ()
    discover: tuple[str, ...] = ()
    sysroot: str = ""
    scan: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    deep: bool = False
    host_limit: float = 120.0
    smi_limit: float = 60.0
    venv_limit: float = 30.0
    activate_limit: float = 10.0
    max_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class Evidence:
    """How the look at one host ended, and every part that arrived before it did.

    ``stage`` says where a failed look stood, ``detail`` is a slug that tells more (``closed``, ``not-ssh``,
    ``revoked``, ``lost``), ``message`` one sentence for a person, with the command that mends it where there
    is one. ``parts`` maps a part's name to its JSON value (``docs/evidence.md``). ``started`` is seconds since
    the epoch by the controller's clock; ``seconds`` the wall time of all ``attempts``.
    """

    host: str
    outcome: Outcome
    stage: Stage | None = None
    detail: str | None = None
    message: str | None = None
    address: str | None = None
    attempts: int = 1
    started: float = 0.0
    seconds: float = 0.0
    parts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
