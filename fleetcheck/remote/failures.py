"""How a look can fail: one exception that carries outcome, stage, detail and a sentence, and the words of each."""

from __future__ import annotations

import errno
import socket
from typing import NamedTuple

import paramiko

from fleetcheck.agent.evidence import Outcome, Stage
from fleetcheck.errors import FleetcheckError


class Place(NamedTuple):
    """An address and a port, as messages and commands name them."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class LookError(FleetcheckError):
    """The look ended here. ``message`` is one sentence for a person; the other fields are for programs."""

    def __init__(self, outcome: Outcome, stage: Stage, detail: str | None, message: str) -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        self.stage: Stage = stage
        self.detail = detail
        self.message = message

    def __reduce__(self) -> tuple[type[LookError], tuple[Outcome, Stage, str | None, str]]:
        return (type(self), (self.outcome, self.stage, self.detail, self.message))


def plain(text: str | bytes, limit: int = 160) -> str:
    """Return what a peer said as one bounded line without control characters."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


UNKNOWN_HOST = "correct it, or set address: in the inventory"
"""What to do about the name of a host that is not known; a gateway's is mended elsewhere."""
CONNECT_DETAILS = {
    errno.ECONNREFUSED: ("refused", "nothing listens there, or a firewall refuses it"),
    errno.EHOSTUNREACH: ("no-route", "there is no way to the host, or it is down"),
    errno.ENETUNREACH: ("no-route", "this machine has no route to that network"),
    errno.EADDRNOTAVAIL: ("no-route", "this machine has no address of that family"),
    errno.EACCES: ("no-route", "a local firewall rule forbids it"),
    errno.EPERM: ("no-route", "a local firewall rule forbids it"),
    errno.ECONNRESET: ("reset", "the connection was reset"),
    errno.ECONNABORTED: ("reset", "the connection was aborted"),
}


def connect_failed(place: Place, error: OSError, via: str = "") -> LookError:
    """Say why no TCP connection to ``place`` came about."""
    if error.errno == errno.ETIMEDOUT or isinstance(error, TimeoutError):
        return LookError("timeout", "connect", None, f"no answer from {place}{via} (the system gave up)")
    slug, why = CONNECT_DETAILS.get(error.errno or 0, ("failed", "the system refused to connect"))
    return LookError("unreachable", "connect", slug, f"cannot connect to {place}{via}: {why} ({_reason(error)})")


def resolve_failed(host: str, error: OSError) -> LookError:
    """Say why a name has no address."""
    unknown = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
    if error.errno in unknown or isinstance(error, UnicodeError):
        message = f"the name {plain(host)} is not known; {UNKNOWN_HOST}"
        return LookError("unreachable", "resolve", "unknown-name", message)
    message = f"the name {plain(host)} could not be looked up ({_reason(error)}); check this machine's resolver"
    return LookError("unreachable", "resolve", "dns-failed", message)


def dns_timeout(host: str, seconds: float) -> LookError:
    """Say that the name look-up did not end within its limit."""
    message = (
        f"the look-up of the name {plain(host)} did not end within {seconds:g} s; check this machine's resolver"
    )
    return LookError("unreachable", "resolve", "dns-timeout", message)


def handshake_failed(
    place: Place, stage: Stage, error: Exception, *, said: bytes, spoke_ssh: bool, wire_error: OSError | None
) -> LookError:
    """Say why the peer at ``place`` did not get through its banner or the key exchange.

    ``said`` is what it sent before its SSH banner, ``wire_error`` what the socket reported, if anything did.
    """
    if not spoke_ssh:
        # OpenSSH says this where MaxStartups drops a connection; it is the daemon, and worth another try.
        crowded = said.startswith((b"Exceeded MaxStartups", b"Not allowed at this time"))
        if said and not crowded:
            message = f"{place} does not speak SSH; it said: {plain(said, 80)}"
            return LookError("unreachable", stage, "not-ssh", message)
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        message = f"{place} and this machine share no algorithm: {plain(str(error))}"
        return LookError("unreachable", stage, "incompatible", message)
    where = "before its SSH banner" if stage == "banner" else "during the key exchange"
    if wire_error is not None and wire_error.errno in (errno.ECONNRESET, errno.ECONNABORTED):
        return LookError("unreachable", stage, "reset", f"{place} reset the connection {where}")
    if isinstance(error, EOFError) or wire_error is not None or not spoke_ssh:
        hint = "; its MaxStartups may be too low" if stage == "banner" else ""
        return LookError("unreachable", stage, "closed", f"{place} closed the connection {where}{hint}")
    return LookError(
        "unreachable", stage, "protocol", f"{place} broke the SSH protocol {where}: {plain(str(error))}"
    )


def timed_out(place: Place | str, stage: Stage, seconds: float) -> LookError:
    """Say that a stage's own limit passed."""
    what = {
        "resolve": "was not found",
        "connect": "did not answer",
        "banner": "accepted the connection and did not finish its SSH banner",
        "kex": "did not finish the key exchange",
        "auth": "did not finish the authentication",
        "channel": "logged us in and did not start the command",
    }.get(stage, "did not finish")
    return LookError("timeout", stage, None, f"{place} {what} within {seconds:g} s")


def too_large(max_bytes: int, what: str = "the answer") -> LookError:
    """Say that a host answered more than is taken of one."""
    message = f"the answer was cut off: {what} is larger than {max_bytes} bytes"
    return LookError("probe-error", "probe", "too-large", message)


LOGIN_SHELL = ("not available", "nologin", "account has expired", "no shell", "invalid shell", "permission denied")


def ended_early(status: int | None, noise: str, stderr: str, sudo: bool, arrived: bool) -> LookError:
    """Say why the agent's answer is not whole.

    ``status`` is the command's exit status, None where the connection ended without one; ``arrived`` tells
    whether any part of the answer did.
    """
    heard = plain(stderr) or plain(noise)
    said = f"; it said: {heard}" if heard else ""
    if status is None:
        message = f"the connection was lost, or the command killed, before the answer was whole{said}"
        return LookError("probe-error", "probe", "lost", message)
    if arrived:
        message = f"the answer was cut: the command ended with status {status} before its end{said}"
        return LookError("probe-error", "probe", "cut", message)
    if sudo and "sudo" in f"{stderr} {noise}":
        message = f"sudo -n did not work{said}; allow it without a password in sudoers, or remove sudo: true"
        return LookError("probe-error", "probe", "sudo", message)
    if any(word in f"{stderr} {noise}".lower() for word in LOGIN_SHELL):
        message = f"the account's login shell runs no command (status {status}){said}; give it one, e.g. /bin/sh"
        return LookError("probe-error", "probe", "login-shell", message)
    message = f"the command ended with status {status} and no answer{said}"
    return LookError("probe-error", "probe", f"exit-{status}", message)


def _reason(error: OSError) -> str:
    return plain(error.strerror or str(error))
