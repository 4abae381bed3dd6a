"""GPUs from nvidia-smi, PCI and the driver: every output and failure in the data file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcheck.facts import nvidia_smi, products, smi_rows
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.pci import read_driver, read_pci

DATA = Path(__file__).parent / "data"
CASES = yaml.safe_load((DATA / "smi.yaml").read_text())
FIELDS = ["index", "uuid", "pci.bus_id", "name", "compute_cap", "memory.total", "driver_version", "serial"]


def row(index: int, cells: dict[str, str]) -> str:
    """One line as nvidia-smi prints it of a healthy RTX PRO 6000, with some cells replaced."""
    values = {
        "index": str(index),
        "uuid": f"GPU-00000000-0000-4000-8000-{index + 1:012d}",
        "pci.bus_id": f"00000000:{0x10 + index:02X}:00.0",
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "compute_cap": "12.0",
        "memory.total": "97887",
        "driver_version": "580.95.05",
        "serial": "1760425000000",
    }
    return ", ".join((values | cells)[field] for field in FIELDS) + "\n"


def smi_part(case: dict[str, Any]) -> dict[str, Any]:
    """The ``smi`` part that the agent would send for a case."""
    if "smi" in case:
        return dict(case["smi"])
    cells = case.get("cells", {})
    shown = [index for index in range(case.get("gpus", 0)) if index not in case.get("without", ())]
    rows = "".join(row(index, cells.get(index, {})) for index in shown) * (2 if case.get("repeat") else 1)
    stdout = case.get("stdout", "") + case.get("before", "") + rows + case.get("after", "")
    call = {
        "rc": case.get("rc", 0),
        "stdout": stdout.replace("\n", "\r\n") if case.get("crlf") else stdout,
        "stderr": case.get("stderr", ""),
        "timed_out": case.get("timed_out", False),
        "error": case.get("error"),
    }
    part = {
        "path": "/usr/bin/nvidia-smi",
        "skipped": None,
        "query": {"fields": case.get("fields", FIELDS), "call": call},
        "retry": None,
        "mig": call if case.get("mig") else None,
    }
    if "retry" in case:
        again = case["retry"]
        part["retry"] = {"fields": again["fields"], "call": {"stdout": again["stdout"], "rc": again["rc"]}}
    return part


def parts_of(case: dict[str, Any]) -> dict[str, Any]:
    """The parts of evidence of a case."""
    parts: dict[str, Any] = {} if case.get("no_smi") else {"smi": smi_part(case)}
    if "pci" in case or "pci_error" in case:
        functions = [
            {"bus_id": f"0000:{0x10 + n:02x}:00.0", "vendor": "0x10de", "device": "0x2bb5", "class": "0x030200"}
            for n in range(case.get("pci", 0))
        ]
        parts["pci"] = {"functions": functions + case.get("pci_more", []), "error": case.get("pci_error")}
    if "proc" in case:
        parts["driver"] = {"proc_version": {"path": "/proc/driver/nvidia/version", "text": case["proc"]}}
    if "kernel" in case:
        parts["system"] = {"kernel": case["kernel"]}
    if case.get("no_driver"):
        gone = {"path": "/x", "error": "ENOENT"}
        parts["driver"] = {"proc_version": gone, "module_version": gone, "devices": []}
    return parts


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_state_of_the_gpus(case: dict[str, Any]) -> None:
    gpus = host_facts(parts_of(case)).gpus
    expect = case["expect"]
    assert (gpus.state, gpus.count) == (expect["state"], expect["count"])
    seen: dict[str, Any] = {
        "capability": list(gpus.compute_capability),
        "driver": gpus.driver,
        "userspace": gpus.driver_userspace,
        "module": gpus.kernel_module,
        "pci_count": gpus.pci_count,
        "memory": [device.memory_mib for device in gpus.devices],
        "basis": [device.compute_capability_basis for device in gpus.devices],
        "notes": [device.note for device in gpus.devices],
        "indices": [device.index for device in gpus.devices],
        "device_states": [device.state for device in gpus.devices],
        "slices": [len(device.mig_devices) for device in gpus.devices],
        "slowdown": [list(device.slowdown) for device in gpus.devices],
        "says": list(gpus.diagnostics),
        "bad_states": sorted({device.state for device in gpus.devices if device.state != "ok"}),
        "bad": [
            {"bus_id": device.bus_id, "state": device.state, "index": device.index}
            for device in gpus.devices
            if device.state != "ok"
        ],
    }
    wanted = {key: value for key, value in expect.items() if key not in ("state", "count")}
    assert {key: seen[key] for key in wanted} == wanted


def recording(name: str) -> tuple[list[str], str, int]:
    """The fields, the stdout and the exit code of a recorded call on an H200 machine."""
    text = (DATA / "h200" / name).read_text()
    head, _, rest = text.partition("--- stdout\n")
    stdout = rest.partition("--- stderr")[0]
    rc = int(head.partition("rc=")[2].split()[0])
    fields = head.partition("--query-gpu=")[2].split()[:1]
    return (fields[0].split(",") if fields else []), stdout, rc


def smi_of(name: str) -> dict[str, Any]:
    fields, stdout, rc = recording(name)
    return {"path": "/usr/bin/nvidia-smi", "query": {"fields": fields, "call": {"stdout": stdout, "rc": rc}}}


def test_two_h200_as_recorded() -> None:
    _, pci, _ = recording("pci_two.txt")
    names = ("bus_id", "vendor", "device", "class")
    functions = [dict(zip(names, line.split(), strict=False)) for line in pci.splitlines() if line]
    _, driver, _ = recording("driver.txt")
    _, version, _ = recording("version.txt")
    smi = smi_of("query_two.txt") | {"version": {"stdout": version, "rc": 0}}
    parts = {
        "smi": smi,
        "pci": {"functions": functions, "error": None},
        "driver": {"proc_version": {"path": "/proc/driver/nvidia/version", "text": driver}},
    }
    gpus = host_facts(parts).gpus
    assert (gpus.state, gpus.count, gpus.pci_count) == ("ok", 2, 2)
    assert gpus.compute_capability == ("9.0",)
    assert gpus.names == ("NVIDIA H200",)
    assert (gpus.driver, gpus.driver_userspace, gpus.kernel_module) == ("580.159.04", "580.159.04", "open")
    assert [device.bus_id for device in gpus.devices] == ["00000000:00:06.0", "00000000:00:07.0"]
    assert [device.memory_mib for device in gpus.devices] == [143771, 143771]


def test_a_header_and_units_are_no_message() -> None:
    listing = nvidia_smi.read(smi_of("query_with_header.txt"))
    assert [found.value("memory.total") for found in listing.rows] == ["143771"]
    assert listing.messages == ()


def test_a_field_that_is_not_known_is_named() -> None:
    listing = nvidia_smi.read(smi_of("query_unknown_field.txt"))
    assert listing.rows == ()
    assert listing.unsupported == ("nosuchfield",)


def test_no_device_found_is_not_an_unknown_state() -> None:
    assert nvidia_smi.read(smi_of("query_absent_gpu.txt")).kinds == {"no-devices"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("05:00.0", "00000000:05:00.0"),
        ("0000:0a:00.0", "00000000:0A:00.0"),
        ("0000000F:01:00.0", "0000000F:01:00.0"),
        ("10000:01:00.0", "00010000:01:00.0"),
        ("00000000:84:00.0 ", "00000000:84:00.0"),
        ("GPU-05:00.0", None),
        ("05:00", None),
        ("", None),
        (None, None),
    ],
)
def test_bus_ids_are_written_in_one_way(text: str | None, expected: str | None) -> None:
    assert smi_rows.bus_id(text) == expected


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("[N/A]", "na"),
        ("N/A", "na"),
        ("[Not Supported]", "na"),
        ("", "na"),
        ("[Requested functionality has been deprecated]", "na"),
        ("[Unknown Error]", "fault"),
        ("Unknown Error", "fault"),
        ("[GPU requires reset]", "fault"),
        ("GPU is lost", "fault"),
        ("[GPU is inaccessible]", "fault"),
        ("ERR!", "fault"),
        ("[Insufficient Permissions]", "permission"),
        ("0", "value"),
        ("None", "value"),
    ],
)
def test_values_have_more_than_two_states(said: str, state: str) -> None:
    assert smi_rows.cell(said).state == state


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", None, "12.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None, "12.0"),
        ("RTX PRO 6000", None, None),
        ("NVIDIA RTX 6000", None, None),
        ("NVIDIA RTX 6000 Ada Generation", None, "8.9"),
        ("Quadro RTX 6000", None, "7.5"),
        ("Tesla V100-SXM2-32GB", None, "7.0"),
        ("NVIDIA Graphics Device", 0x2BB5, "12.0"),
        (None, 0x2335, "9.0"),
        (None, None, None),
        ("Failed to initialize NVML", None, None),
    ],
)
def test_a_product_is_known_by_its_whole_name(name: str | None, device: int | None, expected: str | None) -> None:
    assert products.compute_capability(name, device) == expected


def test_no_product_stands_under_two_capabilities() -> None:
    ids = [device for known in products.BY_ID.values() for device in known]
    names = [name.casefold() for known in products.BY_ID.values() for name in known.values()]
    assert len(ids) == len(set(ids))
    assert len(names + [name.casefold() for name in products.BY_NAME]) == len(set(names) | set(products.BY_NAME))


@pytest.mark.parametrize(
    ("text", "version", "module"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27 2021\n",
            "470.82.01",
            "proprietary",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.80  Release Build\n", "595.80", "open"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release\n", "580.95.05", "open"),
        ("nothing of the kind\n", None, None),
    ],
)
def test_the_loaded_driver(text: str, version: str | None, module: str | None) -> None:
    driver = read_driver({"proc_version": {"path": "/proc/driver/nvidia/version", "text": text}})
    assert (driver.version, driver.module) == (version, module)


def test_the_module_version_stands_in_for_proc() -> None:
    part = {
        "proc_version": {"path": "/p", "error": "ENOENT"},
        "module_version": {"path": "/s", "text": "580.95.05\n"},
    }
    assert read_driver(part).version == "580.95.05"
    assert read_driver({"proc_version": {"path": "/p", "error": "EACCES"}}).loaded is None


def test_a_bus_that_was_not_read_is_not_empty() -> None:
    assert not read_pci(None).empty
    assert not read_pci({"functions": [], "error": "ENOENT"}).empty
    assert read_pci({"functions": [], "error": None}).empty


def test_a_gpu_that_is_handed_to_a_virtual_machine_is_not_this_hosts() -> None:
    from fleetcheck.facts.pci import read_pci

    function = {"vendor": "0x10de", "device": "0x2bb5", "class": "0x030200"}
    seen = read_pci(
        {
            "functions": [
                {**function, "bus_id": "0000:05:00.0", "driver": "nvidia"},
                {**function, "bus_id": "0000:06:00.0", "driver": "vfio-pci"},
            ],
            "error": None,
        }
    )
    assert [gpu.bus_id for gpu in seen.gpus or ()] == ["00000000:05:00.0"]
