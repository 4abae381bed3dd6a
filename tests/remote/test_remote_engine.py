"""The engine: each target once, within the limits, by any executor; retries; interruption."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import faults
from support.faults import FaultySsh, Listener
from support.limits import AMPLE
from support.sshd import NEEDS_SSHD, SSHD, Sshd, free_port, make_key, wait_until

from fleetcheck.inventory.model import Target
from fleetcheck.remote import engine
from fleetcheck.remote.reach import Reach
from fleetcheck.remote.settings import Settings

pytestmark = [pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD), pytest.mark.usefixtures("nothing_left")]


def settings(**changes: Any) -> Settings:
    return Settings(**({"ssh_config": "none", "limits": AMPLE} | changes))


def run(targets: list[Target], used: Settings, executor: Executor | None = None) -> dict[str, Any]:
    found = list(engine.run(iter(targets), Reach(used), settings=used, executor=executor))
    assert sorted(target.name for target, _ in found) == sorted(target.name for target in targets)
    assert all(target.name == evidence.host for target, evidence in found)
    return {evidence.host: evidence for _, evidence in found}


class Counting(ThreadPoolExecutor):
    """Threads, and the most looks that were submitted and had not ended."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.now = self.most = 0
        self._count = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with self._count:
            self.now += 1
            self.most = max(self.most, self.now)
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: object) -> None:
        with self._count:
            self.now -= 1


def test_mixed_fleet_is_accounted_for(sshd: Sshd) -> None:
    targets = [sshd.target(f"good{number:02}", venvs=()) for number in range(24)]
    targets += [sshd.target("stranger", known_hosts=os.devnull), sshd.target("closed", port=free_port())]
    with Counting(32) as executor:
        found = run(targets, settings(workers=5), executor)
    assert executor.most == 5
    outcomes = {name: evidence.outcome for name, evidence in found.items()}
    assert {outcomes.pop("stranger"), outcomes.pop("closed")} == {"host-key-unknown", "unreachable"}
    assert set(outcomes.values()) == {"checked"}
    assert found["closed"].attempts == 2
    assert found["stranger"].attempts == found["good00"].attempts == 1
    assert sshd.wait_idle()


def test_own_threads(sshd: Sshd) -> None:
    found = run([sshd.target(f"host{number}", venvs=()) for number in range(6)], settings(workers=3))
    assert {evidence.outcome for evidence in found.values()} == {"checked"}


def test_begun_looks_are_told(sshd: Sshd) -> None:
    begun: list[str] = []
    used = settings(workers=2)
    targets = [sshd.target(f"host{number}", venvs=()) for number in range(3)] + [
        sshd.target("closed", port=free_port())
    ]
    ended = []
    for target, _ in engine.run(
        targets, Reach(used), settings=used, on_begin=lambda target: begun.append(target.name)
    ):
        assert target.name in begun
        ended.append(target.name)
    assert sorted(begun) == sorted([*ended, "closed"]), "the second chance begins anew"


def test_no_target() -> None:
    assert run([], settings()) == {}


def test_dropped_connection_is_tried_again(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    with Listener(faults.first(2, faults.crowded, faults.relay(sshd.port))) as server:
        known.write_text(sshd.known_hosts_lines(server.port))
        target = sshd.target("crowded", port=server.port, known_hosts=str(known), venvs=())
        evidence = run([target], settings())["crowded"]
    assert (evidence.outcome, evidence.attempts) == ("checked", 3)


def test_retries_end(sshd: Sshd) -> None:
    with Listener(faults.close_at_once) as server:
        evidence = run([sshd.target("closed", port=server.port)], settings())["closed"]
        assert (evidence.outcome, evidence.detail, evidence.attempts) == ("unreachable", "closed", 3)
        evidence = run([sshd.target("closed", port=server.port)], settings(retries=0))["closed"]
        assert evidence.attempts == 1


def test_failures_behind_authentication_are_final(tmp_path: Path) -> None:
    host, user = make_key(tmp_path / "host"), make_key(tmp_path / "user")
    with FaultySsh(host, welcome=[]) as server:
        known = tmp_path / "known_hosts"
        known.write_text(server.known_hosts_line)
        evidence = run([server.target(identity_file=str(user), known_hosts=str(known))], settings())["faulty"]
        assert (evidence.outcome, evidence.attempts) == ("auth-failed", 1)
        assert server.accepted == 1


def test_silent_host_gets_a_second_chance_at_the_end(sshd: Sshd) -> None:
    with faults.syn_dropped() as port:
        limits = replace(AMPLE, connect=0.5)
        targets = [sshd.target("dropped", port=port), sshd.target("good", venvs=())]
        evidence = run(targets, settings(limits=limits))["dropped"]
        alone = run(targets[:1], settings(limits=limits))["dropped"]
    assert (evidence.outcome, evidence.stage, evidence.attempts) == ("timeout", "connect", 2)
    assert evidence.seconds >= 2 * limits.connect
    assert (alone.outcome, alone.stage, alone.attempts) == ("timeout", "connect", 1), "nothing to wait for"


def test_run_limit_accounts_for_hosts_that_never_began(sshd: Sshd) -> None:
    limits = replace(AMPLE, run=1.5)
    with Listener(faults.silent) as server:
        targets = [sshd.target(f"host{number}", port=server.port) for number in range(5)]
        found = run(targets, settings(limits=limits, workers=2))
    stages = sorted((evidence.stage, evidence.attempts) for evidence in found.values())
    assert {(e.outcome, e.detail) for e in found.values()} == {("timeout", "run-limit")}
    assert stages == [("banner", 1), ("banner", 1), ("queue", 0), ("queue", 0), ("queue", 0)]


def test_closing_ends_all_looks(sshd: Sshd) -> None:
    with Listener(faults.silent) as server:
        targets = [sshd.target("good", venvs=())]
        targets += [sshd.target(f"host{number}", port=server.port) for number in range(12)]
        used = settings(limits=replace(AMPLE, banner=300, host=600), workers=8)
        results = engine.run(targets, Reach(used), settings=used)
        assert next(results)[1].outcome == "checked"
        assert wait_until(lambda: server.accepted >= 7)
        results.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fleetcheck")]
    assert sshd.wait_idle()


def test_exception_thrown_into_it_ends_all_looks(sshd: Sshd) -> None:
    with Listener(faults.silent) as server:
        targets = [sshd.target("good", venvs=()), sshd.target("hung", port=server.port)]
        used = settings(limits=replace(AMPLE, banner=300, host=600))
        results = engine.run(targets, Reach(used), settings=used)
        next(results)
        with pytest.raises(KeyboardInterrupt):
            results.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fleetcheck")]


def test_processes(sshd: Sshd) -> None:
    context = multiprocessing.get_context("spawn")
    targets = [sshd.target(f"host{number}", venvs=()) for number in range(6)] + [
        sshd.target("gone", port=free_port())
    ]
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        found = run(targets, settings(), executor)
    assert sorted(evidence.outcome for evidence in found.values()) == ["checked"] * 6 + ["unreachable"]


class Broken(ThreadPoolExecutor):
    """Takes two looks and then no more."""

    left = 2

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return super().submit(fn, *args, **kwargs)


def test_executor_that_breaks(sshd: Sshd) -> None:
    with Broken(2) as executor:
        found = run([sshd.target(f"host{number}", venvs=()) for number in range(4)], settings(), executor)
    outcomes = sorted((evidence.outcome, evidence.detail or "") for evidence in found.values())
    assert outcomes == [("checked", "")] * 2 + [("probe-error", "executor")] * 2


def test_target_that_no_route_leads_to(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("NoSuchKeyword yes\n")
    found = run([sshd.target("host")], settings(ssh_config=str(config)))
    assert (found["host"].outcome, found["host"].stage, found["host"].detail) == (
        "unreachable",
        "resolve",
        "ssh-config",
    )
    assert found["host"].attempts == 1


def test_times_are_of_the_controllers_clock(sshd: Sshd) -> None:
    before = time.time()
    evidence = run([sshd.target("host", venvs=())], settings())["host"]
    assert before <= evidence.started <= time.time()
    assert evidence.seconds > 0
