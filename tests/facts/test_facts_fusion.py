"""Gates by function, guards by condition, and the verdict that follows from both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcheck.facts import gates, guards, releases
from fleetcheck.facts.fusion import fusion
from fleetcheck.facts.records import Framework

DATA = Path(__file__).parent / "data"
GATES = yaml.safe_load((DATA / "gates.yaml").read_text())
GUARDS = yaml.safe_load((DATA / "guards.yaml").read_text())
VERDICTS = yaml.safe_load((DATA / "fusion.yaml").read_text())
GUARD = "#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))"
PLAIN = "#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900))"


def module(call: str) -> str:
    return f"def gen_trtllm_comm_module():\n    flags = {call}\n    return gen_jit_spec('trtllm_comm', flags)\n"


@pytest.mark.parametrize("case", GATES, ids=[case["name"] for case in GATES])
def test_the_gate_by_function_name(case: dict[str, Any]) -> None:
    texts = case.get("files", {"jit/comm.py": module(case.get("call", ""))})
    reading = gates.read({name: {"text": text, "record": "match"} for name, text in texts.items()})
    assert reading.state == case["state"]
    assert reading.gate == (tuple(case["gate"]) if case.get("gate") else None)
    assert (reading.error or "").startswith(case.get("error", ""))
    assert bool(reading.error) == (reading.state == "unreadable")
    if "file" in case:
        assert reading.file == case["file"]
    if "gates" in case:
        wanted = {name: tuple(gate) if gate else None for name, gate in case["gates"].items()}
        assert reading.gates == wanted


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        ({"text": None, "error": "EACCES", "record": "unreadable"}, "unreadable"),
        ({"text": None, "error": "ENOENT", "record": "missing"}, "unreadable"),
        ({"text": None, "error": "ENOENT", "record": "no-record"}, "absent"),
        ({"text": 7}, "unreadable"),
        ({"text": "x" * 100_000}, "unreadable"),
        ({"text": "def gen_trtllm_comm_module():\n  return 1\0"}, "unreadable"),
        ({"text": ""}, "absent"),
    ],
)
def test_a_file_that_cannot_be_read_is_not_an_older_version(entry: dict[str, Any], state: str) -> None:
    assert gates.read({"jit/comm.py": entry}).state == state


@pytest.mark.parametrize(("text", "first", "second"), GUARDS, ids=[repr(case[0])[:60] for case in GUARDS])
def test_conditions_that_empty_a_kernel(text: str, first: int, second: int) -> None:
    assert guards.count(text, ("12.0",)) == first
    assert guards.count(text, ("12.1",)) == second


def test_every_guard_of_a_header_is_counted() -> None:
    lines = [f"{100 + number}\t{GUARD}" for number in range(13)] + [f"400\t{PLAIN}"]
    assert guards.count("\n".join(lines)) == 13
    assert guards.count("\n".join(lines), ("9.0",)) == 13
    assert guards.count("\n".join(lines).replace(" && (__CUDA_ARCH__ < 1200)", "")) == 0


@pytest.mark.parametrize("case", VERDICTS, ids=[case["name"] for case in VERDICTS])
def test_the_verdict(case: dict[str, Any]) -> None:
    files: dict[str, dict[str, Any]] = {}
    if case["gate"] is not None:
        wanted = "None" if case["gate"] == "none" else str(case["gate"])
        text = module(f"ctx.get_nvcc_flags_list(supported_major_versions={wanted})")
        files["jit/comm.py"] = {"text": text, "record": case.get("record", "match")}
    if case["guards"] is not None:
        lines = [GUARD] * case["guards"] + [PLAIN] * 3
        files[guards.HEADER] = {"text": "".join(f"{n}\t{line}\n" for n, line in enumerate(lines, 400))}
    edited = ("srt/layers/layernorm.py",) if case.get("edited") else ()
    callers = [Framework(name="sglang", version=case["sglang"], modified=edited)] if "sglang" in case else []
    found = fusion(files, case.get("version"), case["gpus"], callers)
    assert found.verdict == case["verdict"]
    assert found.effective == case.get("effective", "unknown")
    assert found.guards == case["guards"]
    assert found.frameworks == {caller.name: caller.version for caller in callers}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.2.6", (False, None)),
        ("0.2.7.post1", (True, None)),
        ("0.3.1", (True, (9, 10))),
        ("0.6.16.post4", (True, (9, 10))),
        ("0.6.17.dev20260701", (False, None)),
        ("0.6.17rc1", (True, (9, 10, 12))),
        ("0.7.4", (True, (9, 10, 12))),
        ("0.6.2+local", (True, (9, 10))),
        ("0.0.0+unknown", (False, None)),
        ("", (False, None)),
        (None, (False, None)),
    ],
)
def test_the_gate_of_an_unedited_release(version: str | None, expected: tuple[bool, Any]) -> None:
    assert releases.stock_gate(version) == expected
