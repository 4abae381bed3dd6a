"""A patched all-reduce: who is said to use it, where what was built is said to lie, and steps in a right order."""

from __future__ import annotations

from typing import Any

import pytest
from support.healthy_host import facts, target

from fleetcheck.report.steps import step
from fleetcheck.rules.catalog import RULES
from fleetcheck.rules.examples import EXAMPLES, example
from fleetcheck.rules.finding import Finding
from fleetcheck.rules.judge import judge_host

GATE = {"kind": "call", "file": "x.py", "function": "f", "majors": [9, 10]}
STOCK = {"name": "sglang", "version": "0.5.9", "gates": [GATE], "admits": [9, 10], "auto_enables": [9, 10]}
OPEN = {**STOCK, "gates": [{**GATE, "majors": [9, 10, 12]}], "admits": [9, 10, 12]}
FUSION = {"verdict": "unsafe-patch", "gate": [9, 10, 12], "guards": 13, "gate_file": "jit/comm.py"}
FUSES = {"--tp": "8", "--enable-flashinfer-allreduce-fusion": ""}
CACHE = "/srv/fi/.cache/flashinfer"
BUILT = f"{CACHE}/0.6.2/120a/cached_ops/trtllm_comm"
WORKSPACE = {"FLASHINFER_WORKSPACE_DIR": "/root/.cache/flashinfer/0.6.2/120a"}
PATCHED_LATER = {"name": "jit/comm.py", "path": "/fi/jit/comm.py", "modified_at": 200.0, "changed_at": 200.0}


def process(pid: int = 11, **facts: Any) -> dict[str, Any]:
    return {"pid": pid, "user": "serve", "server": "sglang", "venv": "/opt/serve", "place": "host", **facts}


def module(name: str = "trtllm_comm", version: str = "0.6.2") -> dict[str, Any]:
    return {"name": name, "path": f"{CACHE}/{version}/120a/cached_ops/{name}", "version": version}


def judged(
    processes: list[dict[str, Any]] | None = None, callers: Any = (STOCK,), rule: str = "", **given: Any
) -> Finding:
    """Return the finding on a host where the gate alone was widened."""
    case = {
        "venv": {"fusion": {**FUSION, "callers": callers, "frameworks": {"sglang": "0.5.9"}}},
        "flashinfer": {"constants": WORKSPACE},
        "facts": {"processes": processes, **given},
    }
    found = judge_host(target(case), facts(case))
    return next(one for one in found if one.rule == (rule or "fusion-unsafe-patch"))


OFF = "serves from this environment, and by its gates and arguments does not call the fused kernels."
OLDER = "serves from this environment, from before its files changed; what it calls is not known."
NOT_KNOWN = "serves from this environment; whether it calls the fused kernels is not known."


@pytest.mark.parametrize(
    ("processes", "callers", "said"),
    [
        (None, (STOCK,), "It was not examined what serves."),
        ([], (STOCK,), "No serving process was seen."),
        ([process(server=None)], (STOCK,), "No serving process was seen."),
        ([process()], (STOCK,), f"sglang 0.5.9 (process 11) {OFF}"),
        ([process(launcher=7), process(12, launcher=7)], (STOCK,), f"sglang 0.5.9 (process 7) {OFF}"),
        ([process(), process(12)], (STOCK,), f"sglang 0.5.9 (processes 11, 12) {OFF}"),
        (
            [process(flags=FUSES)],
            (OPEN,),
            "sglang 0.5.9 (process 11) serves from this environment, and calls the fused kernels.",
        ),
        ([process(flags={"--tp": "1"})], (OPEN,), f"sglang 0.5.9 (process 11) {OFF}"),
        ([process(flags={"--config": ""})], (OPEN,), f"sglang 0.5.9 (process 11) {NOT_KNOWN}"),
        ([process(server="vllm")], (OPEN,), f"vllm (process 11) {NOT_KNOWN}"),
        (
            [process(), process(12, server="vllm")],
            (STOCK,),
            f"sglang 0.5.9 (process 11) {OFF[:-1]}; vllm (process 12) {NOT_KNOWN}",
        ),
        (
            [process(venv="/opt/other")],
            (STOCK,),
            "Nothing that was seen serves from this environment: sglang (process 11) serves from /opt/other.",
        ),
        ([process(venv=None)], (STOCK,), "sglang (process 11) serves; from which environment is not known."),
        (
            [process(started_at=100.0, flags=FUSES, files=[PATCHED_LATER])],
            (OPEN,),
            f"sglang 0.5.9 (process 11) {OLDER}",
        ),
    ],
)  # fmt: skip
def test_who_is_affected_now(processes: Any, callers: Any, said: str) -> None:
    message = judged(processes, callers).message
    assert message.endswith(f"below 0.6.17. {said}")


def test_who_is_affected_where_not_every_process_could_be_read() -> None:
    found = judged([], processes_unread=["process 7 of root: EACCES"])
    assert found.message.endswith(" No serving process was seen, and not every process could be looked at.")


def test_the_plain_kernels_and_the_fused_ones_are_told_apart_in_fusion_patched_too() -> None:
    case = {
        "venv": {"fusion": {**FUSION, "verdict": "patched", "guards": 0, "callers": [OPEN]}},
        "flashinfer": {"verified": True},
        "facts": {"processes": [process(flags=FUSES)]},
    }
    (found,) = (one for one in judge_host(target(case), facts(case)) if one.rule == "fusion-patched")
    assert found.severity == "error"
    assert found.message.endswith("serves from this environment, and calls the fused kernels.")


def moves(found: Finding) -> list[str]:
    return [one for one in found.remedy if one.startswith(("mv ", "Move what was built"))]


def test_the_cache_is_that_of_who_serves() -> None:
    cache = {"path": CACHE, "user": "serve", "exists": True, "modules": [module(), module(version="0.5.3")]}
    login = {"path": "/root/.cache/flashinfer", "exists": True, "modules": []}
    assert moves(judged([process()], caches=[login, cache])) == [f"mv {BUILT} {BUILT}.unsafe  # its build"]


@pytest.mark.parametrize(
    "cache", [{"exists": False}, {"exists": True}, {"exists": True, "modules": [module("norm")]}]
)
def test_no_step_where_nothing_was_built(cache: dict[str, Any]) -> None:
    assert moves(judged([process()], caches=[{"path": CACHE, "user": "serve", **cache}])) == []


def test_a_cache_that_could_not_be_read_is_moved_whole() -> None:
    cache = {"path": CACHE, "user": "serve", "exists": None, "error": "EACCES"}
    assert moves(judged([process()], caches=[cache])) == [f"mv {CACHE} {CACHE}.unsafe  # its build"]


def test_a_cache_in_a_container_is_said_to_be_there() -> None:
    cache = {"path": CACHE, "user": "serve", "pid": 11, "exists": True, "modules": [module()]}
    (step,) = moves(judged([process(place="container")], caches=[cache]))
    assert step.endswith("  # its build, in the container of process 11")


@pytest.mark.parametrize("name", ["FLASHINFER_WORKSPACE_BASE", "HOME"])
def test_where_no_cache_was_looked_at_the_servers_variables_tell(name: str) -> None:
    own = {"HOME": "/home/x", name: "/srv/fi"}
    assert moves(judged([process(environment=own)])) == [f"mv {BUILT} {BUILT}.unsafe  # its build"]


def test_where_nothing_tells_the_home_is_said_to_be_that_of_who_serves() -> None:
    assert moves(judged([process()])) == [
        "Move what was built out of .cache/flashinfer in the home of the user who serves, which may not be yours."
    ]


def test_the_cache_that_the_other_cuda_built_is_that_of_who_serves() -> None:
    case = {
        "venv": {"torch": {"version": "2.8.0", "cuda": "12.8"}, "toolchain": {"nvcc": "13.0"}},
        "facts": {
            "processes": [process()],
            "caches": [{"path": CACHE, "user": "serve", "exists": True, "modules": [module(), module("norm")]}],
        },
    }
    (found,) = (one for one in judge_host(target(case), facts(case)) if one.rule == "cuda-mismatch")
    folder = f"{CACHE}/0.6.2/120a/cached_ops"
    assert moves(found) == [f"mv {folder} {folder}.old  # its build"]


def test_the_two_ways_out_are_distinct_and_each_ends_with_a_restart() -> None:
    remedy = judged([process()]).remedy
    either, other = (next(at for at, one in enumerate(remedy) if one.startswith(w)) for w in ("Either ", "Or, "))
    restarts = [at for at, one in enumerate(remedy) if one.endswith("(restarts serving)")]
    assert restarts == [other - 1, len(remedy) - 1]
    assert either < other
    assert any("--force-reinstall" in one for one in remedy[either:other])
    assert any("==0.6.17" in one for one in remedy[other:])
    assert not any("==0.6.17" in one or "--force-reinstall" in one for one in remedy[:either])
    assert "name the release of sglang that pins it beside it" in remedy[other]


def test_a_release_that_supports_these_gpus_is_not_moved_from() -> None:
    case = {"venv": {"fusion": {**FUSION, "guards": 1}}, "flashinfer": {"version": "0.6.18"}}
    (found,) = (one for one in judge_host(target(case), facts(case)) if one.rule == "fusion-unsafe-patch")
    assert not any("0.6.17" in one or one.startswith(("Either", "Or")) for one in found.remedy)


@pytest.mark.parametrize("slug", sorted(EXAMPLES))
def test_who_uses_a_gpu_is_asked_before_what_needs_it_free(slug: str) -> None:
    remedy = example(slug)[0].remedy
    asked = [at for at, one in enumerate(remedy) if one.endswith("# stop these first")]
    needs = [at for at, one in enumerate(remedy) if step(one).mark in ("reboots the host", "ends MIG slices")]
    needs += [at for at, one in enumerate(remedy) if one.startswith("Install") and "driver" in one and asked]
    needs += [at for at, one in enumerate(remedy) if "then install" in one]
    assert not asked or not needs or max(asked) < min(needs)


@pytest.mark.parametrize("slug", sorted(EXAMPLES))
def test_a_forced_install_is_said_to_be_under_a_live_server(slug: str) -> None:
    for text in example(slug)[0].remedy:
        if "--force-reinstall" in text or " -e /" in text:
            assert step(text).note == "replaces files under a live server"
        assert "--dry-run" not in text or "live server" not in text


@pytest.mark.parametrize("slug", [slug for slug, rule in RULES.items() if rule.family == "gpu"])
def test_a_rule_on_gpus_refers_to_nothing_of_python(slug: str) -> None:
    assert not any("packaging.python.org" in one for one in RULES[slug].references)
