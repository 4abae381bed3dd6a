"""Whether a host could be reached without anybody's help: a key that loads, and a host key that is known.

In: targets. Out: what stands in the way, as sentences. Nothing is connected to.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import paramiko

from fleetcheck.inventory.model import Target
from fleetcheck.remote.auth import Problem, load_key
from fleetcheck.remote.hostkey_advice import scan_command
from fleetcheck.remote.hostkeys import DEFAULT_PORT, HostKeyError, HostKeyIndex, Known
from fleetcheck.remote.route import Resolver, Route, RouteError
from fleetcheck.remote.settings import Settings

SSH, LOCAL = "ssh", "local"
LONGEST = 1500
"""Characters of one command that records keys: a longer line is cut where it is shown."""


class Unknown(NamedTuple):
    """A host key that is not known: what records it, and in which files it was looked for."""

    host: str
    port: int
    path: str
    files: str
    alias: str | None
    gateway: str | None


class Fault(NamedTuple):
    """``kind``: ``key``, ``known hosts``, ``route``. ``said``: what is wrong; ``do``: what mends it.

    ``gateway`` is the gateway that it is said of, None for the host itself. ``agent``: an agent may have a key.
    """

    kind: str
    said: str
    do: str
    gateway: str | None = None
    agent: bool = False
    unknown: Unknown | None = None

    @property
    def whole(self) -> str:
        """What is wrong, and of which gateway it is said."""
        return self.said if self.gateway is None else f"its gateway {self.gateway}: {self.said}"


class Readiness:
    """Asks for each host; files and keys are read once."""

    def __init__(self, settings: Settings) -> None:
        self._resolver = Resolver(settings)
        self._keys: dict[str, paramiko.PKey | Problem] = {}
        self._indexes: dict[tuple[str, ...], HostKeyIndex] = {}

    def route(self, target: Target) -> Route:
        """Return how the host is reached. Raises RouteError."""
        return self._resolver.route(target)

    def gateways(self, target: Target) -> tuple[Route, ...]:
        """Return the gateways before it. Raises RouteError."""
        return self._resolver.gateways(self.route(target), target.ssh_config)

    def faults(self, target: Target, *, named: bool = False) -> Iterator[Fault]:
        """Yield what would keep a run without agent and terminal from this host and its gateways.

        ``named``: what to do names this host; without it, it is the same for hosts alike.
        """
        if target.connection == LOCAL:
            return
        if target.connection != SSH:
            said = f"the connection is {target.connection}; such a host cannot be audited, ssh and local can"
            yield Fault("route", said, "correct its connection, or take it out of the inventory")
            return
        try:
            routes = (*self.gateways(target), self.route(target))
        except RouteError as error:
            yield Fault("route", str(error), "correct the inventory or the ssh config")
            return
        for number, route in enumerate(routes):
            before = routes[number - 1].name if number else None
            gateway = None if number == len(routes) - 1 else route.name
            yield from self._key_faults(route, gateway, before, named=named)
            yield from self._trust_faults(route, gateway, before)

    def offered(self, route: Route) -> Iterator[str]:
        """Yield the keys that would be offered, and what else is named. Where none loads, that is a fault."""
        loaded = [(path, self._key(path)) for path in route.identity_files]
        some = any(not isinstance(key, Problem) for _, key in loaded)
        for path, key in loaded:
            if not isinstance(key, Problem):
                yield f"{path} ({key.get_name()} {key.fingerprint})"
            elif some:
                yield f"not offered: {key.message}"
        if route.identity_agent:
            yield f"the agent at {route.identity_agent}; cron has none"

    def known(self, route: Route) -> Iterator[str]:
        """Yield the host keys that are known."""
        known = self._known(route)
        for key in known.keys or known.portless:
            yield f"{known.name}: {key.key_type} {key.fingerprint}, {key.path}:{key.line}"

    def _key_faults(
        self, route: Route, gateway: str | None, before: str | None, *, named: bool
    ) -> Iterator[Fault]:  # fmt: skip
        loaded = [self._key(path) for path in route.identity_files]
        if any(not isinstance(key, Problem) for key in loaded):
            return
        problems = [key.message for key in loaded if isinstance(key, Problem)]
        missing = [warning for warning in route.warnings if "identity file" in warning]
        said = "; ".join(problems or missing or ["there is no key that needs no agent"])
        do = _unattended(_place(route, before) if named or gateway is not None else "HOST", gateway)
        yield Fault("key", said, do, gateway, agent=route.identity_agent is not None)

    def _trust_faults(self, route: Route, gateway: str | None, before: str | None) -> Iterator[Fault]:
        files = ", ".join(route.known_hosts_files)
        try:
            known = self._known(route)
        except HostKeyError as error:
            yield Fault("known hosts", str(error), "mend that file", gateway)
            return
        if known.keys or known.portless:
            return
        unread = [note for note in self._index(route).notes if "skipped" not in note]
        if unread:
            do = f"make {files} readable for the user of the crontab"
            yield Fault("known hosts", "; ".join(unread), do, gateway)
            return
        path, alias = route.known_hosts_files[0], route.host_key_alias
        scan = scan_command(route.host, route.port, path, alias, before)
        unknown = Unknown(route.host, route.port, path, files, alias, before)
        said = f"{known.name} is not in {files}"
        yield Fault("known hosts", said, f"compare its key, then: {scan}", gateway, unknown=unknown)

    def _key(self, path: str) -> paramiko.PKey | Problem:
        if path not in self._keys:
            self._keys[path] = load_key(path)
        return self._keys[path]

    def _index(self, route: Route) -> HostKeyIndex:
        files = route.known_hosts_files
        if files not in self._indexes:
            self._indexes[files] = HostKeyIndex.load(files)
        return self._indexes[files]

    def _known(self, route: Route) -> Known:
        return self._index(route).lookup(route.host, route.port, route.host_key_alias, route.revoked_host_keys)


def together(unknown: Iterable[Unknown]) -> Iterator[tuple[list[Unknown], str]]:
    """Yield keys that are not known, those that one command records together, and the command."""
    alike: dict[tuple[object, ...], list[Unknown]] = {}
    for one in dict.fromkeys(unknown):
        alike.setdefault((one.host if one.alias else None, *one[1:]), []).append(one)
    for group in alike.values():
        left = group
        while left:
            taken = _fitting(left)
            first, *others = left[:taken]
            more = [one.host for one in others]
            yield left[:taken], scan_command(*first[:3], first.alias, first.gateway, more=more)
            left = left[taken:]


def _fitting(unknown: list[Unknown]) -> int:
    """Return how many of the hosts one command takes."""
    length = 0
    for number, one in enumerate(unknown):
        length += len(one.host) + 1
        if length > LONGEST and number:
            return number
    return len(unknown)


def _place(route: Route, before: str | None) -> str:
    """Return a host as ``ssh-copy-id`` takes it."""
    words = ["-p", str(route.port)] if route.port != DEFAULT_PORT else []
    words += ["-o", f"ProxyJump={before}"] if before is not None else []
    return shlex.join([*words, f"{route.user}@{route.host}"])


def _unattended(place: str, gateway: str | None) -> str:
    """Return how cron gets a key; the inventory's ``identity_file`` is the host's, never a gateway's."""
    where = (
        f"in the ssh config: Host {gateway}, IdentityFile FILE"
        if gateway
        else "in the inventory: identity_file: FILE"
    )
    return (
        "give cron a key of its own, without passphrase: ssh-keygen -t ed25519 -N '' -f FILE, then "
        f"ssh-copy-id -i FILE.pub {place}, and {where}"
    )
