"""Look at one host: one connection, one command, and Evidence whatever happens."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from fleetcheck.agent.evidence import Evidence, Outcome, Request
from fleetcheck.errors import FleetcheckError
from fleetcheck.inventory.model import Target, VenvItem
from fleetcheck.remote.failures import LookError, plain
from fleetcheck.remote.settings import Settings

if TYPE_CHECKING:
    from fleetcheck.agent.frame import Collector
    from fleetcheck.remote.dial import Dialer
    from fleetcheck.remote.watchdog import Attempt

MAX_NOTES = 20


class Reach:
    """The way to hosts. Pickles to its settings: what it shares (keys, gateways) is built once a process.

    Threads may look side by side. :meth:`close` ends what is kept open between looks.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._made: Dialer | None = None
        self._joining: threading.Thread | None = None

    def __reduce__(self) -> tuple[object, tuple[Settings]]:
        return (_unpickled, (self.settings,))

    def __enter__(self) -> Reach:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def look(self, target: Target, *, until: float | None = None) -> Evidence:
        """Look at ``target`` once and return how it ended. Raises nothing: one host's failure is its result.

        ``until`` is the end of the run in seconds since the epoch (None: no limit). Ends within the limits of the
        settings.
        """
        from fleetcheck.remote.watchdog import Attempt  # noqa: PLC0415  # Fabric is imported in no other command

        started, begun = time.time(), time.monotonic()
        answer = _Answer()
        failure: LookError | None = None
        left = None if until is None else until - started
        limits = self.settings.limits
        with Attempt(self._dialer().watchdog, limits.host, left) as attempt:
            try:
                self._look(attempt, target, answer)
            except LookError as error:
                failure = error
            except FleetcheckError as error:
                failure = LookError("unreachable", "resolve", "ssh-config", str(error))
            except Exception as error:  # noqa: BLE001  # one host's failure is that host's result, never the run's
                failure = _internal(attempt, error)
        return answer.evidence(target, failure, started, time.monotonic() - begun)

    def gateway(self, target: Target) -> str | None:
        """Return the name of the gateway next to ``target``; None where there is none, or no route is known."""
        if target.connection != "ssh":
            return None
        try:
            _, way = self._dialer().way(target)
        except FleetcheckError:
            return None  # the look itself says what is wrong with the route
        return way[-1].name if way else None

    def abort(self) -> None:
        """End every look that is under way in this process; each returns its Evidence within a second."""
        if self._made is not None:
            self._made.abort()

    def begin(self) -> None:
        """Let looks begin again after :meth:`end`."""
        if self._made is not None:
            self._made.watchdog.ending = False

    def end(self) -> None:
        """End every look that is under way, and each that a worker is just about to begin."""
        if self._made is not None:
            self._made.watchdog.ending = True
            self._made.abort()

    def close(self) -> None:
        """Close gateways and agents. A later look opens them again."""
        if self._made is not None:
            self._made.close_gateways()
        self._joined()

    def _join(self) -> None:
        """Join what is sent while the first hosts answer: no host waits for it then."""
        from fleetcheck.agent import bundle  # noqa: PLC0415  # as above

        with contextlib.suppress(Exception):  # whoever needs it is told
            bundle.programs(self.settings.deep)

    def _joined(self) -> None:
        """Wait until it is joined; without this, each of the first threads would do it."""
        if self._joining is not None:
            self._joining.join()

    def _dialer(self) -> Dialer:
        from fleetcheck.remote.dial import Dialer  # noqa: PLC0415  # as above

        with self._lock:
            if self._made is None:
                self._made = Dialer(self.settings)
                self._joining = threading.Thread(target=self._join, name="fleetcheck-join", daemon=True)
                self._joining.start()
            return self._made

    def _look(self, attempt: Attempt, target: Target, answer: _Answer) -> None:
        from fleetcheck.agent import bundle, frame  # noqa: PLC0415  # as above
        from fleetcheck.remote.session import ask  # noqa: PLC0415  # as above

        limits, max_bytes = self.settings.limits, self.settings.max_bytes
        dialer = self._dialer()
        attempt.enter("resolve")
        if target.connection != "ssh":
            self._look_here(attempt, target, answer)
            return
        route, way = dialer.way(target)
        answer.warnings = (*route.warnings, *dialer.notes(route, way))
        answer.address = route.host
        try:
            with dialer.connection(attempt, route, way) as (connection, address):
                answer.address = address
                marker = bundle.new_marker()
                answer.collector = frame.Collector(marker, max_bytes)
                self._joined()
                request = request_for(target, self.settings, attempt.remaining())
                ask(
                    attempt, connection, bundle.remote_command(target.sudo), bundle.script(request, marker),
                    answer.collector,
                    limits=limits, max_bytes=max_bytes, sudo=target.sudo,
                )  # fmt: skip
        except LookError as failure:
            if way and failure.outcome == "probe-error" and failure.detail == "lost":
                gateway = dialer.gateway(way)
                if not gateway.alive():
                    raise gateway.lost(failure.stage) from failure
            raise

    def _look_here(self, attempt: Attempt, target: Target, answer: _Answer) -> None:
        from fleetcheck.agent import bundle, frame  # noqa: PLC0415  # as above
        from fleetcheck.remote.local import ask_here  # noqa: PLC0415  # as above

        if target.connection != "local":
            message = f"a host with the connection {plain(target.connection)} cannot be audited; ssh and local can"
            raise LookError("unreachable", "resolve", "connection", message)
        max_bytes, marker = self.settings.max_bytes, bundle.new_marker()
        answer.collector = frame.Collector(marker, max_bytes)
        self._joined()
        request = request_for(target, self.settings, attempt.remaining())
        script = bundle.script(request, marker)
        ask_here(attempt, script, answer.collector, max_bytes=max_bytes, sudo=target.sudo)


@dataclass(slots=True)
class _Answer:
    """What has come back so far."""

    address: str | None = None
    collector: Collector | None = None
    warnings: tuple[str, ...] = ()

    def evidence(self, target: Target, failure: LookError | None, started: float, seconds: float) -> Evidence:
        parts = {} if self.collector is None else dict(self.collector.parts)
        notes = (*self.warnings, *([] if self.collector is None else self.collector.notes))[:MAX_NOTES]
        end = parts.get("end")
        if failure is None and isinstance(end, dict) and end.get("reason") == "limit":
            message = "the agent stopped at the host limit; what it had gathered is judged"
            failure = LookError("timeout", "probe", "agent-limit", message)
        outcome: Outcome = "checked" if failure is None else failure.outcome
        return Evidence(
            host=target.name,
            outcome=outcome,
            stage=None if failure is None else failure.stage,
            detail=None if failure is None else failure.detail,
            message=None if failure is None else failure.message,
            address=self.address or target.address,
            started=started,
            seconds=seconds,
            parts=parts,
            notes=notes,
        )


def request_for(target: Target, settings: Settings, seconds: float) -> Request:
    """Return what the agent is asked; it is told to end a little before ``seconds``, our own limit, are over."""
    items = target.venvs
    return Request(
        venvs=tuple(item.path for item in items if isinstance(item, VenvItem)),
        discover=tuple(item for item in items if not isinstance(item, VenvItem)),
        sysroot=target.sysroot,
        scan=target.scan,
        files=expected_files(target),
        deep=settings.deep,
        host_limit=max(0.5, seconds - min(3.0, seconds / 10)),
        smi_limit=min(settings.limits.smi, seconds),
        max_bytes=settings.max_bytes,
    )


def expected_files(target: Target) -> tuple[str, ...]:
    """Return the files of which the host, or an environment's own entry, expects a content."""
    entries = [target.expect, *(item.expect for item in target.venvs if isinstance(item, VenvItem))]
    return tuple(dict.fromkeys(name for entry in entries for name in entry.files or {}))


def _internal(attempt: Attempt, error: Exception) -> LookError:
    if attempt.aborted:
        return attempt.failure()
    message = f"fleetcheck failed at the stage {attempt.stage}: {type(error).__name__}: {plain(str(error))}"
    return LookError("probe-error", attempt.stage, "internal", message)


@cache
def _of_process(settings: Settings, _process: int) -> Reach:
    return Reach(settings)


def _unpickled(settings: Settings) -> Reach:
    """Return this process's Reach of these settings, so that each job does not load keys anew."""
    return _of_process(settings, os.getpid())
