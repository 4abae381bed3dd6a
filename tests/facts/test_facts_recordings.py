"""Every recording of two H200 machines: read by what concerns it, and no GPU made up by anything else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcheck.agent.program.smi import FIELDS
from fleetcheck.facts import nvidia_smi, smi_lists, topology
from fleetcheck.facts.gpus import gpus
from fleetcheck.facts.nvidia_smi import Listing
from fleetcheck.facts.pci import read_driver, read_pci
from fleetcheck.facts.smi_forms import WORDS

DATA = Path(__file__).parent / "data"
CASES = yaml.safe_load((DATA / "recordings.yaml").read_text())


def of(by: str) -> list[dict[str, Any]]:
    return [case for case in CASES if case["by"] == by]


def called(case: dict[str, Any]) -> dict[str, Any]:
    """The call value of a recording, as the agent would send it."""
    head, _, rest = (DATA / "h200" / case["file"]).read_text().partition("--- stdout\n")
    stdout, _, stderr = rest.partition("--- stderr\n")
    rc = int(head.partition("rc=")[2].split()[0])
    return {"rc": rc, "stdout": stdout, "stderr": stderr, "timed_out": False, "error": None, "truncated": False}


def asked(case: dict[str, Any]) -> list[str]:
    """The fields that the recorded command asked for."""
    command = (DATA / "h200" / case["file"]).read_text().partition("\n")[0]
    found = re.search(r"--query-(?:gpu|remapped-rows)=(\S+)", command)
    return found.group(1).split(",") if found else []


def listing(case: dict[str, Any], fields: list[str]) -> Listing:
    return nvidia_smi.read({"path": "/usr/bin/nvidia-smi", "query": {"fields": fields, "call": called(case)}})


def uuids(numbers: list[int | None]) -> list[str | None]:
    return [None if number is None else f"GPU-00000000-0000-4000-8000-{number:012d}" for number in numbers]


def identities(case: dict[str, Any]) -> list[tuple[Any, ...]]:
    return list(zip(case["index"], uuids(case["uuid"]), case["bus_id"], strict=True))


def named(case: dict[str, Any]) -> str:
    return str(case["file"])


def test_no_recording_is_left_out() -> None:
    assert sorted(map(named, CASES)) == sorted(path.name for path in (DATA / "h200").glob("*.txt"))


@pytest.mark.parametrize("case", of("rows"), ids=named)
def test_a_query_by_its_own_fields(case: dict[str, Any]) -> None:
    found = listing(case, asked(case))
    assert [(row.index, row.uuid, row.bus_id) for row in found.rows] == identities(case)
    for name, values in case.get("cells", {}).items():
        assert [row.value(name) for row in found.rows] == values
    assert sorted(found.kinds) == case.get("kinds", [])
    assert list(found.unsupported) == case.get("unsupported", [])
    assert found.shown == ()


@pytest.mark.parametrize("case", of("shown"), ids=named)
def test_what_arrives_instead_of_rows_is_named(case: dict[str, Any]) -> None:
    found = listing(case, list(FIELDS))
    assert found.rows == ()
    assert [(row.index, row.uuid, row.bus_id, row.form) for row in found.shown] == [
        (*one, case["form"]) for one in identities(case)
    ]
    assert [row.faults for row in found.shown] == [()] * len(found.shown)
    assert found.shown_driver == case.get("driver")
    named, *left = (message.line for message in found.messages)
    assert named == f"nvidia-smi printed its {WORDS[case['form']]}, which was not asked for"
    assert len(left) == case.get("left", 0)
    seen = gpus({"smi": {"path": "/x", "query": {"fields": list(FIELDS), "call": called(case)}}})
    # It tells which GPUs there are, and not how they are.
    assert (seen.state, seen.count) == ("unknown", len(found.shown))
    assert [device.memory_mib for device in seen.devices] == [None] * len(seen.devices)
    assert {device.compute_capability_basis for device in seen.devices} == {"guessed"}


def test_a_form_that_was_cut_off_counts_nothing_and_its_lost_gpu_is_lost() -> None:
    (case,) = (case for case in CASES if case.get("form") == "xml")
    call = called(case)
    lost = call["stdout"].replace("<total>143771 MiB</total>", "<total>GPU is lost</total>", 1)
    for stdout, rest in ((call["stdout"], ()), (lost, ("00000000:00:06.0",))):
        cut = {**call, "stdout": stdout[:20000], "truncated": True}
        seen = gpus({"smi": {"path": "/x", "query": {"fields": list(FIELDS), "call": cut}}})
        assert (seen.state, seen.count) == ("fault" if rest else "unknown", None)
        assert tuple(device.bus_id for device in seen.devices) == rest


@pytest.mark.parametrize("case", [case for case in CASES if case["by"] not in ("rows", "shown")], ids=named)
def test_of_anything_else_no_gpu_is_made(case: dict[str, Any]) -> None:
    for fields in (list(FIELDS), [], ["index"], ["name", "compute_cap"]):
        found = listing(case, fields)
        assert (found.rows, found.shown) == ((), ())
    if "says" in case:
        assert [message.line for message in found.messages] == [case["says"]]


def test_every_field_that_is_asked_for_is_one() -> None:
    """The help lists both names of a field that has two."""
    (case,) = of("fields")
    known = set(re.findall(r'"([A-Za-z0-9_.]+)"', called(case)["stdout"]))
    assert set(FIELDS) <= known


@pytest.mark.parametrize("case", of("apps"), ids=named)
def test_no_process_computes(case: dict[str, Any]) -> None:
    assert smi_lists.processes(called(case)) == ()


@pytest.mark.parametrize("case", of("links") + of("peers"), ids=named)
def test_the_matrices(case: dict[str, Any]) -> None:
    read = topology.links if case["by"] == "links" else topology.peers
    assert read(called(case)) == case["links"]


@pytest.mark.parametrize("case", of("version"), ids=named)
def test_the_binarys_version(case: dict[str, Any]) -> None:
    assert nvidia_smi.read({"path": "/x", "version": called(case)}).version == case["version"]


@pytest.mark.parametrize("case", of("driver"), ids=named)
def test_the_loaded_driver(case: dict[str, Any]) -> None:
    proc = {"path": "/proc/driver/nvidia/version", "text": called(case)["stdout"]}
    driver = read_driver({"proc_version": proc})
    assert (driver.loaded, driver.version, driver.module) == (True, case["version"], case["module"])


@pytest.mark.parametrize("case", of("pci"), ids=named)
def test_the_functions_of_the_bus(case: dict[str, Any]) -> None:
    names = ("bus_id", "vendor", "device", "class", "current_link_width", "max_link_width")
    functions = [dict(zip(names, line.split(), strict=True)) for line in called(case)["stdout"].splitlines()]
    found = read_pci({"functions": functions, "error": None}).gpus or ()
    assert [gpu.bus_id for gpu in found] == case["bus_id"]
    assert [gpu.width for gpu in found] == [gpu.width_max for gpu in found] == case["width"]
