"""How to reach hosts: limits, workers, trust. Frozen and plain, so that it pickles to a worker process."""

from __future__ import annotations

from dataclasses import dataclass, fields

NO_CONFIG = "none"
"""The value of ``ssh_config`` that reads no ssh config at all, as ``ssh -F none`` does."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long each stage of one look may take, in seconds.

    ``connect`` bounds the name look-up, and then all addresses together; ``banner`` the peer's first line and
    the key exchange; ``auth`` all authentication methods together; ``channel`` the opening of the channel, and
    then the reply to the command; ``smi`` all calls of nvidia-smi on the host; ``host`` the whole look, each
    retry anew; ``run`` the whole run (None: no limit).
    """

    connect: float = 10.0
    banner: float = 15.0
    auth: float = 20.0
    channel: float = 15.0
    smi: float = 60.0
    host: float = 120.0
    run: float | None = None

    def __post_init__(self) -> None:
        """Refuse a limit that is not above zero."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ValueError(f"the limit {field.name} must be above 0 seconds, not {value}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every host of a run.

    ``ssh_config`` is a file, None for the user's own, ``"none"`` for none. ``known_hosts`` are files that take
    the place of what the ssh config names. ``accept_new`` records the key of a host that was never seen; a
    changed key is never accepted. ``gateway_workers`` is how many hosts behind one gateway are looked at side by
    side; ``retries`` how often a connection that broke before authentication is tried again (0: an unreachable
    host gets no second try either); ``max_bytes`` bounds one host's answer.
    """

    limits: Limits = Limits()
    workers: int = 64
    accept_new: bool = False
    ssh_config: str | None = None
    known_hosts: tuple[str, ...] | None = None
    deep: bool = False
    gateway_workers: int = 8
    retries: int = 2
    max_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        """Refuse counts that could never finish."""
        for name, least in (("workers", 1), ("gateway_workers", 1), ("retries", 0), ("max_bytes", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
