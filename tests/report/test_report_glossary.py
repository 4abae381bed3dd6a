"""The list of words on the page: each that the page shows is explained, and none that it does not show."""

from __future__ import annotations

import html as markup
import re
from typing import Any, get_args

import pytest
from support import mixed_fleet, runs

from fleetcheck.agent.evidence import OUTCOMES
from fleetcheck.facts.records import CsrcState, Device, FusionEffective, FusionVerdict, GpuState, Venv, VenvState
from fleetcheck.report import html
from fleetcheck.report.rows import MOVED, OPEN
from fleetcheck.rules.finding import Waived
from fleetcheck.run import Run

LIST = re.compile(r'<details class="glossary">.*?</details>', re.DOTALL)
KINDS = ("NV4", "NV18", "PIX", "PSB", "PXB", "PHB", "NODE", "SOC", "SYS")


def words(run: Run) -> list[str]:
    (found,) = LIST.findall(html.render(run))
    return [markup.unescape(word) for word in re.findall(r"<dt>(.*?)</dt>", found)]


def one(**more: Any) -> Run:
    return runs.run(runs.host("a", **more))


def elsewhere(run: Run) -> str:
    """Return what the page shows but for the list: its own text, and the facts that it carries."""
    text = LIST.sub("", html.render(run))
    text = re.sub(r"<(style|script)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    return markup.unescape(text) + run.model_dump_json()


@pytest.mark.parametrize("run", [mixed_fleet.fleet(40), runs.every_kind(), one()], ids=["mixed", "every", "one"])
def test_no_word_is_explained_that_the_page_does_not_show(run: Run) -> None:
    shown = elsewhere(run)
    told = words(run)
    assert len(told) == len(set(told)) > 5
    for entry in told:
        for word in re.sub(r" \(.*\)$", "", entry).split(", "):
            assert word in shown, word


@pytest.mark.parametrize("verdict", get_args(FusionVerdict))
def test_each_verdict_on_the_fusion_is_explained_where_it_stands(verdict: str) -> None:
    told = words(one(venvs=(runs.venv(verdict=verdict, effective="unknown"),)))
    assert {"unreadable": "unreadable (Fusion)"}.get(verdict, verdict) in told
    others = {*get_args(FusionVerdict), "unreadable (Fusion)"} - {verdict, "unknown", "unreadable (Fusion)"}
    assert not others & set(told)
    assert (OPEN in told) == (verdict != "unknown")


@pytest.mark.parametrize("effective", get_args(FusionEffective))
def test_each_word_on_what_is_in_force_is_explained_where_it_stands(effective: str) -> None:
    told = words(one(venvs=(runs.venv(verdict="supported", effective=effective),)))
    assert effective in told
    assert not (set(get_args(FusionEffective)) - {effective}) & set(told)


@pytest.mark.parametrize("state", get_args(CsrcState))
def test_each_state_of_the_sources_is_explained_where_it_stands(state: str) -> None:
    told = words(one(venvs=(runs.venv(csrc_state=state),)))
    assert (state if state == "unknown" else f"{state} (csrc)") in told
    assert MOVED not in told
    assert len([word for word in told if word.endswith(" (csrc)")]) == (state != "unknown")
    assert MOVED in words(one(venvs=(runs.venv(csrc_state=state, csrc_dir="/elsewhere"),)))


@pytest.mark.parametrize("state", [state for state in get_args(GpuState) if state != "ok"])
def test_each_state_of_the_gpus_is_explained_where_it_stands(state: str) -> None:
    devices = (Device(index=0, state="fault"),) if state == "fault" else ()
    told = words(one(gpus=runs.gpus(8 if state == "missing" else None, state=state, devices=devices)))
    assert {"fault": "faulty", "missing": "missing (GPUs)"}.get(state, state) in told
    assert state not in words(one())


@pytest.mark.parametrize("state", [state for state in get_args(VenvState) if state != "ok"])
def test_each_state_of_an_environment_is_explained_where_it_stands(state: str) -> None:
    told = words(one(venvs=(Venv.model_validate({"path": "/v", "state": state}),)))
    plain = {"no-flashinfer": "none (FlashInfer)", "remnant": "remnant"}
    assert plain.get(state, f"venv {state}") in told
    assert not [word for word in words(one()) if word.startswith("venv ")]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_link_is_explained_where_it_stands(kind: str) -> None:
    told = words(one(gpus=runs.gpus(2, link=kind, links={"0-1": kind})))
    assert [word for word in told if word in KINDS] == [kind]


def test_several_kinds_of_nvlink_are_one_word() -> None:
    assert "NV4, NV18" in words(one(gpus=runs.gpus(3, links={"0-1": "NV18", "0-2": "NV4", "1-2": "SYS"})))


@pytest.mark.parametrize("outcome", OUTCOMES[1:])
def test_each_reason_why_there_was_no_look_is_explained_where_it_stands(outcome: Any) -> None:
    told = words(runs.run(runs.host("a", outcome)))
    assert [word for word in told if word in OUTCOMES] == [outcome]
    assert "-" in told


def test_marks_are_explained_where_they_stand() -> None:
    found = (runs.finding("a", "x"), runs.finding("a", "y", cause="x"))
    assert {"explained", "+1", "waived", "decoy"} & set(
        words(runs.run(runs.host("a", "findings"), findings=found))
    ) == {"explained"}
    more = (
        *found,
        runs.finding("a", "csrc-decoy", waived=Waived(reason="r", until="2031-01-01")),
        runs.finding("a", "z"),
    )
    assert {"explained", "+1", "waived", "decoy"} <= set(
        words(runs.run(runs.host("a", "findings"), findings=more))
    )


def test_a_page_without_hosts_has_no_list() -> None:
    text = html.render(runs.run())
    assert 'id="words"' not in text and "#words" not in text
