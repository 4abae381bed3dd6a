"""Whether a host could be reached without anybody's help: a key that loads, and a host key that is known.

In: targets. Out: what stands in the way, as sentences. Nothing is connected to.
"""

from __future__ import annotations

from collections.abc import Iterator

import paramiko

from fleetcheck.inventory.model import Target
from fleetcheck.remote.auth import Problem, load_key
from fleetcheck.remote.hostkey_advice import scan_command
from fleetcheck.remote.hostkeys import HostKeyError, HostKeyIndex, Known
from fleetcheck.remote.route import Resolver, Route, RouteError
from fleetcheck.remote.settings import Settings

Fault = tuple[str, str, str]
"""What it is about (``key``, ``known hosts``, ``route``), what is wrong, what to do."""
SSH, LOCAL = "ssh", "local"
UNATTENDED = (
    "give cron a key of its own, without passphrase: ssh-keygen -t ed25519 -N '' -f FILE, identity_file: FILE"
)


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

    def faults(self, target: Target) -> Iterator[Fault]:
        """Yield what would keep a run without agent and terminal from this host."""
        if target.connection == LOCAL:
            return
        if target.connection != SSH:
            said = f"the connection is {target.connection}; such a host cannot be audited, ssh and local can"
            yield "route", said, "correct its connection, or take it out of the inventory"
            return
        try:
            routes = (*self.gateways(target), self.route(target))
        except RouteError as error:
            yield "route", str(error), "correct the inventory or the ssh config"
            return
        for route in routes:
            yield from self._key_faults(route)
            yield from self._trust_faults(
                route, None if len(routes) == 1 or route is routes[0] else routes[-2].name
            )

    def offered(self, target: Target) -> Iterator[str]:
        """Yield the keys that would be offered, and what else is named. Where none loads, that is a fault."""
        route = self.route(target)
        loaded = [(path, self._key(path)) for path in route.identity_files]
        some = any(not isinstance(key, Problem) for _, key in loaded)
        for path, key in loaded:
            if not isinstance(key, Problem):
                yield f"{path} ({key.get_name()} {key.fingerprint})"
            elif some:
                yield f"not offered: {key.message}"
        if route.identity_agent:
            yield f"the agent at {route.identity_agent}; cron has none"

    def known(self, target: Target) -> Iterator[str]:
        """Yield the host keys that are known."""
        route = self.route(target)
        known = self._known(route)
        for key in known.keys or known.portless:
            yield f"{known.name}: {key.key_type} {key.fingerprint}, {key.path}:{key.line}"

    def _key_faults(self, route: Route) -> Iterator[Fault]:
        loaded = [self._key(path) for path in route.identity_files]
        if any(not isinstance(key, Problem) for key in loaded):
            return
        problems = [key.message for key in loaded if isinstance(key, Problem)]
        missing = [warning for warning in route.warnings if "identity file" in warning]
        yield "key", "; ".join(problems or missing or ["there is no key that needs no agent"]), UNATTENDED

    def _trust_faults(self, route: Route, gateway: str | None) -> Iterator[Fault]:
        files = ", ".join(route.known_hosts_files)
        try:
            known = self._known(route)
        except HostKeyError as error:
            yield "known hosts", str(error), "mend that file"
            return
        if known.keys or known.portless:
            return
        unread = [note for note in self._index(route).notes if "skipped" not in note]
        if unread:
            yield "known hosts", "; ".join(unread), f"make {files} readable for the user of the crontab"
            return
        scan = scan_command(route.host, route.port, route.known_hosts_files[0], route.host_key_alias, gateway)
        yield "known hosts", f"{known.name} is not in {files}", f"compare its key, then: {scan}"

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
