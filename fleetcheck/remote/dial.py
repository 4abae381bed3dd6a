"""Open connections along routes, with what the looks of one process share: keys, host keys, gateways."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import fabric

from fleetcheck.inventory.model import Target
from fleetcheck.remote.auth import KeyRing
from fleetcheck.remote.failures import LookError, Place
from fleetcheck.remote.gateway import Gateway, proxied
from fleetcheck.remote.hostkeys import HostKeyIndex
from fleetcheck.remote.route import Resolver, Route
from fleetcheck.remote.session import connected
from fleetcheck.remote.settings import Settings
from fleetcheck.remote.trust import KnownHostPolicy
from fleetcheck.remote.watchdog import Attempt, Watchdog
from fleetcheck.remote.wire import Wire, connect, resolve, socket_wire

Way = tuple[Route, ...]


class Dialer:
    """What the looks of one process share: routes, host keys, the user's keys, gateways, the watchdog."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.watchdog = Watchdog()
        self._resolver = Resolver(settings)
        self._ring = KeyRing(settings.limits.auth)
        self._lock = threading.Lock()
        self._indexes: dict[tuple[str, ...], HostKeyIndex] = {}
        self._gateways: dict[Way, Gateway] = {}
        self._ways: dict[tuple[object, ...], tuple[Route, Way]] = {}
        self._told: set[str] = set()

    def way(self, target: Target) -> tuple[Route, Way]:
        """Return the route of ``target`` and those of its gateways, in the order in which they are passed."""
        key = (
            target.name, target.address, target.port, target.user,
            target.identity_file, target.known_hosts, target.proxy_jump, target.proxy_command, target.ssh_config,
        )  # fmt: skip
        known = self._ways.get(key)
        if known is None:
            route = self._resolver.route(target)
            known = self._ways[key] = (route, self._resolver.gateways(route, target.ssh_config))
        return known

    def abort(self) -> None:
        """End all attempts and gateways of this process at once."""
        self.watchdog.abort_all()
        self.close_gateways()
        resolver, self._resolver = self._resolver, Resolver(self.settings)
        resolver.close()

    def close_gateways(self) -> None:
        """Close what is kept open between looks."""
        with self._lock:
            gateways, self._gateways = list(self._gateways.values()), {}
        for gateway in reversed(gateways):
            gateway.close()
        self._ring.close()

    @contextlib.contextmanager
    def connection(self, attempt: Attempt, route: Route, way: Way) -> Iterator[tuple[fabric.Connection, str]]:
        """Yield an authenticated connection along ``way``, and the address that it leads to. Raises LookError."""
        place = Place(route.host, route.port)
        attempt.place = place
        policy = KnownHostPolicy(
            self._index(route.known_hosts_files), route, place,
            accept_new=self.settings.accept_new, accepted=lambda: attempt.enter("auth", self.settings.limits.auth),
            gateway=name_of(way[-1]) if way else None, proxied=route.proxy_command is not None,
        )  # fmt: skip
        with contextlib.ExitStack() as stack:
            wire, address = self._wire(attempt, route, way, stack)
            connection = stack.enter_context(
                connected(attempt, route, place, wire, policy=policy, ring=self._ring, limits=self.settings.limits)
            )
            yield connection, address

    def notes(self, route: Route, way: Way) -> tuple[str, ...]:
        """Return what could not be read of the known_hosts files of a way; each file's notes once a process."""
        found: list[str] = []
        for files in dict.fromkeys(hop.known_hosts_files for hop in (*way, route)):
            index = self._index(files)
            with self._lock:
                found += [note for note in index.notes if note not in self._told]
                self._told.update(index.notes)
        return tuple(found)

    def gateway(self, way: Way) -> Gateway:
        """Return the shared gateway at the end of ``way``."""
        with self._lock:
            if way not in self._gateways:
                self._gateways[way] = Gateway(
                    name_of(way[-1]), lambda attempt: self._gateway_connection(way, attempt), self.settings.retries
                )
            return self._gateways[way]

    def _wire(self, attempt: Attempt, route: Route, way: Way, stack: contextlib.ExitStack) -> tuple[Wire, str]:
        limits = self.settings.limits
        place = Place(route.host, route.port)
        seconds = min(limits.connect, route.connect_timeout or limits.connect)

        def on_banner() -> None:
            attempt.rename("kex")

        if way:
            attempt.enter("connect")
            gateway = self.gateway(way)
            try:
                return gateway.wire(attempt, place, seconds, on_banner), route.host
            except LookError as failure:
                if attempt.cause == "host" and failure.outcome == "timeout":
                    raise gateway.failed(failure) from failure
                raise
        if route.proxy_command is not None:
            attempt.enter("connect", seconds)
            return stack.enter_context(proxied(route.proxy_command, on_banner)), route.host
        attempt.enter("resolve", seconds)
        addresses = resolve(attempt, route.host, route.port, seconds)
        attempt.enter("connect", seconds)
        socket = connect(attempt, place, addresses, seconds)
        return socket_wire(socket, on_banner), socket.getpeername()[0]

    @contextlib.contextmanager
    def _gateway_connection(self, way: Way, opener: Attempt) -> Iterator[fabric.Connection]:
        """Yield a connection that outlives its ``opener``, whose run's limit holds while it is made."""
        limits = self.settings.limits
        whole = min(limits.host, limits.connect + limits.banner + limits.auth)
        with contextlib.ExitStack() as stack:
            with Attempt(self.watchdog, whole, opener.run_remaining()) as attempt:
                connection, _ = stack.enter_context(self.connection(attempt, way[-1], way[:-1]))
                attempt.check()
            yield connection

    def _index(self, files: tuple[str, ...]) -> HostKeyIndex:
        with self._lock:
            if files not in self._indexes:
                self._indexes[files] = HostKeyIndex.load(files)
            return self._indexes[files]


def name_of(route: Route) -> str:
    """Return a gateway's name, as ``ssh`` takes it and as messages and limits use it."""
    return route.name
