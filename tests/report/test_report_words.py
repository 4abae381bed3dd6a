"""The words of the table are the ones that the documentation explains, and rules stand by what they cost."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from support import runs

from fleetcheck.facts.fusion import _ON  # what is in force where a server uses what FlashInfer allows
from fleetcheck.facts.records import CsrcState, Device, Fusion, FusionEffective, FusionVerdict
from fleetcheck.report.rows import in_words
from fleetcheck.rules.catalog import RULES
from fleetcheck.rules.finding import weight

QUICKSTART = (Path(__file__).parents[2] / "docs" / "quickstart.md").read_text("utf-8")
GUESSED = runs.gpus(None, compute_capability=(), devices=(Device(compute_capability="12.0"),))


def fusions() -> list[Fusion]:
    """Return every verdict with all that can be in force with it."""
    refuses = ("refused", "absent")
    found = []
    for verdict in get_args(FusionVerdict):
        used = {_ON.get(verdict, "would-crash" if verdict in refuses else "unknown")}
        found += [Fusion(verdict=verdict, effective=effective) for effective in sorted(used | {"off", "unknown"})]
    assert {one.effective for one in found} == set(get_args(FusionEffective))
    return found


def test_every_word_on_the_fusion_is_explained_and_no_other() -> None:
    table = QUICKSTART.partition("| FUSION | means |")[2].partition("\n\n")[0]
    explained = set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) | set(
        re.findall("Narrow: `([^`]+)`", table)
    )
    shown = {in_words(one, runs.gpus(), short=short) for one in fusions() for short in (False, True)}
    assert explained == shown


def test_what_rests_on_guessed_gpus_is_an_explained_word_with_an_if() -> None:
    for one in fusions():
        for short in (False, True):
            known, guessed = (in_words(one, gpus, short=short) for gpus in (runs.gpus(), GUESSED))
            assert guessed.replace(" if 12.0", "") in (known, f"{known}, {one.verdict}")
            named = one.verdict in guessed or guessed.startswith("would-crash")
            assert (" if 12.0" in guessed) == (
                named and one.verdict not in ("absent", "unreadable", "unknown")
            ) or (guessed == "would-crash if 12.0")
    assert "`supported if 12.0`" in QUICKSTART
    assert "`if as expected`" in QUICKSTART


def test_every_state_of_the_sources_is_explained() -> None:
    (row,) = re.findall(r"^\| CSRC \|.*", QUICKSTART, re.MULTILINE)
    assert set(get_args(CsrcState)) <= set(re.findall("`([a-z]+)`", row))


def test_a_guess_holds_nothing_of_a_host_but_numbers() -> None:
    odd = tuple(Device(compute_capability=text) for text in ("|a|", "<b>", "12.0", "9.0", "12.0\n"))
    gpus = runs.gpus(None, compute_capability=(), devices=odd)
    assert in_words(Fusion(verdict="supported"), gpus, short=True) == "supported if 12.0,9.0, use?"


ORDER = """
fusion-unsafe-patch fusion-would-crash

smi-hung smi-missing gpu-missing gpu-fault gpu-count gpu-recovery gpu-unreadable
driver-mismatch driver-unloaded driver-proprietary

venv-missing venv-broken venv-unreadable venv-none activate-mismatch import-failed
flashinfer-missing flashinfer-mixed flashinfer-remnant companion-mismatch
csrc-missing csrc-incomplete csrc-unreadable
nvcc-missing nvcc-too-old torch-lacks-arch arch-list-excludes-gpu

csrc-unexpected csrc-running-elsewhere env-edited

csrc-decoy csrc-hardcoded

driver-version gpu-name compute-capability expectation-unmet
"""
"""The rules that are errors, by what they cost: each paragraph before the next."""


def test_errors_stand_by_what_they_cost() -> None:
    assert sorted(ORDER.split()) == sorted(slug for slug, rule in RULES.items() if rule.severity == "error")
    places = [{weight(slug) for slug in paragraph.split()} for paragraph in ORDER.split("\n\n")]
    assert all(max(one) < min(other) for one, other in pairwise(places))


@pytest.mark.parametrize("slug", ["", "of-another-version", "fusion", "\x1b[31m" * 100])
def test_a_rule_that_nobody_knows_comes_last(slug: str) -> None:
    assert weight(slug) == max(map(weight, RULES))
