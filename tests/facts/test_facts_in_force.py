"""What is in force: the gates of both, and the arguments of the process that serves from the environment."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetcheck.agent.program.commands import flags_of
from fleetcheck.facts.in_force import of_venvs, serves_from
from fleetcheck.facts.records import Framework, FrameworkGate, Fusion, Process, Venv

ENABLE = "--enable-flashinfer-allreduce-fusion"
ENFORCE = "--enforce-disable-flashinfer-allreduce-fusion"


def venv(
    verdict: Any, name: str = "sglang", admits: tuple[int, ...] = (9, 10, 12), auto: tuple[int, ...] = ()
) -> Venv:
    gate = FrameworkGate(kind="call", file="x.py", function="f", majors=admits)
    caller = Framework(name=name, version="0.5.7", gates=(gate,), admits=admits, auto_enables=auto)
    return Venv(path="/v", real="/data/v", fusion=Fusion(verdict=verdict, effective="unknown", callers=(caller,)))


def process(server: Any = "sglang", venv: str | None = "/v", title: str | None = None, **flags: str) -> Process:
    return Process(pid=7, server=server, venv=venv, title=title, flags=flags)


def state(place: Venv, *processes: Process) -> str:
    (found,) = of_venvs([place], processes, ("12.0",))
    assert found.fusion is not None
    return found.fusion.effective


@pytest.mark.parametrize(
    ("place", "flags", "wanted"),
    [
        (venv("supported"), {"--tp": "8", ENABLE: ""}, "on"),
        (venv("patched"), {"--tp": "8", ENABLE: ""}, "on-unvalidated"),
        (venv("unsafe-patch"), {"--tp": "8", ENABLE: ""}, "on-unvalidated"),
        (venv("refused"), {"--tp": "8", ENABLE: ""}, "would-crash"),
        (venv("supported"), {"--tp": "8"}, "off"),
        (venv("supported"), {ENABLE: ""}, "off"),
        (venv("supported"), {"--tp-size": "1", ENABLE: ""}, "off"),
        (venv("refused", auto=(12,)), {"--tp": "8"}, "would-crash"),
        (venv("refused", auto=(12,)), {"--tp": "1"}, "off"),
        (venv("refused", auto=(12,)), {}, "off"),
        (venv("refused", auto=(12,)), {"--config": ""}, "would-crash"),
        (venv("supported"), {"--config": ""}, "unknown"),
        (venv("supported"), {"--config": "", "--tp": "8"}, "unknown"),
        (venv("supported"), {"--config": "", "--tp": "8", ENABLE: ""}, "on"),
        (venv("supported"), {"--config": "", "--tp": "1", ENABLE: ""}, "off"),
        (venv("supported"), {"--tensor-parallel": "8", ENABLE: ""}, "on"),
        (venv("supported"), {"--tensor-parallel": "8", "--enable-flashinfer-allreduce": ""}, "on"),
        (venv("supported"), {"--tp-s": "8", "--enable-fl": ""}, "on"),
        (venv("supported"), {"--tp": "8", "--enable-f": ""}, "unknown"),
        (venv("supported"), {"--t": "8", ENABLE: ""}, "unknown"),
        (venv("supported"), {"--tp": "(not told)", ENABLE: ""}, "unknown"),
        (venv("supported", auto=(12,)), {"--tp": "8"}, "unknown"),
        (venv("supported", auto=(12,)), {"--tp": "8", ENFORCE: ""}, "off"),
        (venv("supported", admits=(9, 10)), {"--tp": "8", ENABLE: ""}, "off"),
        (venv("unknown"), {"--tp": "8", ENABLE: ""}, "unknown"),
    ],
)
def test_sglang(place: Venv, flags: dict[str, str], wanted: str) -> None:
    assert state(place, process(**flags)) == wanted


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({"--tensor-parallel-size": "4", "fuse_allreduce_rms": "true"}, "on"),
        ({"--tensor-parallel-size": "4", "enable_fi_allreduce_fusion": "false"}, "off"),
        ({"--tensor-parallel-size": "4", "fuse_allreduce_rms": "1"}, "on"),
        ({"--tensor-parallel-size": "4", "fuse_allreduce_rms": "0"}, "off"),
        ({"--tensor-parallel-size": "4", "fuse_allreduce_rms": "7"}, "unknown"),
        ({"--tensor-parallel-size": "4"}, "unknown"),
        ({}, "off"),
    ],
)
def test_vllm(flags: dict[str, str], wanted: str) -> None:
    assert state(venv("supported", "vllm"), process("vllm", **flags)) == wanted


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ("""-cc '{"pass_config": {"fuse_allreduce_rms": true}}'""", "on"),
        ("""-cc='{"pass_config": {"fuse_allreduce_rms": 1}}'""", "on"),
        ("""--compilation-config "{\\"pass_config\\": {\\"fuse_allreduce_rms\\": false}}\"""", "off"),
        ("""--compilation_config '{"pass_config":{"enable_fi_allreduce_fusion":true}}'""", "on"),
        ("-cc.pass_config.fuse_allreduce_rms=1", "on"),
        ("-cc.pass_config '{\"fuse_allreduce_rms\": true}'", "on"),
        ("-cc \"{'pass_config': {'fuse_allreduce_rms': true}}\"", "unknown"),  # vLLM refuses to start with that
    ],
)
def test_vllm_started_through_a_shell(told: str, wanted: str) -> None:
    """The arguments that its process really has, as /proc tells them: without the quotes of the shell."""
    waits = "print(flush=True); input()"
    line = f"exec {shlex.quote(sys.executable)} -c '{waits}' serve some/model -tp 4 {told}"
    with subprocess.Popen(["sh", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.readline()
        words = Path(f"/proc/{server.pid}/cmdline").read_text().split("\0")
        server.stdin.write(b"\n")
    assert state(venv("supported", "vllm"), process("vllm", **flags_of(words))) == wanted


@pytest.mark.parametrize(
    ("verdict", "falls_back", "wanted"),
    [("supported", False, "on"), ("refused", False, "would-crash"), ("refused", True, "off")],
)
def test_vllm_with_a_size_that_its_table_does_not_have(verdict: str, falls_back: bool, wanted: str) -> None:
    flags = {"--tensor-parallel-size": "4", "fuse_allreduce_rms": "true"}
    place = venv(verdict, "vllm", admits=(9, 10))
    assert place.fusion is not None
    callers = tuple(c.model_copy(update={"falls_back": falls_back}) for c in place.fusion.callers)
    place = place.model_copy(update={"fusion": place.fusion.model_copy(update={"callers": callers})})
    assert state(place, process("vllm", **flags)) == "off"
    assert state(place, process("vllm", **flags, fi_allreduce_fusion_max_size_mb="64")) == wanted


def test_vllm_reads_a_file_that_may_give_the_size() -> None:
    place = venv("supported", "vllm", admits=(9, 10))
    assert state(place, process("vllm", **{"--tensor-parallel-size": "8"})) == "off"
    assert state(place, process("vllm", **{"--tensor-parallel-size": "8", "--config": ""})) == "unknown"


def test_a_renamed_child_without_its_launcher_tells_nothing() -> None:
    assert state(venv("supported"), process(title="sglang::scheduler_TP0")) == "unknown"


def test_the_worst_of_several_servers_counts() -> None:
    on, off = process(**{"--tp": "2", ENABLE: ""}), process()
    assert state(venv("refused"), off, on) == "would-crash"


def test_processes_of_elsewhere_and_none_change_nothing() -> None:
    assert state(venv("supported"), process(venv="/w", **{"--tp": "8", ENABLE: ""})) == "unknown"
    assert state(venv("supported"), process("vllm", **{"--tp": "8", ENABLE: ""})) == "unknown"
    assert of_venvs([venv("supported")], None, ("12.0",)) == (venv("supported"),)


def test_an_environment_by_either_of_its_paths() -> None:
    assert serves_from(process(venv="/data/v/"), venv("supported"))
    assert serves_from(process(venv="/v"), venv("supported"))
    assert not serves_from(process(venv=None), venv("supported"))
