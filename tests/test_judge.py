"""From looks to a run: verdicts, waivers, maintenance, interruption, and the exit code that follows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Expect, Maintenance, Target, Waiver
from fleetcheck.judge import Policy, new_run, pipeline, resting
from fleetcheck.run import Finished, HostDone, Run, Started, exit_code

ROW = "{index}, GPU-00000000-0000-4000-8000-00000000000{index}, 00000000:0{index}:00.0, {name}, {cc}, 143771, 580.95.05"  # noqa: E501  one row of output
FIELDS = ["index", "uuid", "pci.bus_id", "name", "compute_cap", "memory.total", "driver_version"]


def smi(count: int, cc: str = "9.0") -> dict[str, object]:
    rows = "".join(ROW.format(index=index, name="NVIDIA H200", cc=cc) + "\n" for index in range(count))
    call = {
        "argv": ["/usr/bin/nvidia-smi"], "rc": 0, "stdout": rows, "stderr": "", "seconds": 0.03,
        "timed_out": False, "truncated": False, "error": None,
    }  # fmt: skip
    return {
        "path": "/usr/bin/nvidia-smi", "searched": [], "d_state": [], "skipped": None, "version": None,
        "query": {"fields": FIELDS, "call": call}, "retry": None,
    }  # fmt: skip


def look(name: str, gpus: int = 8) -> Evidence:
    return Evidence(name, "checked", parts={"agent": {"version": "0"}, "smi": smi(gpus)}, seconds=0.1)


def targets(*names: str) -> list[Target]:
    return [Target(name=name, expect=Expect(gpus=8)) for name in names]


def judged(chosen: list[Target], looks: Iterator[tuple[Target, Evidence]], policy: Policy | None = None) -> Run:
    events = list(pipeline(chosen, looks, new_run("test"), policy or Policy()))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert all(isinstance(event, HostDone) for event in events[1:-1])
    return events[-1].run


def test_verdicts_follow_findings_and_outcomes() -> None:
    good, short, dead = chosen = targets("good", "short", "dead")
    looks = [
        (short, look("short", 7)),
        (dead, Evidence("dead", "unreachable", "connect", "refused")),
        (good, look("good")),
    ]
    run = judged(chosen, iter(looks))
    assert [(host.name, host.verdict) for host in run.hosts] == [
        ("good", "ok"), ("short", "findings"), ("dead", "unreachable"),
    ]  # fmt: skip
    assert "gpu-count" in {finding.rule for finding in run.findings if finding.host == "short"}
    assert not [finding for finding in run.findings if finding.host == "dead"]
    assert (run.summary.hosts, run.summary.ok, run.summary.findings, run.summary.not_checked) == (3, 1, 1, 1)
    assert exit_code(run) == 4


def test_a_waived_finding_stays_visible_and_does_not_fail_the_run() -> None:
    chosen = targets("short01", "short02")
    waiver = Waiver(rule="gpu-count", hosts="short[01-09]", reason="one card in repair", until=date(2999, 1, 1))
    looks = [(target, look(target.name, 7)) for target in chosen]
    run = judged(chosen, iter(looks), Policy(waivers=(waiver,)))
    assert exit_code(run) == 0
    waived = [finding for finding in run.findings if finding.rule == "gpu-count"]
    assert [finding.waived.reason for finding in waived if finding.waived] == ["one card in repair"] * 2


def test_an_expired_waiver_accepts_nothing() -> None:
    chosen = targets("short")
    waiver = Waiver(rule="gpu-count", hosts="short", reason="old", until=date(2001, 1, 1))
    run = judged(chosen, iter([(chosen[0], look("short", 7))]), Policy(waivers=(waiver,)))
    assert exit_code(run) == 1


def test_fail_on_decides_which_severity_fails_a_host() -> None:
    chosen = targets("short")
    run = judged(chosen, iter([(chosen[0], look("short", 7))]), Policy(fail_on="critical"))
    assert (run.hosts[0].verdict, exit_code(run)) == ("ok", 0)


def test_hosts_under_maintenance_are_skipped_and_do_not_fail_the_run() -> None:
    chosen = targets("gpu01", "gpu02")
    policy = Policy(maintenance=(Maintenance(hosts="gpu[02-03]", reason="reinstall", until=date(2030, 1, 2)),))
    rest = resting(chosen, policy, date(2030, 1, 2))
    assert list(rest) == ["gpu02"]
    assert not resting(chosen, policy, date(2030, 1, 3))
    run = judged(chosen, iter([(chosen[0], look("gpu01")), (chosen[1], rest["gpu02"])]), policy)
    assert [host.verdict for host in run.hosts] == ["ok", "skipped"]
    assert "reinstall" in str(run.hosts[1].message)
    assert exit_code(run) == 0


def test_an_interrupt_from_within_accounts_for_every_host() -> None:
    chosen = targets("first", "second", "third")
    closed: list[bool] = []

    def looks() -> Iterator[tuple[Target, Evidence]]:
        try:
            yield chosen[0], look("first")
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    run = judged(chosen, looks())
    assert closed == [True]
    assert [host.outcome for host in run.hosts] == ["checked", "timeout", "timeout"]
    assert {host.detail for host in run.hosts[1:]} == {"interrupted"}
    assert not run.run.complete
    assert exit_code(run) == 130


def test_an_interrupt_thrown_in_closes_the_source_and_ends_the_run() -> None:
    chosen = targets("first", "second")
    closed: list[bool] = []

    def looks() -> Iterator[tuple[Target, Evidence]]:
        try:
            for target in chosen:
                yield target, look(target.name)
        finally:
            closed.append(True)

    events = pipeline(chosen, looks(), new_run("test"), Policy())
    next(events)
    next(events)
    last = events.throw(KeyboardInterrupt())
    assert isinstance(last, Finished)
    assert closed == [True]
    assert [host.outcome for host in last.run.hosts] == ["checked", "timeout"]


def test_a_parser_that_fails_costs_its_own_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import fleetcheck.judge

    real = fleetcheck.judge.host_facts

    def fragile(parts: object, expected: str | None) -> object:
        if parts and parts["agent"]["version"] == "bad":  # type: ignore[index]
            raise LookupError("an unforeseen shape")
        return real(parts, expected)  # type: ignore[arg-type]

    monkeypatch.setattr(fleetcheck.judge, "host_facts", fragile)
    chosen = targets("good", "bad")
    broken = Evidence("bad", "checked", parts={"agent": {"version": "bad"}})
    run = judged(chosen, iter([(chosen[1], broken), (chosen[0], look("good"))]))
    assert [(host.verdict, host.detail) for host in run.hosts] == [("ok", None), ("probe-error", "internal")]
    assert "unforeseen shape" in str(run.hosts[1].message)
