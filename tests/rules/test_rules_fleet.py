"""Rules over a whole run against their data files, and how selection, levels and waivers act on findings."""

from __future__ import annotations

import io
import json
from datetime import date
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.healthy_host import facts, target
from test_rules_cases import KINDS, load, matches
from test_rules_judge import HOST_FACTS, HOSTS

from fleetcheck import baseline
from fleetcheck.agent.evidence import Evidence
from fleetcheck.differences import fold
from fleetcheck.errors import InputError
from fleetcheck.facts.records import HostFacts, System, kind_of
from fleetcheck.inventory.load import load as load_inventory
from fleetcheck.inventory.model import Target, Waiver
from fleetcheck.inventory.nodes import expand
from fleetcheck.judge import Policy, new_run, pipeline
from fleetcheck.report import fold as page
from fleetcheck.rules import outliers
from fleetcheck.rules.catalog import RULES
from fleetcheck.rules.choice import Choice, choose, named
from fleetcheck.rules.finding import Finding
from fleetcheck.rules.judge import judge_fleet, judge_host
from fleetcheck.rules.rule import Member

DAY = date(2026, 11, 30)
CASES = [(slug, case) for slug, rule in RULES.items() if rule.fleet_check is not None for case in load(slug)]


def members(entry: dict[str, Any]) -> list[Member]:
    """Return the hosts of one entry: healthy ones, with what it gives laid over them."""
    known = facts(entry)
    return [
        Member(
            name, tuple(entry.get("groups", ())), entry.get("outcome", "checked"), entry.get("stage"),
            entry.get("detail"), known.gpus, known.toolkits, known.venvs,
        )
        for name in expand(entry["names"])
    ]  # fmt: skip


def judged(case: dict[str, Any]) -> tuple[Finding, ...]:
    """Return what is found in the run of a case."""
    hosts: list[Member] = []
    found: dict[str, tuple[Finding, ...]] = {}
    for entry in case["hosts"]:
        laid = {**entry, "facts": {"toolkits": entry.get("toolkits", [])}}
        for one in members(laid):
            hosts.append(one)
            found[one.name] = tuple(
                Finding.model_validate({"severity": "error", "host": one.name, "message": "m", **finding})
                for finding in entry.get("findings", ())
            )
    waivers = [Waiver.model_validate(waiver) for waiver in case.get("waivers", ())]
    return judge_fleet(hosts, found, waivers=waivers, day=DAY, choice=Choice(ignore=tuple(case.get("ignore", ()))))


@pytest.mark.parametrize(("slug", "case"), CASES, ids=[f"{slug}: {case['name']}" for slug, case in CASES])
def test_case(slug: str, case: dict[str, Any]) -> None:
    assert case["kind"] in KINDS
    found = [finding for finding in judged(case) if finding.rule == slug]
    wanted = case.get("fires", [])
    assert bool(wanted) == (case["kind"] == "fires")
    assert len(found) == len(wanted), [finding.message for finding in found]
    for one in wanted:
        assert any(matches(finding, one) for finding in found), (one, [item.model_dump() for item in found])
    for finding in found:
        assert finding.message.endswith(".")
        assert "None" not in finding.message
        assert finding.remedy
        assert finding.reference == RULES[slug].reference
        json.dumps(finding.model_dump(mode="json"))


def test_hosts_that_differ_alike_read_the_same() -> None:
    case = next(case for slug, case in CASES if slug == "fleet-outlier" and case["name"].startswith("a rolling"))
    found = judged(case)
    assert {finding.host for finding in found} == {"gpu11", "gpu12"}
    assert len({(finding.message, finding.remedy, str(finding.seen)) for finding in found}) == 1


def test_only_plain_facts_are_compared() -> None:
    assert frozenset(outliers.ALLOWED) == outliers.PLAIN
    assert all(kind_of(model, field) == "plain" for model, field in outliers.ALLOWED)
    assert kind_of(System, "boot_time") == "volatile"


@pytest.mark.parametrize(
    ("pattern", "rules"),
    [
        ("gpu-count", {"gpu-count"}),
        ("waiver-*", {"waiver-expired", "waiver-unused"}),
        ("fleet", {"fleet-outlier", "fleet-suspicious"}),
        ("*", set(RULES)),
        ("nothing-*", set()),
    ],
)
def test_a_pattern_names_rules(pattern: str, rules: set[str]) -> None:
    assert named(pattern) == rules


def test_a_family_is_no_glob() -> None:
    assert named("gpu") == {slug for slug, rule in RULES.items() if rule.family == "gpu"}
    assert "smi-hung" in named("gpu")
    assert "smi-hung" not in named("gpu-*")


def test_what_is_ignored_is_taken_from_what_is_selected() -> None:
    choice = choose(["gpu,csrc-missing", "venv-*"], ["gpu-*", "venv-none"])
    assert {"csrc-missing", "venv-broken", "smi-hung"} <= choice.rules
    assert choice.rules.isdisjoint({"gpu-count", "venv-none", "env-edited"})


@pytest.mark.parametrize(
    ("select", "ignore", "says"),
    [
        (["gpu-cuont"], [], "did you mean gpu-count"),
        ([], ["zzz"], "lists all"),
        (["gpu"], ["*"], "no rule is left"),
        ([""], [], "there is no rule"),
    ],
)
def test_a_pattern_that_means_nothing_is_an_error(select: list[str], ignore: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        choose(select, ignore)


def test_the_nearest_level_counts() -> None:
    rule, levels = RULES["csrc-missing"], {"csrc": "info", "csrc-*": "warning", "csrc-missing": "critical"}
    choice = Choice()
    assert choice.severity(rule, "error", {}) == "error"
    assert choice.severity(rule, "error", levels) == "critical"
    assert choice.severity(RULES["csrc-decoy"], "warning", levels) == "warning"
    assert choice.severity(RULES["env-edited"], "error", levels) == "info"
    assert choice.severity(RULES["gpu-count"], "error", levels) == "error"
    assert choice.severity(rule, "error", {"csrc": "ignore"}) is None


@pytest.mark.parametrize("case", HOSTS["healthy"], ids=lambda case: case["name"])
def test_eight_healthy_hosts_of_one_kind_are_quiet(case: dict[str, Any]) -> None:
    hosts = members({**case, "names": "gpu[01-08]"})
    alone = {one.name: judge_host(target(case), facts(case)) for one in hosts}
    found = [*judge_fleet(hosts, alone, waivers=(), day=DAY), *alone["gpu01"]]
    assert not [finding for finding in found if finding.severity != "info"]


def test_healthy_hosts_of_many_kinds_are_no_outliers_of_each_other() -> None:
    hosts = [
        member
        for number, case in enumerate(HOSTS["healthy"])
        for member in members(
            {**case, "names": f"gpu[{number * 8 + 1:03}-{number * 8 + 8:03}]", "groups": [f"kind{number}"]}
        )
    ]
    assert not judge_fleet(hosts, {}, waivers=(), day=DAY)


def results(known: list[HostFacts]) -> list[Any]:
    """Return a host of a run for each of these facts."""
    hosts = []
    for number, facts_of_one in enumerate(known):
        target_of_one = Target(name=f"gpu{number}")
        *_, last = pipeline(
            [target_of_one], [(target_of_one, Evidence(f"gpu{number}", "checked"))], new_run("t"), Policy()
        )
        (host,) = last.run.hosts  # type: ignore[union-attr]
        update = {name: getattr(facts_of_one, name) for name in ("system", "gpus", "toolkits", "venvs")}
        hosts.append(host.model_copy(update=update))
    return hosts


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(HOST_FACTS, min_size=1, max_size=3))
def test_no_facts_make_the_fleet_s_part_raise(known: list[HostFacts]) -> None:
    hosts = results(known)
    looks = [
        Member(f"{one.name}-{copy}", ("rtx",), "checked", None, None, one.gpus, one.toolkits, one.venvs)
        for one in hosts
        for copy in range(6)
    ]
    for finding in judge_fleet(looks, {}, waivers=(), day=DAY):
        finding.model_dump_json()
        assert len(finding.message) < 4000
    text = page.render(fold(hosts), wide=True, colour=False)
    assert text.replace("\n", "").isprintable()
    written = baseline.render(hosts, run="r")
    assert yaml.safe_load(written)["groups"]["baseline"].keys() <= {"hosts", "expect", "venvs"}
    assert written.isascii()
    for venv in {venv.path for one in hosts for venv in one.venvs}:
        assert not venv or venv.isprintable() or venv not in written


def test_a_baseline_of_any_healthy_host_loads() -> None:
    for case in HOSTS["healthy"]:
        (host,) = results([facts(case)])
        load_inventory("-", stdin=io.StringIO(baseline.render([host], run="r")))
