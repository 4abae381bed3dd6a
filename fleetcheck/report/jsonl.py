"""JSON lines, as hosts end: ``run``, each ``host`` and its ``finding`` lines, the fleet's findings, ``summary``.

No ``summary`` line: the run did not end, or was cut. The lines' schema ships as ``line-1.schema.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetcheck.report.json import compact, plain
from fleetcheck.rules.finding import Finding
from fleetcheck.run import SCHEMA, Event, Finished, HostDone, HostResult, Run, RunInfo, Started

_Said = tuple[HostResult, tuple[Finding, ...]]


class Stream:
    """Turns the events of one run into lines.

    What the end of a run changes of a host is said again, whole: of two ``host`` lines of one name, the later one
    and the findings after it count.
    """

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}

    def lines(self, event: Event) -> Iterator[str]:
        """Yield the lines that an event adds, each with its line end."""
        if isinstance(event, Started):
            yield _line("run", {"schema": SCHEMA, **plain(_begun(event.info))})
        elif isinstance(event, HostDone):
            yield from self._host(event.host, event.findings)
        else:
            yield from self._end(event.run)

    def _host(self, host: HostResult, findings: tuple[Finding, ...]) -> Iterator[str]:
        self._said[host.name] = (host, findings)
        yield _line("host", plain(host))
        for finding in findings:
            yield _line("finding", plain(finding))

    def _end(self, run: Run) -> Iterator[str]:
        found = by_host(run)
        for host in run.hosts:
            last = (host, found.pop(host.name, ()))
            if self._said.get(host.name) != last:
                yield from self._host(*last)
        for findings in found.values():
            for finding in findings:
                yield _line("finding", plain(finding))
        ended = {"finished": run.run.finished, "complete": run.run.complete}
        yield _line("summary", {**plain(run.summary), **ended})


def by_host(run: Run) -> dict[str | None, tuple[Finding, ...]]:
    """Return the findings by host, in their order; None are those of the whole fleet."""
    found: dict[str | None, list[Finding]] = {}
    for finding in run.findings:
        found.setdefault(finding.host, []).append(finding)
    return {host: tuple(findings) for host, findings in found.items()}


def render(run: Run) -> str:
    """Return the lines of a run that has ended, hosts in their order."""
    stream = Stream()
    lines = [*stream.lines(Started(run.run, len(run.hosts))), *stream.lines(Finished(run))]
    return "".join(lines)


def _begun(info: RunInfo) -> RunInfo:
    return info.model_copy(update={"finished": None, "complete": False})


def _line(kind: str, document: dict[str, Any]) -> str:
    return compact({"type": kind, **document}) + "\n"
