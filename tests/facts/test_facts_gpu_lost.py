"""One of eight GPUs is lost: seven are shown under their own numbers, and the lost one by what is known of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcheck.facts.gpus import gpus
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.lost import with_known
from fleetcheck.facts.records import Device, Gpus
from fleetcheck.inventory.model import Expect, Target
from fleetcheck.rules.judge import judge_host

SPELLINGS = yaml.safe_load((Path(__file__).parent / "data" / "gpu_lost.yaml").read_text())
FIELDS = ["index", "uuid", "pci.bus_id", "name", "memory.total", "driver_version", "compute_cap"]
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
ALL = range(8)
PLACES = ("before", "between", "after", "stderr")
CASES = list(itertools.product(SPELLINGS, PLACES, (0, 3, 7)))


def uuid(index: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{index + 1:012d}"


def row(index: int, word: str | None = None) -> str:
    cells = [NAME, "97887", "580.95.05", "12.0"] if word is None else [word] * 4
    return ", ".join([str(index), uuid(index), f"00000000:{0x10 + index:02X}:00.0", *cells])


def parts(spelling: dict[str, Any], place: str, lost: int, *, pci: bool = True) -> dict[str, Any]:
    lines = [row(index) for index in ALL if index != lost]
    stderr = ""
    if spelling.get("row"):
        lines.insert(lost, row(lost, spelling["say"]))
    elif spelling["say"] is not None:
        line = spelling["say"].format(index=lost, bus=f"0000:{0x10 + lost:02X}:00.0")
        if place == "stderr":
            stderr = line + "\n"
        else:
            lines.insert({"before": 0, "between": 4, "after": len(lines)}[place], line)
    call = {"rc": 0, "stdout": "\n".join(lines) + "\n", "stderr": stderr}
    found: dict[str, Any] = {"smi": {"path": "/usr/bin/nvidia-smi", "query": {"fields": FIELDS, "call": call}}}
    if pci:
        functions = [
            {
                "bus_id": f"0000:{0x10 + index:02x}:00.0",
                "vendor": "0x10de",
                "device": "0x2bb5",
                "class": "0x030200",
            }
            for index in ALL
        ]
        found["pci"] = {"functions": functions, "error": None}
    return found


@pytest.mark.parametrize(("spelling", "place", "lost"), CASES, ids=lambda one: str(one)[:60])
def test_seven_are_shown_and_the_lost_one_is_named(spelling: dict[str, Any], place: str, lost: int) -> None:
    seen = gpus(parts(spelling, place, lost))
    assert seen.state == ("missing" if spelling["say"] is None else "fault")
    assert seen.count == 7
    well = {device.index: device.uuid for device in seen.devices if device.state == "ok"}
    assert well == {index: uuid(index) for index in ALL if index != lost}
    (bad,) = (device for device in seen.devices if device.state != "ok")
    assert bad.bus_id == f"00000000:{0x10 + lost:02X}:00.0"
    if spelling.get("row"):
        assert (bad.index, bad.uuid) == (lost, uuid(lost))
    else:
        assert bad.index == (lost if spelling.get("names") in ("both", "index") else None)
    assert seen.compute_capability == ("12.0",)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda one: str(one["say"])[:60])
def test_where_pci_cannot_be_read_the_rest_still_holds(spelling: dict[str, Any]) -> None:
    seen = gpus(parts(spelling, "before", 3, pci=False))
    assert seen.count == 7
    assert {device.index for device in seen.devices if device.state == "ok"} == set(ALL) - {3}
    assert seen.state == ("ok" if spelling["say"] is None else "fault")


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda one: str(one["say"])[:60])
def test_the_finding_names_it_and_warns_of_the_others(spelling: dict[str, Any]) -> None:
    target = Target(name="gpu01", expect=Expect(gpus=8), venvs=())
    found = {one.rule: one for one in judge_host(target, host_facts(parts(spelling, "before", 3)))}
    rule = "gpu-missing" if spelling["say"] is None else "gpu-fault"
    assert "00000000:13:00.0" in found[rule].message
    assert found["gpu-count"].cause == rule
    assert (found["gpu-count"].expected, found["gpu-count"].seen) == (8, 7)
    if rule == "gpu-fault":
        assert "7 others may refuse new work" in found[rule].message


def test_the_rows_that_an_old_nvidia_smi_gave_only_when_asked_for_by_bus_id() -> None:
    """It ended at the lost GPU; the second query named the other seven."""
    line = "Unable to determine the device handle for GPU 0000:13:00.0: Unknown Error\n"
    evidence = parts(SPELLINGS[0], "before", 3)
    evidence["smi"]["query"]["call"] = {"rc": 255, "stdout": line, "stderr": ""}
    alone = gpus(evidence)
    assert (alone.state, alone.count) == ("fault", None)
    rows = "".join(row(index) + "\n" for index in ALL if index != 3)
    evidence["smi"]["others"] = {"fields": FIELDS, "call": {"rc": 0, "stdout": rows, "stderr": line}}
    seen = gpus(evidence)
    assert (seen.state, seen.count) == ("fault", 7)
    assert [device.index for device in seen.devices if device.state == "ok"] == [0, 1, 2, 4, 5, 6, 7]
    assert [device.bus_id for device in seen.devices if device.state == "fault"] == ["00000000:13:00.0"]


def test_a_dead_chip_is_told_from_one_that_the_driver_leaves_out() -> None:
    for key, value in (("revision", "0xff"), ("current_link_width", "63"), ("max_link_width", "255")):
        evidence = parts(SPELLINGS[-1], "before", 3)
        evidence["pci"]["functions"][3][key] = value
        (bad,) = (device for device in gpus(evidence).devices if device.state != "ok")
        assert bad.state == "missing"
        assert bad.note is not None
        assert "all ones" in bad.note
        assert (bad.pcie_width, bad.pcie_width_max) == (None, None)


def known(index: int) -> Device:
    place = f"00000000:{0x10 + index:02X}:00.0"
    return Device(index=index, uuid=uuid(index), serial=f"17{index:011d}", bus_id=place, name=NAME, state="ok")


BEFORE = Gpus(state="ok", count=8, devices=tuple(known(index) for index in ALL))


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda one: str(one["say"])[:60])
def test_an_earlier_run_names_the_lost_gpu(spelling: dict[str, Any]) -> None:
    now = with_known(gpus(parts(spelling, "before", 3)), BEFORE)
    (bad,) = (device for device in now.devices if device.state != "ok")
    assert (bad.uuid, bad.name, bad.bus_id) == (uuid(3), bad.name, "00000000:13:00.0")
    if not spelling.get("row"):
        assert bad.serial == "1700000000003"
    assert [device.uuid for device in now.devices if device.state == "ok"] == [uuid(n) for n in ALL if n != 3]


def test_an_earlier_run_names_nothing_that_it_did_not_know() -> None:
    moved = Gpus(devices=(known(0), known(1)))
    lost = Gpus(devices=(known(0), Device(bus_id="00000000:99:00.0", state="missing")))
    assert with_known(lost, moved) == lost
    two = Gpus(devices=(Device(state="fault"), Device(state="fault")))
    assert with_known(two, moved) == two
    (only,) = with_known(Gpus(devices=(Device(state="fault"),)), Gpus(devices=(known(5),))).devices
    assert (only.uuid, only.index, only.state) == (uuid(5), None, "fault")
    well = Gpus(devices=(known(0),))
    assert with_known(well, BEFORE) is well
