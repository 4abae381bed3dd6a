"""Run documents read again: what is none is told in one line each, and several become one by a clear rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import runs

from fleetcheck.errors import InputError
from fleetcheck.report import formats
from fleetcheck.report.documents import merge, narrowed, read
from fleetcheck.run import Run

RUN = runs.every_kind()


def problems(path: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(str(path))
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("name", ["json", "jsonl"])
def test_what_was_written_reads_back_as_the_run(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run"
    path.write_text(formats.render(RUN, name))
    again = read(str(path))
    assert sorted(map(repr, again.findings)) == sorted(map(repr, RUN.findings))
    assert again.model_copy(update={"findings": RUN.findings}) == RUN


def test_lines_without_a_summary_are_an_interrupted_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("".join(formats.render(RUN, "jsonl").splitlines(keepends=True)[:-1]))
    run = read(str(path))
    assert (run.run.complete, run.run.finished) == (False, None)
    assert run.hosts == RUN.hosts


def test_the_later_line_of_a_host_counts(tmp_path: Path) -> None:
    path = tmp_path / "run"
    early = runs.run(runs.host("a"), findings=(runs.finding("a", "old"),))
    late = runs.run(runs.host("a", "findings"), findings=(runs.finding("a", "new"),))
    lines = [formats.render(run, "jsonl").splitlines() for run in (early, late)]
    path.write_text("\n".join([*lines[0][:-1], *lines[1][1:]]))
    assert read(str(path)) == late


def test_a_newer_document_with_more_keys_is_read_and_its_counts_are_made_again(tmp_path: Path) -> None:
    document: Any = json.loads(formats.render(RUN, "json"))
    document["weather"] = document["hosts"][0]["weather"] = "fair"
    document["summary"]["ok"] = 1000
    path = tmp_path / "run"
    path.write_text(json.dumps(document))
    assert read(str(path)) == RUN


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(formats.render(RUN, "json")), **changes})


HOST = json.loads(formats.render(RUN, "json"))["hosts"][0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: not JSON: Expecting value"),
        ("{", ":1: not JSON: Expecting property name enclosed in double quotes"),
        ('{"a": 1,\n "b": }', ":2: not JSON: Expecting value"),
        ("[]", ": not a JSON object"),
        ("{}", ": not a run: it has no schema fleetcheck/run/1"),
        ("[" * 100_000, ": not JSON that can be read: nested too deeply"),
        (changed(schema="x"), ": its schema is 'x'; this version reads fleetcheck/run/1"),
        (changed(schema=["\x1b"]), ": its schema is ['\\x1b']; this version reads fleetcheck/run/1"),
        (changed(hosts=[HOST, HOST]), ": host gpu01.lab stands there twice"),
        (changed(hosts=[HOST]), ": a finding names the host gpu02.lab, which is not among its hosts"),
        (changed(hosts=7), ": hosts: Input should be a valid tuple"),
        (changed(findings=None), ": findings: Input should be a valid tuple"),
        ('{"type": "run"}\n{"type": "host"}', ":2: not a line of a run (type 'host')"),
        ('{"type": "run"}\nnothing', ":2: not JSON: Expecting value"),
    ],
)  # fmt: skip
def test_what_is_no_run_is_told_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    assert problems(path) == [f"{path}{says}"]


def test_all_that_is_wrong_is_told_but_not_without_end(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(changed(hosts=[{**HOST, "outcome": "passed", "gpus": {"state": "good"}}, *[{}] * 10]))
    told = problems(path)
    assert told[0].startswith(f"{path}: hosts.0.outcome: Input should be 'checked', ")
    assert told[1].startswith(f"{path}: hosts.0.gpus.state: Input should be 'hung', ")
    assert len(told) == 6
    assert told[-1].startswith(f"{path}: and ")


@pytest.mark.parametrize(
    ("content", "says"), [(b"\xff\xfe", "not a run: not UTF-8 text"), (None, "cannot be read: No such file")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_bytes(content)
    (told,) = problems(path)
    assert told.startswith(f"{path}: {says}")


def test_a_folder_is_no_run(tmp_path: Path) -> None:
    assert problems(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]


@pytest.mark.parametrize(
    "text", ['"\\udcff"', '"\\u0000"', '"\\u001b[2J"', "1e999", "NaN", '{"\\ud800": "\\udfff"}']
)
def test_what_json_can_hold_harms_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(changed().replace('"seen": {"pid": 7}', f'"seen": {text}'))
    assert text in path.read_text()
    run = read(str(path))
    for name in formats.FORMATS:
        formats.render(run, name).encode()


def site(name: str, *hosts: Any, **more: Any) -> tuple[str, Run]:
    run = runs.run(*hosts, findings=more.pop("findings", ()))
    return name, run.model_copy(update={"run": run.run.model_copy(update=more)})


def test_one_run_is_itself() -> None:
    assert merge([("a", RUN)]) is RUN


def test_several_sites_are_one() -> None:
    outlier = runs.finding(None, "fleet-outlier")
    east = site(
        "east", runs.host("e1", "findings"), id="1", inventory="east.yaml", findings=(runs.finding("e1"), outlier)
    )
    west = site(
        "west", runs.host("w1"), runs.host("w2", "timeout"), id="2", inventory="west.yaml",
        started="2029-12-31T23:00:00.000Z", findings=(outlier,), complete=False,
    )  # fmt: skip
    run = merge([east, west])
    assert [host.name for host in run.hosts] == ["e1", "w1", "w2"]
    assert run.findings == (runs.finding("e1"), outlier)
    assert (run.summary.hosts, run.summary.ok, run.summary.findings, run.summary.not_checked) == (3, 1, 1, 1)
    assert (run.run.id, run.run.inventory, run.run.complete) == ("1+2", "east.yaml, west.yaml", False)
    assert (run.run.started, run.run.finished) == ("2029-12-31T23:00:00.000Z", "2030-01-01T00:00:09.000Z")


def test_a_host_that_reads_the_same_twice_is_taken_once() -> None:
    first = site("a", runs.host("x", seconds=1.0), runs.host("y"))
    again = site("b", runs.host("x", seconds=2.0, attempts=3))
    assert merge([first, again]).hosts == first[1].hosts


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (runs.host("x", "timeout"), ()), (runs.host("x", gpus=runs.gpus(7)), ()),
        (runs.host("x"), (runs.finding("x"),)), (runs.host("x", address="192.0.2.9"), ()),
    ],
)  # fmt: skip
def test_a_host_that_reads_differently_is_a_conflict_that_names_both_files(other: Any, found: Any) -> None:
    with pytest.raises(InputError) as caught:
        merge([site("a.json", runs.host("x")), site("b.json", other, findings=found)])
    assert [str(problem) for problem in caught.value.problems] == [
        "report: a.json and b.json tell different things of the host x; leave one of them out"
    ]


def test_one_host_alone() -> None:
    run = narrowed(RUN, "gpu18.lab")
    assert [host.name for host in run.hosts] == ["gpu18.lab"]
    assert {finding.rule for finding in run.findings} == {"csrc-missing", "env-edited"}
    assert (run.summary.hosts, run.summary.findings) == (1, 1)
    with pytest.raises(KeyError):
        narrowed(RUN, "gpu99")
