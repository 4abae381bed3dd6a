"""Who we are: the keys to offer, each loaded once a process, and the order in which they are offered.

An RSA key takes 0.1 s of CPU to load; a server counts each key that is offered in vain (MaxAuthTries).
"""

from __future__ import annotations

import copy
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from paramiko.agent import AgentKey, AgentSSH
from paramiko.auth_strategy import AuthResult, AuthSource, AuthStrategy

from fleetcheck.remote.failures import LookError, Place, plain

MAX_OFFERED = 5
"""sshd's MaxAuthTries is 6, and it counts the one with which the client asks what there is."""
LISTING_SECONDS = 2.0
NAMED = 500
"""Characters of the keys that a refusal names."""
HARDWARE_TYPES = ("sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com")


class UserRoute(Protocol):
    """What authentication needs of a route."""

    @property
    def user(self) -> str: ...
    @property
    def identity_files(self) -> tuple[str, ...]: ...
    @property
    def certificate_files(self) -> tuple[str, ...]: ...
    @property
    def identity_agent(self) -> str | None: ...
    @property
    def identities_only(self) -> bool: ...


class Problem(NamedTuple):
    """Why a key cannot be offered: a slug and a sentence."""

    detail: str
    message: str


class Named(NamedTuple):
    """A key, and how a user knows it: its file, or its fingerprint where an agent alone holds it."""

    key: paramiko.PKey
    name: str


class Offers(NamedTuple):
    """The keys to offer, in order, and what stands against the others."""

    keys: tuple[Named, ...]
    problems: tuple[Problem, ...]


class _Agent(AgentSSH):
    """One connection to an ssh-agent for all threads: it answers one question at a time."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__()
        self._turn = threading.Lock()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # To list keys takes no time; to sign may wait for the user, who confirms it.
            connection.settimeout(min(seconds, LISTING_SECONDS))
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]  # how Paramiko's own Agent begins
            connection.settimeout(seconds)
        except BaseException:
            connection.close()
            raise

    def _send_message(self, msg: Any) -> Any:
        with self._turn:
            return super()._send_message(msg)  # type: ignore[misc]  # the one place where questions are put

    def close(self) -> None:
        """Close the connection."""
        self._close()  # type: ignore[attr-defined]


class KeyRing:
    """The user's keys, each read once a process. ``seconds`` bounds what an agent may take."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, threading.Lock()
        self._files: dict[str, paramiko.PKey | Problem] = {}
        self._agents: dict[str, _Agent | Problem] = {}
        self._offers: dict[tuple[Any, ...], Offers] = {}
        self._welcome: dict[str, bytes] = {}

    def offers(self, route: UserRoute) -> Offers:
        """Return what to offer for ``route``: its own identities first, then what else the agent holds."""
        key = (route.identity_files, route.certificate_files, route.identity_agent, route.identities_only)
        with self._lock:
            if key not in self._offers:
                self._offers[key] = self._collect(route)
            found = self._offers[key]
            welcome = self._welcome.get(route.user)
        # A key that a host of this fleet took is likely to be right for the next one, too.
        ordered = sorted(found.keys, key=lambda offered: offered.key.asbytes() != welcome)
        return Offers(tuple(ordered[:MAX_OFFERED]), found.problems)

    def took(self, route: UserRoute, key: paramiko.PKey) -> None:
        """Remember that a host took ``key`` of this user."""
        with self._lock:
            self._welcome[route.user] = key.asbytes()

    def close(self) -> None:
        """Close the connections to agents; the next look opens them again."""
        with self._lock:
            for agent in self._agents.values():
                if isinstance(agent, _Agent):
                    agent.close()
            self._agents.clear()
            self._offers.clear()

    def _collect(self, route: UserRoute) -> Offers:
        held, problems = self._agent_keys(route.identity_agent)
        keys: list[Named] = []
        for path in route.identity_files:
            in_agent = held.get(_public_blob(path) or b"")
            loaded = self._file(path) if in_agent is None else in_agent
            if isinstance(loaded, Problem):
                problems.append(loaded)
            else:
                certified = _certified(loaded, path, route.certificate_files)
                keys += [Named(one, f"{path} with its certificate") for one in certified]
                keys.append(Named(loaded, path))
        if not route.identities_only:
            keys += [Named(key, f"{key.fingerprint} of the agent") for key in held.values()]
        unique = {(one.key.asbytes(), one.key.public_blob is None): one for one in reversed(keys)}
        return Offers(tuple(reversed(unique.values())), tuple(problems))

    def _file(self, path: str) -> paramiko.PKey | Problem:
        if path not in self._files:
            self._files[path] = load_key(path)
        return self._files[path]

    def _agent_keys(self, path: str | None) -> tuple[dict[bytes, AgentKey], list[Problem]]:
        if not path:
            return {}, []
        if path not in self._agents:
            try:
                self._agents[path] = _Agent(path, self._seconds)
            except (OSError, paramiko.SSHException) as error:
                self._agents[path] = Problem(
                    "no-agent", f"the ssh-agent at {path} did not answer ({plain(str(error))})"
                )
        agent = self._agents[path]
        if isinstance(agent, Problem):
            return {}, [agent]
        return {key.blob: key for key in agent.get_keys()}, []


def load_key(path: str) -> paramiko.PKey | Problem:
    """Return the private key in ``path``, or what is wrong with it."""
    try:
        key = paramiko.PKey.from_path(path)
    except OSError as error:
        return Problem("no-key", f"the key {path} cannot be read ({error.strerror})")
    except (paramiko.PasswordRequiredException, TypeError):
        message = f"the key {path} is encrypted and no agent holds it; run: ssh-add {path}"
        return Problem("encrypted-key", message)
    except (UnsupportedAlgorithm, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
        if _kind(path) in HARDWARE_TYPES:
            message = (
                f"the key {path} is held by a security key, which works through an agent only: ssh-add {path}"
            )
            return Problem("unsupported-key", message)
        return Problem("unsupported-key", f"the key {path} cannot be used ({plain(str(error), 80)})")
    key.public_blob = None  # a certificate beside the key is offered as one of its own
    return key


def _public_blob(path: str) -> bytes | None:
    """Return the public key that lies beside a private one, or None."""
    try:
        return paramiko.pkey.PublicBlob.from_string(Path(f"{path}.pub").read_text()).key_blob
    except (OSError, ValueError, IndexError, paramiko.SSHException):
        return None


def _kind(path: str) -> str:
    try:
        return Path(f"{path}.pub").read_text().split(" ", 1)[0]
    except (OSError, ValueError):
        return ""


def _certified(key: paramiko.PKey, path: str, certificates: Sequence[str]) -> Iterator[paramiko.PKey]:
    """Yield ``key`` with each certificate that was issued for it."""
    for file in dict.fromkeys((*certificates, f"{path}-cert.pub")):
        try:
            data = Path(file).read_bytes()
            certificate = serialization.load_ssh_public_identity(data)
            public = certificate.public_key()  # type: ignore[union-attr]  # a plain key has none: AttributeError
            line = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
            if paramiko.pkey.PublicBlob.from_string(line.decode()).key_blob == key.asbytes():
                certified = copy.copy(key)
                certified.load_certificate(data.decode())
                yield certified
        except (OSError, ValueError, AttributeError, UnsupportedAlgorithm, paramiko.SSHException):
            continue  # no certificate there, or none of this key: the plain key is offered all the same


class OneKeyAtATime(AuthStrategy):
    """Offers each key once, the one that was welcome elsewhere first, and stops where the server hangs up."""

    def __init__(self, ring: KeyRing, route: UserRoute, place: Place) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._ring, self._route, self._place = ring, route, place

    def get_sources(self) -> Iterator[AuthSource]:
        """Yield nothing: keys are offered by :meth:`authenticate` itself."""
        yield from ()

    def authenticate(self, transport: paramiko.Transport) -> AuthResult:
        """Return when a key was taken and nothing more is wanted; raises LookError otherwise."""
        offers, user, place = self._ring.offers(self._route), self._route.user, self._place
        if not offers.keys:
            raise _nothing_to_offer(place, offers)
        besides = "".join(f"; besides, {problem.message}" for problem in offers.problems)
        for key, _ in offers.keys:
            try:
                wanted = transport.auth_publickey(user, key)
            except paramiko.BadAuthenticationType as error:
                kinds = plain(", ".join(error.allowed_types))
                message = f"{place} takes no keys, only {kinds}"
                raise LookError("auth-failed", "auth", "method", message) from error
            except (paramiko.SSHException, EOFError, OSError) as error:
                if not transport.is_active():
                    raise _hung_up(place, user, transport, error, besides) from error
                continue
            if wanted:
                message = f"{place} took the key of {user} and wants more: {plain(', '.join(wanted))}"
                raise LookError("auth-failed", "auth", "partial", message)
            self._ring.took(self._route, key)
            return AuthResult(self)
        names = plain(", ".join(offered.name for offered in offers.keys), NAMED)
        tried = f"its key {names}" if len(offers.keys) == 1 else f"all {len(offers.keys)} keys: {names}"
        message = f"{place} refused {user} with {tried}; add the public key to its authorized_keys{besides}"
        raise LookError("auth-failed", "auth", "refused", message)


def _nothing_to_offer(place: Place, offers: Offers) -> LookError:
    if offers.problems:
        message = f"no key to offer to {place}: " + "; ".join(problem.message for problem in offers.problems)
        return LookError("auth-failed", "auth", offers.problems[0].detail, message)
    message = f"there is no key to offer to {place}; name one with identity_file: or start an ssh-agent"
    return LookError("auth-failed", "auth", "no-key", message)


def _hung_up(place: Place, user: str, transport: paramiko.Transport, error: Exception, besides: str) -> LookError:
    if "cannot be used for signing" in str(error):
        message = f"the ssh-agent did not sign for {user} at {place}; unlock it, or confirm the key{besides}"
        return LookError("auth-failed", "auth", "agent", message)
    farewell = plain(getattr(transport, "farewell", "")) or "without a word"
    message = f"{place} hung up during the authentication of {user}: {farewell}{besides}"
    return LookError("auth-failed", "auth", "closed", message)


def default_agent() -> str | None:
    """Return the agent that the environment names."""
    return os.environ.get("SSH_AUTH_SOCK") or None
