"""A GPU that is gone since an earlier run is named by what that run knew of it, and a replay says the same."""

from __future__ import annotations

from pathlib import Path

from fleetcheck import recording
from fleetcheck.audit import audit
from fleetcheck.demo.fleet import Fleet
from fleetcheck.facts.records import Gpus
from fleetcheck.judge import Policy, new_run, pipeline
from fleetcheck.run import Finished, HostResult, Run

NAME = "demo-rtx01"


def finished(events: object) -> Run:
    (run,) = [event.run for event in events if isinstance(event, Finished)]  # type: ignore[attr-defined]
    return run


def gone(host: HostResult) -> tuple[str | None, str | None, str | None]:
    (device,) = [device for device in host.gpus.devices if device.state == "missing"]
    return device.uuid, device.bus_id, device.name


def test_a_lost_gpu_is_named_by_the_run_before(tmp_path: Path) -> None:
    with Fleet(tmp_path / "fleet") as fleet:
        targets = [target for target in fleet.inventory.targets if target.name == NAME]
        first = finished(audit(targets, settings=fleet.settings)).hosts[0]
        lost = first.gpus.devices[3]
        tool = Path(targets[0].sysroot) / "usr/bin/nvidia-smi"
        tool.rename(tool.with_name("whole"))
        tool.write_text('#!/bin/sh\n"${0%/*}/whole" "$@" | grep -v "^3, "\n')
        tool.chmod(0o755)
        asked: list[str] = []

        def known(name: str) -> Gpus:
            asked.append(name)
            return first.gpus

        info, policy = new_run("demo"), Policy()
        writer = recording.Writer(tmp_path / "evidence.jsonl")
        writer.begin(info, policy, targets)
        run = finished(
            audit(targets, settings=fleet.settings, info=info, policy=policy, on_evidence=writer.host, known=known)
        )
        writer.end(run.run.finished or "", complete=True)
        unknown = finished(audit(targets, settings=fleet.settings)).hosts[0]
    assert asked == [NAME]
    assert gone(run.hosts[0]) == (lost.uuid, lost.bus_id, lost.name)
    assert gone(unknown)[0] is None
    taken = recording.read(tmp_path / "evidence.jsonl")
    assert finished(pipeline(taken.targets, taken.looks(), taken.info, taken.policy, taken.end)) == run


def test_a_healthy_host_is_not_asked_about(tmp_path: Path) -> None:
    def known(name: str) -> Gpus:
        raise AssertionError(name)

    with Fleet(tmp_path) as fleet:
        targets = [target for target in fleet.inventory.targets if target.name == NAME]
        assert finished(audit(targets, settings=fleet.settings, known=known)).hosts[0].gpus.state == "ok"
