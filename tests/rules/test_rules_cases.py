"""Every rule against its data file: where it fires, where it does not, and where nothing is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.healthy_host import facts, target

from fleetcheck.rules.catalog import RULES
from fleetcheck.rules.finding import Finding
from fleetcheck.rules.judge import judge_host

DATA = Path(__file__).parent / "data"
KINDS = ("fires", "quiet", "unknown")
KEYS = {"name", "kind", "expect", "venvs", "facts", "gpus", "venv", "flashinfer", "fires"}
CHECKS = {"severity", "venv", "gpu", "expected", "seen", "basis", "cause", "says", "says_not", "remedy"}


def load(slug: str) -> list[dict[str, Any]]:
    """Return the cases of one rule."""
    path = DATA / f"{slug}.yaml"
    cases: list[dict[str, Any]] = yaml.safe_load(path.read_text("utf-8")) if path.exists() else []
    return cases


CASES = [(slug, case) for slug, rule in RULES.items() if rule.check is not None for case in load(slug)]


def matches(finding: Finding, wanted: dict[str, Any]) -> bool:
    """Return whether a finding is what a case wants of it."""
    values = json.loads(finding.model_dump_json())
    return (
        all(values[key] == wanted[key] for key in wanted if key not in ("says", "says_not", "remedy"))
        and wanted.get("says", "") in finding.message
        and ("says_not" not in wanted or wanted["says_not"] not in finding.message)
        and ("remedy" not in wanted or wanted["remedy"] in finding.remedy)
    )


@pytest.mark.parametrize(("slug", "case"), CASES, ids=[f"{slug}: {case['name']}" for slug, case in CASES])
def test_case(slug: str, case: dict[str, Any]) -> None:
    assert case.keys() <= KEYS
    found = [finding for finding in judge_host(target(case), facts(case)) if finding.rule == slug]
    wanted = case.get("fires", [])
    assert bool(wanted) == (case["kind"] == "fires")
    assert len(found) == len(wanted), [finding.message for finding in found]
    rest = list(found)
    for one in wanted:
        assert one.keys() <= CHECKS
        match = next((finding for finding in rest if matches(finding, one)), None)
        assert match is not None, (one, [finding.model_dump() for finding in rest])
        rest.remove(match)


@pytest.mark.parametrize("slug", RULES)
def test_every_rule_has_cases_of_each_kind(slug: str) -> None:
    kinds = {case["kind"] for case in load(slug)}
    assert kinds == set(KINDS)


def test_no_case_file_without_a_rule() -> None:
    assert {path.stem for path in DATA.glob("*.yaml")} == set(RULES)


@pytest.mark.parametrize(("slug", "case"), CASES, ids=[f"{slug}: {case['name']}" for slug, case in CASES])
def test_messages_are_one_plain_sentence(slug: str, case: dict[str, Any]) -> None:
    for finding in judge_host(target(case), facts(case)):
        assert finding.message.endswith(".")
        assert not finding.message.endswith("..")
        assert "\n" not in finding.message
        assert "None" not in finding.message
        assert "{" not in finding.message
        assert finding.host == "gpu01"
        assert finding.remedy
        assert all(step and "\n" not in step for step in finding.remedy)
        assert finding.reference == RULES[finding.rule].reference
