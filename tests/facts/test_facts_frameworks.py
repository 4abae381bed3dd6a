"""Gates of sglang and vLLM by what their text does, what follows for the fusion, and closed modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcheck.facts import companions, modules
from fleetcheck.facts.frameworks import framework
from fleetcheck.facts.fusion import effective
from fleetcheck.facts.reach import MAJORS
from fleetcheck.facts.records import FlashInfer, Framework

CASES = yaml.safe_load((Path(__file__).parent / "data" / "frameworks.yaml").read_text())


def read(case: dict[str, Any]) -> Framework:
    modified = case.get("modified", [])
    files = {
        name: {"text": text, "record": "mismatch" if name in modified else "match", "path": f"/sp/{name}"}
        for name, text in case["files"].items()
    }
    return framework(case.get("framework", "sglang"), "0.5.20", files, [])


def majors(value: Any) -> Any:
    return MAJORS if value == "every" else None if value is None else tuple(value)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_gates_of_a_framework(case: dict[str, Any]) -> None:
    found = read(case)
    seen = {gate.function: gate for gate in found.gates}
    for function, wanted in case.get("gates", {}).items():
        assert seen[function].majors == majors(wanted), function
        assert (seen[function].error is None) is (wanted is not None)
    for key, name in (("admits", "admits"), ("auto", "auto_enables")):
        if key in case:
            assert getattr(found, name) == majors(case[key])
    assert (
        list(found.modified)
        == [file.path.removeprefix("/sp/") for file in found.files]
        == case.get("modified", [])
    )
    assert found.verified is (True if case["files"] else None)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_is_in_force_on_compute_capability_12(case: dict[str, Any]) -> None:
    found = read(case)
    for verdict, wanted in case.get("effective", {}).items():
        assert effective(verdict, [found], ["12.0"]) == wanted, verdict


def test_the_worst_of_two_frameworks_counts() -> None:
    off = Framework(name="vllm", admits=(9,), auto_enables=(9,), gates=read(CASES[0]).gates)
    crash = off.model_copy(update={"name": "sglang", "admits": (9, 12), "auto_enables": (12,)})
    assert effective("refused", [off, crash], ["12.0"]) == "would-crash"
    assert effective("supported", [off, crash], ["9.0"]) == "unknown"
    assert effective("refused", [off], ["12.0"]) == "off"
    assert effective("refused", [off], []) == "unknown"
    assert effective("absent", [], ["12.0"]) == "off"
    assert effective("supported", [], ["12.0"]) == "unknown"


def test_the_pins_of_a_wheel() -> None:
    lines = ["flashinfer_python[cu13]==0.6.18", 'flashinfer-cubin==0.6.18; extra == "all"', "torch==2.9", "!", 7]
    found = framework("sglang", "0.5.20", {}, [{"requires": lines}])
    assert found.pins == {"flashinfer-python": "==0.6.18", "flashinfer-cubin": "==0.6.18"}


def test_a_function_that_is_too_long_is_not_told() -> None:
    def gate(statements: int) -> tuple[int, ...] | None:
        body = "    x\n" * statements
        text = f"def apply_flashinfer_allreduce_fusion(n):\n{body}    return is_sm90_supported()\n"
        (found,) = framework("sglang", None, {"a.py": {"text": text, "record": "match"}}, []).gates
        assert (found.error is None) is (found.majors is not None)
        return found.majors

    assert gate(4_000) == (9,)
    assert gate(6_000) is None


KEYS = (
    "file",
    "function",
    "name",
    "values",
    "via",
    "requires",
    "text",
    "record",
    "dists",
    "modules",
    "path",
    "archs",
    "by",
)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(value=VALUES)
def test_whatever_a_host_sends_is_a_value(value: Any) -> None:
    listed = value if isinstance(value, list) else [value]
    assert isinstance(modules.gates(listed), dict)
    entry = value if isinstance(value, dict) else {"text": value}
    assert framework("sglang", None, {"a.py": entry}, [entry]).name == "sglang"
    part = {
        "spec": "file",
        "dists": listed,
        "prebuilt": value,
        "cubins": value,
        "shadows": listed,
        "files": listed,
    }
    packages = dict.fromkeys(("flashinfer", "flashinfer_cubin", "flashinfer_jit_cache"), part)
    assert isinstance(companions.beside(FlashInfer(), packages), FlashInfer)


def test_the_lists_of_modules_and_what_is_closed() -> None:
    def row(function: str, *values: str, via: tuple[str, ...] = (), file: str = "jit/a.py") -> dict[str, Any]:
        return {"file": file, "function": function, "values": list(values), "via": list(via)}

    rows = [
        {"file": "jit/a.py", "name": "_MAJORS", "values": ["(10, 11)"]},
        row("gen_one", "[9, 10]"),
        row("gen_two", "[8, 9]", "[10, 11, 12]"),
        row("gen_named", "_MAJORS"),
        row("gen_list", "list(_MAJORS)"),
        row("_flags", "[12]"),
        row("gen_helped", via=("_flags",)),
        row("gen_all", "None"),
        row("gen_computed", "pick()"),
        row("gen_elsewhere", "_MAJORS", file="jit/b.py"),
    ]
    found = modules.gates(rows)
    assert found == {
        "gen_one": (9, 10),
        "gen_two": (8, 9, 10, 11, 12),
        "gen_named": (10, 11),
        "gen_list": (10, 11),
        "gen_helped": (12,),
        "gen_all": None,
    }
    assert modules.closed(found, ["12.0"]) == ("gen_list", "gen_named", "gen_one")
    assert modules.closed(found, ["9.0", "12.0"]) == ("gen_helped", "gen_list", "gen_named", "gen_one")
    assert modules.closed(found, []) is None
