"""The catalogue: every rule is explained, shown by an example, documented, and part of no circle."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from fleetcheck.cli import rules as list_command
from fleetcheck.cli.main import run
from fleetcheck.rules import catalog
from fleetcheck.rules.catalog import FAMILIES, RULES
from fleetcheck.rules.examples import EXAMPLES, RUNS, example
from fleetcheck.rules.finding import SEVERITIES
from fleetcheck.rules.pages import render, section
from fleetcheck.rules.policy import WORDS

ROOT = Path(__file__).parents[2]
PROMISED = (
    "csrc-missing", "csrc-incomplete", "csrc-unexpected", "csrc-decoy", "env-edited", "venv-missing",
    "venv-unreadable", "venv-broken", "venv-none", "activate-mismatch", "flashinfer-missing", "flashinfer-remnant",
    "package-modified", "fusion-refused", "fusion-unsafe-patch", "fusion-patched", "fusion-gate-unreadable",
    "compute-capability", "gpu-count", "gpu-missing", "gpu-fault", "gpu-name", "driver-version", "driver-mismatch",
    "driver-unloaded", "smi-missing", "smi-hung", "expectation-unmet", "expectation-unchecked", "waiver-expired",
    "waiver-unused", "fleet-outlier", "fleet-suspicious",
    "framework-patched", "companion-mismatch", "flashinfer-mixed", "csrc-shadowed", "csrc-outside-venv",
    "fusion-would-crash", "fusion-prebuilt-wins", "basis-disagrees", "cubins-lack-arch",
)  # fmt: skip


def test_promised_names() -> None:
    assert set(PROMISED) <= set(RULES)
    assert list(RULES) == sorted(RULES)


def test_every_rule_that_is_written_is_in_the_catalogue() -> None:
    written = [
        decorator.args[0].value
        for path in Path(catalog.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id in ("rule", "fleet_rule")
        if isinstance(decorator.args[0], ast.Constant)
    ]
    assert sorted(written) == list(RULES)


@pytest.mark.parametrize("slug", RULES)
def test_a_rule_is_whole(slug: str) -> None:
    rule = RULES[slug]
    assert rule.slug == slug
    assert rule.family in FAMILIES
    assert rule.severity in SEVERITIES
    assert rule.summary.endswith(".")
    assert len(rule.explanation) > 60
    assert rule.explanation != rule.summary
    assert len(rule.remedy) > 30
    assert rule.references
    assert all(one.startswith("https://") or (ROOT / one).is_file() for one in rule.references)
    # An installed program has no docs folder: a finding leads to what is there.
    assert rule.reference == rule.references[0] or rule.reference == f"fleetcheck rules {slug}"
    assert not rule.reference.startswith("docs/")
    for cause in rule.causes:
        explained, _, key = cause.partition("/")
        assert explained in RULES
        assert explained != slug
        assert not key or key in WORDS or key in ("gate", "companion")


def test_no_circle_of_causes() -> None:
    explains = {slug: {cause.partition("/")[0] for cause in rule.causes} for slug, rule in RULES.items()}

    def visit(slug: str, path: tuple[str, ...]) -> None:
        assert slug not in path, path
        for other in explains[slug]:
            visit(other, (*path, slug))

    for slug in RULES:
        visit(slug, ())


@pytest.mark.parametrize("slug", RULES)
def test_its_example_fires(slug: str) -> None:
    first, *others = example(slug)
    assert first.rule == slug
    assert first.cause is None
    assert all(other.cause == slug or other.severity == "info" for other in others), others
    assert {*EXAMPLES, *RUNS} == set(RULES)


def test_the_page_is_the_catalogue() -> None:
    page = (ROOT / "docs" / "rules.md").read_text("utf-8")
    assert page == render(), "docs/rules.md is old; write it again from fleetcheck.rules.pages.render()"


@pytest.mark.parametrize("slug", RULES)
def test_a_section_holds_all_of_a_rule(slug: str) -> None:
    text, rule = section(RULES[slug]), RULES[slug]
    assert text in render()
    for part in (rule.summary, rule.explanation, rule.remedy, *rule.references, *example(slug)[0].remedy):
        assert part in text


def test_command_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules"]) == 0
    assert listed(capsys) == sorted(RULES, key=lambda slug: (FAMILIES.index(RULES[slug].family), slug))


def listed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the rules of a listing, which must be no wider than a terminal."""
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    return [line.split()[0] for line in out.splitlines() if re.match("  [a-z]", line)]


def test_command_lists_a_family_and_what_matches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "csrc"]) == 0
    assert listed(capsys) == [slug for slug, rule in RULES.items() if rule.family == "csrc"]
    assert run(["rules", "gpu-*"]) == 0
    assert listed(capsys) == [slug for slug in RULES if slug.startswith("gpu-")]
    assert run(["rules", "waiver-*", "--format", "json"]) == 0
    assert [one["rule"] for one in json.loads(capsys.readouterr().out)] == ["waiver-expired", "waiver-unused"]


def test_command_lists_in_the_width_of_a_narrow_terminal() -> None:
    text = list_command.listed(list(RULES.values()), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert all(rule.summary in " ".join(text.split()) for rule in RULES.values())


@pytest.mark.parametrize("slug", RULES)
def test_command_explains_each(slug: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", slug]) == 0
    out = capsys.readouterr().out
    words, rule = " ".join(out.split()), RULES[slug]
    for part in (rule.summary, rule.explanation, rule.remedy, *rule.references, *example(slug)[0].remedy):
        assert " ".join(part.split()) in words


def test_command_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "--format", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert [one["rule"] for one in whole] == list(RULES)
    assert run(["rules", "smi-hung", "--format", "json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert one == next(rule for rule in whole if rule["rule"] == "smi-hung")
    assert one["example"]["finding"]["rule"] == "smi-hung"
    assert one["references"] == list(RULES["smi-hung"].references)


def test_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "csrc-mising"]) == 2
    assert "did you mean csrc-missing" in capsys.readouterr().err
    assert run(["rules", "zzz"]) == 2
    assert "lists all" in capsys.readouterr().err
