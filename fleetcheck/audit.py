"""The live audit: reach the hosts, judge what comes back. The same pipeline as a replay, fed by the engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import replace
from datetime import datetime

from fleetcheck.agent.evidence import Evidence
from fleetcheck.facts import lost
from fleetcheck.facts.records import Gpus
from fleetcheck.inventory.model import Target
from fleetcheck.judge import Policy, new_run, pipeline, resting
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
    looks = _looks(targets, rest, settings, executor, on_begin)
    return pipeline(targets, _told(looks, on_evidence, known), info, policy)


def _told(
    looks: Generator[Look, None, None], observer: Observer | None, known: Callable[[str], Gpus | None] | None
) -> Iterator[Look]:
    with closing(looks):  # whoever stops here stops the engine too, at once
        for target, look in looks:
            whole = look
            if known is not None and lost.wanted(look.parts) and (before := known(target.name)) is not None:
                whole = replace(look, parts={**look.parts, "known": lost.remembered(before)})
            if observer is not None:
                observer(whole)
            yield target, whole


def _looks(
    targets: Sequence[Target],
    rest: dict[str, Evidence],
    settings: Settings,
    executor: Executor | None,
    on_begin: Callable[[Target], None] | None,
) -> Generator[Look, None, None]:
    for target in targets:
        if target.name in rest:
            yield target, rest[target.name]
    awake = [target for target in targets if target.name not in rest]
    yield from engine.run(awake, Reach(settings), settings=settings, executor=executor, on_begin=on_begin)
