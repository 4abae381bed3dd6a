"""Health, links, slices, processes and the kernel's log: data files, and recordings of H200 machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcheck.facts import kernel_log, smi_lists, topology
from fleetcheck.facts.gpus import gpus
from fleetcheck.facts.pci import Pci, read_iommu, read_pci

DATA = Path(__file__).parent / "data"
HEALTH = yaml.safe_load((DATA / "gpu_health.yaml").read_text())
MATRICES = yaml.safe_load((DATA / "topology.yaml").read_text())
UUID = "GPU-00000000-0000-4000-8000-000000000001"
BUS = "00000000:05:00.0"


def stdout(name: str) -> str:
    """The stdout of a recorded call."""
    return (DATA / "h200" / name).read_text().partition("--- stdout\n")[2].partition("--- stderr")[0]


def called(text: str, rc: int = 0) -> dict[str, Any]:
    return {"rc": rc, "stdout": text, "stderr": "", "timed_out": False}


@pytest.mark.parametrize("case", HEALTH, ids=lambda case: case["name"])
def test_the_health_of_a_device(case: dict[str, Any]) -> None:
    fields = ["index", "uuid", "pci.bus_id", "name", *case["cells"]]
    line = ", ".join(["0", UUID, BUS, "NVIDIA H200", *case["cells"].values()])
    parts: dict[str, Any] = {"smi": {"path": "/x", "query": {"fields": fields, "call": called(line + "\n")}}}
    if "pci" in case:
        function = {"bus_id": "0000:05:00.0", "vendor": "0x10de", "class": "0x030200", "device": "0x2335"}
        parts["pci"] = {"functions": [function | case["pci"]], "error": None}
    (device,) = gpus(parts).devices
    seen = device.model_dump()
    assert {key: list(seen[key]) if key == "slowdown" else seen[key] for key in case["expect"]} == case["expect"]


def test_a_warning_of_the_inforom_marks_its_gpu_alone() -> None:
    rows = "".join(f"{n}, {UUID[:-1]}{n}, 00000000:0{n}:00.0, NVIDIA H200\n" for n in (1, 2))
    call = called(rows + "WARNING: infoROM is corrupted at gpu 0000:02:00.0\n", 14)
    smi = {"path": "/x", "query": {"fields": ["index", "uuid", "pci.bus_id", "name"], "call": call}}
    found = gpus({"smi": smi})
    assert [device.inforom_corrupt for device in found.devices] == [False, True]
    assert [device.state for device in found.devices] == ["ok", "ok"]


@pytest.mark.parametrize("case", MATRICES, ids=lambda case: case["name"])
def test_a_matrix(case: dict[str, Any]) -> None:
    text = case["text"].replace("⇥", "\t").replace("␛", "\x1b")
    links = topology.links(called(text, case.get("rc", 0)))
    assert links == case["links"]
    assert (topology.worst(links), topology.nvlink(links)) == (case["worst"], case["nvlink"])
    # A terminal may turn tabs into blanks: the columns are told by their words.
    assert topology.links(called(text.replace("\t", "   "), case.get("rc", 0))) == case["links"]


def test_the_recorded_matrices() -> None:
    assert topology.links(called(stdout("topo_two.txt"))) == {"0-1": "NV18"}
    assert topology.peers(called(stdout("p2p_two.txt"))) == {"0-1": "OK"}
    assert topology.links(called(stdout("topo_one.txt"))) == {}
    assert smi_lists.processes(called(stdout("apps_none.txt"))) == ()
    assert smi_lists.slices(called(stdout("list_one.txt"))) == {}


def test_peer_access_that_one_direction_lacks() -> None:
    text = " \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tOK\n GPU1\tCNS\tX\tOK\n GPU2\tOK\tOK\tX\n"
    assert topology.peers(called(text)) == {"0-1": "CNS", "0-2": "OK", "1-2": "OK"}


def test_a_matrix_that_was_cut_off_by_time_is_no_matrix() -> None:
    assert topology.links(called(stdout("topo_two.txt")) | {"timed_out": True, "rc": None}) == {}


def test_all_that_one_host_tells() -> None:
    fields = (DATA / "h200" / "query_wide.txt").read_text().partition("--query-gpu=")[2].split()[0].split(",")
    smi = {"path": "/x", "query": {"fields": fields, "call": called(stdout("query_wide.txt"))}}
    (device,) = gpus({"smi": smi}).devices
    assert (device.state, device.note, device.vbios) == ("ok", None, "96.00.A5.00.1A")
    assert (device.pcie_width, device.pcie_width_max, device.pcie_generation) == (16, 16, 5)
    assert (device.power_limit, device.power_limit_max, device.temperature) == (700.0, 700.0, 37)
    assert (device.ecc, device.ecc_uncorrected, device.mig, device.persistence) == (True, 0, False, True)
    assert device.slowdown == ()


def test_slices_belong_to_the_gpu_above_them() -> None:
    text = (
        f"GPU 0: NVIDIA RTX PRO 6000 Blackwell Server Edition (UUID: {UUID})\n"
        "  MIG 2g.48gb     Device  0: (UUID: MIG-00000000-0000-4000-8000-000000000006)\n"
        "  MIG 1g.24gb+me  Device  1: (UUID: MIG-00000000-0000-4000-8000-000000000007)\n"
        "Unable to determine the device handle for gpu 0000:18:00.0: Unknown Error\n"
        "  MIG 1g.24gb     Device  0: (UUID: MIG-00000000-0000-4000-8000-000000000008)\n"
    )
    (listed,) = smi_lists.slices(called(text)).values()
    assert [(one.index, one.profile) for one in listed] == [(0, "2g.48gb"), (1, "1g.24gb+me")]
    fields = ["index", "uuid", "pci.bus_id", "mig.mode.current"]
    query = {"fields": fields, "call": called(f"0, {UUID}, {BUS}, Enabled\n")}
    (device,) = gpus({"smi": {"path": "/x", "query": query, "mig": called(text)}}).devices
    assert (device.mig, len(device.mig_devices)) == (True, 2)


def test_processes_with_odd_names() -> None:
    text = (
        f"4711, {UUID}, 88450, /opt/a venv/bin/python\r\n"
        f"4712, {UUID}, [N/A], a, b, and c\n"
        f"4713, {UUID}, [Insufficient Permissions], [Not Found]\n"
        "No running processes found\n"
        "x, y, z, w\n"
    )
    found = smi_lists.processes(called(text))
    assert [(one.pid, one.memory_mib, one.name) for one in found] == [
        (4711, 88450, "/opt/a venv/bin/python"),
        (4712, None, "a, b, and c"),
        (4713, None, "[Not Found]"),
    ]


@pytest.mark.parametrize(
    ("line", "code", "bus_id", "seconds"),
    [
        (
            "3,1701,81273645,-;NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen",
            79,
            "00000000:17:00.0",
            81.273645,
        ),
        (
            "Nov  3 10:00:00 gpu01 kernel: [  412.50] NVRM: Xid (PCI:0000:17:00.0): 154, x",
            154,
            "00000000:17:00.0",
            412.5,
        ),
        ("Nov  3 10:00:00 gpu01 kernel: NVRM: Xid (PCI:000f:01:00): 13, Graphics", 13, "0000000F:01:00.0", None),
    ],
)
def test_xids(line: str, code: int, bus_id: str, seconds: float | None) -> None:
    log = {"path": "/dev/kmsg", "lines": ["NVRM: loading", line, "NVRM: Xid (PCI: gibberish"], "this_boot": True}
    (xid,) = kernel_log.xids(log)
    assert (xid.code, xid.bus_id, xid.seconds) == (code, bus_id, seconds)


def test_xids_that_may_be_of_an_earlier_boot_are_not_told() -> None:
    line = "Nov  3 10:00:00 gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus."
    assert kernel_log.xids({"lines": [line], "this_boot": None}) == ()
    assert len(kernel_log.xids({"lines": [line] * 100, "this_boot": True})) == kernel_log.MAX_XIDS


@pytest.mark.parametrize(
    ("kinds", "iommu", "expected"),
    [
        (["DMA-FQ", "DMA-FQ"], {}, "translated"),
        (["identity", "identity"], {"groups": 90}, "passthrough"),
        (["identity", "DMA"], {}, "translated"),
        ([None], {"groups": 0, "cmdline": []}, "off"),
        ([None], {"groups": 40, "cmdline": ["intel_iommu=on", "iommu=pt"]}, "passthrough"),
        ([None], {"groups": 40, "cmdline": []}, "on"),
        ([None], {"groups": None, "error": "ENOENT"}, None),
    ],
)
def test_the_iommu(kinds: list[str | None], iommu: dict[str, Any], expected: str | None) -> None:
    functions = [{"vendor": "0x10de", "class": "0x030000", "iommu_type": kind} for kind in kinds]
    pci = read_pci({"functions": functions, "error": None})
    assert read_iommu({"iommu": iommu}, pci) == expected
    assert read_iommu(None, Pci()) is None


@pytest.mark.parametrize(
    ("kernel", "container", "expected"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", None, "wsl"),
        ("6.8.0-90-generic", "docker", "docker"),
        ("6.8.0-90-generic", None, None),
    ],
)
def test_what_surrounds_the_gpus(kernel: str, container: str | None, expected: str | None) -> None:
    found = gpus({"system": {"kernel": kernel}, "driver": {"container": container}})
    assert found.surroundings == expected


def test_what_hangs_in_the_kernel_is_told() -> None:
    smi = {"path": "/x", "skipped": "d-state", "blocked": [{"pid": 4711, "name": "nvidia-smi"}, {"pid": "x"}]}
    found = gpus({"smi": smi})
    assert (found.state, found.blocked) == ("hung", ("nvidia-smi (4711)",))


def test_two_h200_as_the_agent_found_them() -> None:
    found = gpus(json.loads((DATA / "h200" / "parts_two.json").read_text()))
    assert (found.state, found.count, found.pci_count, found.diagnostics) == ("ok", 2, 2, ())
    assert (found.link, found.nvlink, found.links, found.p2p) == ("NV18", True, {"0-1": "NV18"}, {"0-1": "OK"})
    assert (found.driver, found.driver_userspace, found.kernel_module) == ("580.159.04", "580.159.04", "open")
    assert (found.iommu, found.surroundings, found.xids, found.unsupported) == ("off", "docker", (), ())
    for device in found.devices:
        assert (device.compute_capability, device.compute_capability_basis) == ("9.0", "reported")
        assert (device.pcie_width, device.pcie_width_max, device.pcie_generation) == (16, 16, 5)
        assert (device.persistence, device.ecc, device.mig, device.rows_pending) == (True, True, False, False)
        assert (device.recovery_action, device.slowdown, device.ecc_uncorrected) == (None, (), 0)


HOSTILE: tuple[Any, ...] = (None, True, -1, 10**30, "", "\x1b[4m\0, ,", "0" * 70000, [], {}, [{"x": [None]}])


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value at which another value could stand."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [one for key in keys for one in [(*here, key), *places(value[key], (*here, key))]]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda one: repr(one)[:20])
def test_any_value_at_any_place_is_borne(hostile: Any) -> None:
    text = (DATA / "h200" / "parts_two.json").read_text()
    for place in places(json.loads(text)):
        parts = json.loads(text)
        holder = parts
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = hostile
        found = gpus(parts)
        assert len(found.model_dump_json()) < 200_000
