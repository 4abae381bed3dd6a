"""A whole host judged: roots and consequences, quiet on healthy hosts, and never a crash."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.healthy_host import facts, target

from fleetcheck.facts.records import Fact, HostFacts
from fleetcheck.inventory.model import Expect, Target, VenvItem
from fleetcheck.rules.catalog import RULES
from fleetcheck.rules.finding import rank
from fleetcheck.rules.judge import judge_host

HOSTS: dict[str, list[dict[str, Any]]] = yaml.safe_load((Path(__file__).parent / "hosts.yaml").read_text("utf-8"))


@pytest.mark.parametrize("case", HOSTS["healthy"], ids=lambda case: case["name"])
def test_a_healthy_host_is_quiet(case: dict[str, Any]) -> None:
    loud = [finding for finding in judge_host(target(case), facts(case)) if finding.severity != "info"]
    assert not loud


@pytest.mark.parametrize("case", HOSTS["causes"], ids=lambda case: case["name"])
def test_one_root_and_its_consequences(case: dict[str, Any]) -> None:
    found = judge_host(target(case), facts(case))
    roots = [finding.rule for finding in found if finding.cause is None]
    folded = sorted({f"{finding.cause}: {finding.rule}" for finding in found if finding.cause is not None})
    assert roots == case["roots"]
    assert folded == case["folded"]


def test_nothing_known_says_nothing() -> None:
    expect = Expect(gpus=8, flashinfer=">=0.6", compute_capability="12.0", driver=">=580")
    assert judge_host(Target(name="gpu01", expect=expect), HostFacts()) == ()


def test_sorted_by_severity_then_rule() -> None:
    case = HOSTS["causes"][0]
    found = judge_host(target(case), facts(case))
    keys = [(-rank(finding.severity), finding.rule) for finding in found]
    assert len(keys) > 3
    assert keys == sorted(keys)


WORDS = st.sampled_from(
    ["", "x", "0.6.2", "0.6.18rc7", "12.0", "9.0", "580.95.05", "/opt/serve", "/opt/serve/fi/data/csrc", "/",
     "~/v", "jit/comm.py", "jit/env.py", "/a b/it's", "\x1b[31m\n", "…" * 400, "."]
)  # fmt: skip
PATHS = st.sampled_from(["/opt/serve", "/opt/a b", "/opt/it's", "~/venv", "/opt/venvs/*", "/"])
RANGES = st.sampled_from([">=0.6.17", "==0.6.2", "0.6.18", "<1", ">=580.95.05", "3.12"])
SHA = st.sampled_from(["a" * 64, "b" * 64])


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Return values of a field's type. Texts are few, and those that rules look at, so that they meet."""
    if isinstance(annotation, type) and issubclass(annotation, Fact):
        return record(annotation)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return st.one_of(*map(values, args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=2)
    leaves: dict[Any, st.SearchStrategy[Any]] = {
        str: WORDS, int: st.integers(-1, 40), float: st.floats(0, 2e9), bool: st.booleans(),
        NoneType: st.none(), Any: WORDS,
    }  # fmt: skip
    return leaves[annotation]


def record(model: type[Fact]) -> st.SearchStrategy[Any]:
    """Return records of a kind with a random subset of their fields."""
    fields = {name: (values(field.annotation), field.is_required()) for name, field in model.model_fields.items()}
    return st.fixed_dictionaries(
        {name: strategy for name, (strategy, required) in fields.items() if required},
        optional={name: strategy for name, (strategy, required) in fields.items() if not required},
    ).map(model.model_validate)


EXPECTS = st.builds(
    Expect,
    gpus=st.none() | st.integers(0, 9),
    gpu_name=st.none() | st.just("x"),
    compute_capability=st.none() | st.just("12.0"),
    csrc_dir=st.none() | PATHS,
    **dict.fromkeys(
        ("driver", "flashinfer", "sglang", "vllm", "torch_cuda", "nvcc", "venv_python"), st.none() | RANGES
    ),
    allreduce_fusion=st.sampled_from([None, "any", "required", "forbidden"]),
    link=st.none() | st.just("x"),
    files=st.none() | st.dictionaries(st.sampled_from(["jit/comm.py", "/opt/serve/fi/jit/env.py", ""]), SHA),
)
TARGETS = st.builds(
    Target,
    name=st.just("gpu01"),
    venvs=st.lists(
        st.sampled_from(["running", "usual"]) | st.builds(VenvItem, path=PATHS, expect=EXPECTS), max_size=3
    ).map(tuple),
    expect=EXPECTS,
)
HOST_FACTS = record(HostFacts)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(TARGETS, HOST_FACTS)
def test_no_host_makes_a_rule_raise(host: Target, known: HostFacts) -> None:
    found = judge_host(host, known)
    by_rule: dict[str, int] = {}
    for finding in found:
        by_rule[finding.rule] = max(rank(finding.severity), by_rule.get(finding.rule, -1))
    for finding in found:
        assert finding.rule in RULES
        assert finding.message
        assert len(finding.message) < 4000
        finding.model_dump_json()
        if finding.cause is not None:
            root = [other for other in found if other.rule == finding.cause and other.cause is None]
            assert root, finding
            assert by_rule[finding.cause] >= rank(finding.severity)


def test_a_path_cannot_break_out_of_a_step() -> None:
    path = "/opt/$(touch x); 'y' `z`"
    case = {
        "venvs": [{"path": path}],
        "venv": {"path": path, "item": path},
        "flashinfer": {"csrc_state": "missing"},
    }
    (finding,) = judge_host(target(case), facts(case))
    (command,) = [step for step in finding.remedy if "-m pip install" in step]
    assert shlex.split(command)[0] == f"{path}/bin/python"
