"""The live audit: reach the hosts, judge what comes back. The same pipeline as a replay, fed by the engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime

from fleetcheck.agent.evidence import Evidence
from fleetcheck.facts import lost
from fleetcheck.facts.records import Gpus
from fleetcheck.inventory.model import Target
from fleetcheck.judge import End, Policy, new_run, pipeline, resting
from fleetcheck.remote import engine
from fleetcheck.remote.reach import Reach
from fleetcheck.remote.settings import Settings
from fleetcheck.run import Event, RunInfo

Observer = Callable[[Evidence], None]
Look = tuple[Target, Evidence]


def audit(
    targets: Sequence[Target],
    *,
    inventory: str = "",
    policy: Policy | None = None,
    settings: Settings | None = None,
    executor: Executor | None = None,
    info: RunInfo | None = None,
    on_evidence: Observer | None = None,
    on_begin: Callable[[Target], None] | None = None,
    known: Callable[[str], Gpus | None] | None = None,
) -> Iterator[Event]:
    """Audit ``targets`` and yield events; the last is Finished with the run.

    ``on_evidence`` is called with the raw evidence of each host before it is judged (a recording is such an
    observer), ``on_begin`` with each target as its look begins. Hosts under maintenance are not touched and
    appear as ``skipped``. ``known`` tells of a host's GPUs what an earlier run knew; it is asked where one is
    gone, and its answer becomes part of the evidence.
    """
    policy = policy or Policy()
    settings = settings or Settings()
    info = info or new_run(inventory)
    rest = resting(targets, policy, datetime.fromisoformat(info.started).date())
    book = _Book(_Way(settings), on_evidence, known, on_begin)
    looks = _looks(targets, rest, book, executor)
    return pipeline(targets, book.told(looks), info, policy, End(cut_off=book.cut_off))


class _Way(Reach):
    """A Reach that keeps how each look ended: the engine drops what ends after an interrupt.

    Pickled into other processes it is a plain one.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.ended: dict[str, Evidence] = {}

    def look(self, target: Target, *, until: float | None = None) -> Evidence:
        look = super().look(target, until=until)
        self.ended[target.name] = look
        return look


@dataclass(slots=True)
class _Book:
    """What is under way: the hosts whose look began and was not judged yet."""

    way: _Way
    observer: Observer | None
    known: Callable[[str], Gpus | None] | None
    on_begin: Callable[[Target], None] | None
    begun: dict[str, Target] = field(default_factory=dict)
    handed: dict[str, Evidence] = field(default_factory=dict)

    def begin(self, target: Target) -> None:
        self.begun[target.name] = target
        if self.on_begin is not None:
            self.on_begin(target)

    def told(self, looks: Generator[Look, None, None]) -> Iterator[Look]:
        with closing(looks):  # whoever stops here stops the engine too, at once
            for target, look in looks:
                yield target, self._tell(target, look)
                for kept in (self.begun, self.handed, self.way.ended):
                    kept.pop(target.name, None)  # evidence is large, and a run is long

    def cut_off(self) -> Iterator[Look]:
        """Yield what an interrupt cut off: a look that ended just then counts, others tell how far they were."""
        for name, target in list(self.begun.items()):
            look = self.handed.get(name)
            yield target, look or self._tell(target, _cut_off(target, self.way.ended.get(name)))

    def _tell(self, target: Target, look: Evidence) -> Evidence:
        if self.known is not None and lost.wanted(look.parts) and (before := self.known(target.name)) is not None:
            look = replace(look, parts={**look.parts, "known": lost.remembered(before)})
        if self.observer is not None:
            self.observer(look)
        self.handed[target.name] = look
        return look


def _cut_off(target: Target, last: Evidence | None) -> Evidence:
    """Return what is to be said of a host whose look had begun, by its last attempt that ended; None: none did."""
    if last is None:
        message = "the run was interrupted while this host was looked at; how far that was is not known"
        return Evidence(target.name, "timeout", None, "interrupted", message, target.address)
    if last.outcome == "checked":
        return last
    if last.detail == "interrupted":
        message = f"the run was interrupted while this host was looked at (stage {last.stage})"
        return replace(last, message=message, parts={})
    message = f"the run was interrupted before this host was tried again; before, it was {last.outcome}"
    return replace(last, outcome="timeout", detail="interrupted", message=message, parts={})


def _looks(
    targets: Sequence[Target], rest: dict[str, Evidence], book: _Book, executor: Executor | None
) -> Generator[Look, None, None]:
    for target in targets:
        if target.name in rest:
            yield target, rest[target.name]
    awake = [target for target in targets if target.name not in rest]
    settings = book.way.settings
    yield from engine.run(awake, book.way, settings=settings, executor=executor, on_begin=book.begin)
