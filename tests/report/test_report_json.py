"""The JSON document: the shipped schema accepts what is written, and refuses what is not the document."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import pytest
from support import runs

from fleetcheck.agent.evidence import OUTCOMES, Evidence
from fleetcheck.facts.records import Cache, CacheLock
from fleetcheck.inventory.model import Target
from fleetcheck.report import json as document
from fleetcheck.report import schema
from fleetcheck.run import Run


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    shipped = json.loads(schema.shipped())
    jsonschema.Draft202012Validator.check_schema(shipped)
    return jsonschema.Draft202012Validator(shipped)


def test_the_shipped_schema_is_what_the_records_say() -> None:
    assert json.loads(schema.shipped()) == schema.run_schema()
    assert schema.shipped() == schema.text(schema.run_schema())


def test_every_outcome_verdict_and_severity_is_valid(validator: jsonschema.Draft202012Validator) -> None:
    run = runs.every_kind()
    written = json.loads(document.render(run))
    validator.validate(written)
    assert {host["outcome"] for host in written["hosts"]} == set(OUTCOMES)
    assert {host["verdict"] for host in written["hosts"]} == set(runs.VERDICTS)
    assert {found["severity"] for found in written["findings"]} == {"info", "warning", "error", "critical"}


def test_a_run_without_hosts_is_valid(validator: jsonschema.Draft202012Validator) -> None:
    validator.validate(json.loads(document.render(runs.run())))


def test_a_judged_run_is_valid(validator: jsonschema.Draft202012Validator) -> None:
    judge = pytest.importorskip("fleetcheck.judge")
    targets = [Target(name=f"h{number}") for number in range(len(OUTCOMES))]
    looks = [
        (
            target,
            Evidence(target.name, outcome, parts={"system": {"hostname": "h"}} if outcome == "checked" else {}),
        )
        for target, outcome in zip(targets, OUTCOMES, strict=True)
    ]
    *_, last = judge.pipeline(targets, iter(looks), judge.new_run("x"), judge.Policy())
    written = json.loads(document.render(last.run))
    validator.validate(written)
    assert [host["name"] for host in written["hosts"]] == [target.name for target in targets]


def broken(path: list[Any], value: Any) -> dict[str, Any]:
    written: Any = json.loads(document.render(runs.every_kind()))
    place = written
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return written  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["schema"], "fleetcheck/run/2"), (["run", "id"], None), (["hosts", 0, "verdict"], "fine"),
        (["hosts", 0, "outcome"], "passed"), (["hosts", 0, "gpus", "state"], "good"), (["findings"], None),
        (["findings", 0, "severity"], "fatal"), (["hosts", 0, "venvs", 0, "fusion", "gate"], "9"),
        (["summary", "by_outcome"], {"lost": 1}), (["hosts", 0, "venvs", 0, "flashinfer", "csrc_state"], "there"),
    ],
)  # fmt: skip
def test_the_schema_refuses_what_is_not_the_document(
    validator: jsonschema.Draft202012Validator, path: list[Any], value: Any
) -> None:
    assert not validator.is_valid(broken(path, value))


def test_a_newer_document_with_more_keys_is_accepted(validator: jsonschema.Draft202012Validator) -> None:
    validator.validate(broken(["hosts", 0, "weather"], "fair"))
    validator.validate(broken(["hosts", 0, "gpus", "colour"], "green"))


def test_the_document_is_ascii_and_reads_back_as_the_run() -> None:
    odd = runs.finding("a", message="模 \u202e \x1b \x00", seen={"k": [1, 2.5, None, True]})
    run = runs.run(runs.host("a", venvs=(runs.venv("/opt/模"),)), findings=(odd,))
    text = document.render(run)
    assert text.isascii()
    assert text.endswith("}\n")
    assert "\x1b" not in text
    assert Run.model_validate(json.loads(text)) == run


def test_numbers_that_json_does_not_have_become_null() -> None:
    odd = runs.finding("a", seen=[math.nan, math.inf, 1.0, {"x": -math.inf}])
    lock = CacheLock(path="/l", kind="flock", modified_at=math.nan)
    run = runs.run(runs.host("a", caches=(Cache(path="/c", locks=(lock,)),)), findings=(odd,))
    written = json.loads(document.render(run), parse_constant=pytest.fail)
    assert written["findings"][0]["seen"] == [None, None, 1.0, {"x": None}]
    assert written["hosts"][0]["caches"][0]["locks"][0]["modified_at"] is None


def test_the_promised_names_are_there(validator: jsonschema.Draft202012Validator) -> None:
    written = json.loads(document.render(runs.every_kind()))
    assert set(written) >= {"schema", "run", "summary", "hosts", "findings"}
    assert set(written["run"]) >= {"id", "started", "finished", "version", "inventory", "complete"}
    assert set(written["summary"]) >= {"hosts", "ok", "findings", "not_checked", "by_outcome"}
    host = written["hosts"][0]
    assert set(host) >= {
        "name", "address", "groups", "outcome", "stage", "detail", "verdict", "attempts", "seconds", "gpus",
        "toolkits", "venvs", "caches", "processes",
    }  # fmt: skip
    assert set(host["gpus"]) >= {
        "state", "count", "compute_capability", "names", "driver", "driver_userspace", "link", "devices",
    }  # fmt: skip
    assert set(host["gpus"]["devices"][0]) >= {
        "index", "uuid", "bus_id", "name", "compute_capability", "memory_mib", "state",
    }  # fmt: skip
    venv = host["venvs"][0]
    assert set(venv) >= {
        "path", "origin", "state", "python", "activated_python", "flashinfer", "fusion", "torch", "toolchain",
    }  # fmt: skip
    assert set(venv["flashinfer"]) >= {
        "version", "csrc_dir", "csrc_real", "csrc_state", "basis", "constants", "modified", "install",
    }  # fmt: skip
    assert set(venv["fusion"]) >= {"verdict", "effective", "gate", "guards", "gates", "frameworks"}
    assert set(venv["torch"]) >= {"version", "cuda"}
    assert set(written["findings"][0]) >= {
        "rule", "severity", "host", "venv", "gpu", "message", "expected", "seen", "basis", "remedy", "reference",
        "cause", "waived",
    }  # fmt: skip


def test_the_text_says_what_the_record_says_a_line_a_host_and_a_finding() -> None:
    for run in (runs.every_kind(), runs.run()):
        text = document.render(run)
        assert json.dumps(json.loads(text)) == json.dumps(run.to_json())
        lines = [line.strip().rstrip(",") for line in text.splitlines()]
        assert [json.dumps(host) for host in run.to_json()["hosts"]] == [
            line for line in lines if line.startswith('{"name"')
        ]


def test_half_a_surrogate_becomes_the_text_of_its_escape() -> None:
    odd = runs.finding("a", message="\udcff 😀 \\udcff", seen={"\ud800": ["\udfff"]})
    written = json.loads(document.render(runs.run(runs.host("a"), findings=(odd,))))
    assert written["findings"][0]["message"] == "\\udcff 😀 \\udcff"
    assert written["findings"][0]["seen"] == {"\\ud800": ["\\udfff"]}
