"""What the agent asks nvidia-smi, in what order, and when it stops; the kernel's log; slots and IOMMU of PCI."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from agent_host import Host, look, shells

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program import smi
from fleetcheck.facts.gpus import gpus

NO_PYTHON = ("/nonexistent/python3",)
UUID = "GPU-00000000-0000-4000-8000-00000000000{}"
LOST = "Unable to determine the device handle for GPU 0000:06:00.0: Unknown Error"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def ask(host: Host, **options: Any) -> dict[str, Any]:
    request = Request(sysroot=str(host.root), smi_limit=options.pop("smi_limit", 20.0))
    parts: dict[str, Any] = look(request, **options).parts
    return parts


def stand_in(host: Host, tmp_path: Path, *, unknown: str = "", extra: str = "") -> Path:
    """Put an nvidia-smi there that logs its arguments, refuses some fields and lists two GPUs."""
    log = tmp_path / "calls"
    row = "{n}, " + UUID + ", 00000000:0{n}:00.0, NVIDIA H200, 143771, 580.95.05"
    rows = "".join(f'echo "{row.format(number, n=number)}$more"; ' for number in (5, 6))
    host.smi(
        f'echo "$LC_ALL $*" >>{log}\n{extra}\nmore=; known="{" ".join(smi.FEW_FIELDS)}"\n'
        'for field in $(printf %s "${1#--query-gpu=}" | tr , " "); do\n'
        f'  case " {unknown} " in *" $field "*)\n'
        '    printf \'Field "%s" is not a valid field to query.\\n\\n\' "$field"; exit 2 ;; esac\n'
        '  case " $known " in *" $field "*) ;; *) more="$more, [N/A]" ;; esac\n'
        "done\n"
        f'case $1 in --query-gpu=*) {rows};; *) echo "said $*" ;; esac\n'
    )
    return log


def test_one_query_and_the_further_calls_in_the_c_locale(host: Host, tmp_path: Path) -> None:
    log = stand_in(host, tmp_path)
    part = ask(host)["smi"]
    seen = log.read_text().splitlines()
    assert all(line.startswith("C ") for line in seen)
    assert [line.split()[1].partition("=")[0] for line in seen] == [
        "--query-gpu", "--version", "topo", "topo", "--query-compute-apps",
    ]  # fmt: skip
    assert part["query"]["fields"] == list(smi.FIELDS)
    assert (part["retry"], part["others"], part["mig"]) == (None, None, None)
    assert part["topology"]["stdout"] == "said topo -m\n"
    assert part["p2p"]["stdout"] == "said topo -p2p r\n"
    assert part["processes"]["argv"][0] == "/usr/bin/nvidia-smi"


@pytest.mark.parametrize("shell", [*shells(), None])
@pytest.mark.parametrize(
    ("unknown", "last"),
    [
        ("gpu_recovery_action", "remapped_rows.failure"),
        ("remapped_rows.pending remapped_rows.failure gpu_recovery_action", "clocks_throttle_reasons.active"),
        ("compute_cap remapped_rows.pending gpu_recovery_action", "driver_version"),
    ],
)
def test_one_retry_with_all_that_this_nvidia_smi_knows(
    host: Host, tmp_path: Path, unknown: str, last: str, shell: str | None
) -> None:
    """compute_cap is kept wherever it is known; the shell's part chooses as the program's does."""
    log = stand_in(host, tmp_path, unknown=unknown)
    part = ask(host, **({} if shell is None else {"shell": shell, "pythons": NO_PYTHON}))["smi"]
    fields = list(smi.FIELDS)
    assert part["query"]["call"]["rc"] == 2
    assert part["query"]["fields"] == fields
    assert part["retry"]["fields"] == fields[: fields.index(last) + 1]
    assert part["retry"]["call"]["rc"] == 0
    assert sum("--query-gpu" in line for line in log.read_text().splitlines()) == 2
    assert gpus({"smi": part}).count == 2


def test_an_unknown_field_that_was_not_asked_for_leaves_the_fewest() -> None:
    call = {"rc": 2, "stdout": 'Field "whatever" is not a valid field to query.\n', "stderr": ""}
    assert smi.known_fields(call) == smi.FEW_FIELDS
    assert smi.known_fields(call | {"stdout": "index, uuid"}) == ()
    assert smi.known_fields(call | {"rc": 0}) == ()


def test_nothing_more_is_asked_after_a_hung_answer(host: Host, tmp_path: Path) -> None:
    log = stand_in(host, tmp_path, extra='trap "" TERM; echo; while [ -e "$0" ]; do sleep 0.1; done')
    part = ask(host, smi_limit=1.0)["smi"]
    assert part["query"]["call"]["timed_out"] is True
    assert all(part[name] is None for name in ("retry", "version", "topology", "p2p", "processes"))
    assert len(log.read_text().splitlines()) == 1


def test_a_small_budget_is_spent_on_the_further_calls_too(host: Host, tmp_path: Path) -> None:
    """All calls share it: the last one has what the others left."""
    log = stand_in(
        host, tmp_path, extra='case $2 in -p2p) trap "" TERM; while [ -e "$0" ]; do sleep 0.1; done;; esac'
    )
    part = ask(host, smi_limit=4.0)["smi"]
    assert part["topology"]["stdout"] == "said topo -m\n"
    assert (part["p2p"]["timed_out"], part["processes"]) == (True, None)
    assert [line.split()[1].partition("=")[0] for line in log.read_text().splitlines()][-1] == "topo"
    assert gpus({"smi": part}).state == "ok"


def test_slowness_is_no_hang(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with persistence mode off: the rows are taken, and nothing more is asked."""
    log = stand_in(host, tmp_path)
    monkeypatch.setattr(smi, "QUICK", 0.0)
    part = smi.gather_smi(smi.Root(str(host.root)), 20.0)
    assert all(part[name] is None for name in ("version", "topology", "p2p", "processes"))
    assert len(log.read_text().splitlines()) == 1
    assert (gpus({"smi": part}).state, gpus({"smi": part}).count) == ("ok", 2)


def test_slices_are_asked_for_where_mig_is_on() -> None:
    def names(mode: str, gpus: int) -> list[str]:
        fields = ["index", "uuid", "mig.mode.current"]
        stdout = "".join(f"{number}, GPU-x, {mode}\n" for number in range(gpus))
        return [name for name, _ in smi.further({"fields": fields, "call": {"stdout": stdout}})]

    assert names("Enabled", 1) == ["version", "mig", "processes"]
    assert names("[N/A]", 2) == ["version", "topology", "p2p", "processes"]
    assert names("Disabled", 0) == ["version"]


def test_an_old_nvidia_smi_that_ends_at_the_lost_gpu_is_asked_for_the_others(host: Host, tmp_path: Path) -> None:
    for number in (5, 6, 7):
        host.gpu(f"0000:0{number}:00.0")
    rows = "\\n".join(f"{n}, {UUID.format(n)}, 00000000:0{n}:00.0, NVIDIA H200, 143771, 5, 9.0" for n in (5, 7))
    host.smi(
        f'echo "$*" >>{tmp_path}/calls\n'
        f'case $1 in --id=0000:05:00.0,0000:07:00.0) printf "{rows}\\n" ;; *) echo "{LOST}"; exit 255 ;; esac\n'
    )
    parts = ask(host)
    assert parts["smi"]["query"]["call"]["rc"] == 255
    assert parts["smi"]["others"]["call"]["stdout"].count("NVIDIA H200") == 2
    parts["smi"]["others"]["fields"] = [
        "index",
        "uuid",
        "pci.bus_id",
        "name",
        "memory.total",
        "driver_version",
        "compute_cap",
    ]
    seen = gpus(parts)
    assert (seen.state, seen.count, seen.pci_count) == ("fault", 2, 3)
    (lost,) = (device for device in seen.devices if device.state == "fault")
    assert (lost.bus_id, lost.compute_capability) == ("00000000:06:00.0", "12.0")


def test_a_moment_in_state_d_forbids_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy nvidia-smi passes through it; only one that is there again a second later hangs."""
    host.write("/proc/4711/stat", "4711 (nvidia-smi) D 1 4711\n")
    host.write("/proc/4712/stat", "4712 (python (x)) D 1 4711\n")
    first = smi.blocked(smi.Root(str(host.root)))
    assert first == {4711: "nvidia-smi", 4712: "python (x)"}
    monkeypatch.setattr(smi, "AGAIN", 0.0)
    assert smi.stuck(smi.Root(str(host.root)), first) == [4711]
    host.write("/proc/4711/stat", "4711 (nvidia-smi) S 1 4711\n")
    assert smi.stuck(smi.Root(str(host.root)), first) == []
    assert smi.still(smi.Root(str(host.root)), first) == [(4712, "python (x)")]


@pytest.mark.parametrize("shell", shells())
def test_the_shell_starts_none_beside_a_hung_one(host: Host, shell: str) -> None:
    host.write("/proc/4711/stat", "4711 (nvidia-smi) D 1 4711\n")
    host.smi("echo never\n")
    part = ask(host, shell=shell, pythons=NO_PYTHON)["smi"]
    assert (part["d_state"], part["skipped"], part["query"]) == ([4711], "d-state", None)


def test_what_hangs_beside_it_is_named(host: Host) -> None:
    host.write("/proc/4711/stat", "4711 (nvidia-smi) D 1 4711\n")
    host.write("/proc/4712/stat", "4712 (python3) D 1 4711\n")
    host.smi("echo never\n")
    part = ask(host)["smi"]
    assert (part["d_state"], part["query"]) == ([4711], None)
    assert part["blocked"] == [{"pid": 4711, "name": "nvidia-smi"}, {"pid": 4712, "name": "python3"}]


def test_the_slot_and_the_iommu_of_a_gpu(host: Host) -> None:
    """As sysfs has it: the folder of the bus is a link into the tree, where the parent is the port."""
    port = "/sys/devices/pci0000:00/0000:00:01.0"
    host.gpu()
    bus = host.at("/sys/bus/pci/devices/0000:05:00.0")
    host.at(port).mkdir(parents=True)
    bus.rename(host.at(port + "/0000:05:00.0"))
    bus.symlink_to(host.at(port + "/0000:05:00.0"))
    host.write(port + "/max_link_width", "8\n")
    host.write("/sys/kernel/iommu_groups/7/type", "DMA-FQ\n")
    host.at(port + "/0000:05:00.0/iommu_group").symlink_to(host.at("/sys/kernel/iommu_groups/7"))
    for options in ({}, {"pythons": NO_PYTHON}):
        (function,) = ask(host, **options)["pci"]["functions"]
        assert (function["port_max_link_width"], function["iommu_type"]) == ("8", "DMA-FQ")
        assert function["max_link_width"] == "16"


LOG = (
    "Nov  1 kernel: NVRM: Xid (PCI:0000:05:00): 13, of an earlier boot\n"
    "Nov  3 kernel: Linux version 6.8.0\n"
    "Nov  3 kernel: something else\n"
    "Nov  3 kernel: NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n"
)


@pytest.mark.parametrize("path", ["/var/log/kern.log", "/var/log/messages", "/var/log/syslog"])
def test_the_drivers_lines_of_this_boot(host: Host, path: str) -> None:
    host.write(path, LOG)
    parts = ask(host)
    part = parts["kernel"]
    assert (part["path"], part["this_boot"], part["truncated"]) == (path, True, False)
    assert part["lines"] == ["Nov  3 kernel: NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."]
    assert [xid.code for xid in gpus(parts).xids] == [79]
    before = list(
        itertools.takewhile(
            lambda one: one != path, ["/dev/kmsg", "/var/log/kern.log", "/var/log/messages", "/var/log/syslog"]
        )
    )
    assert [tried["path"] for tried in part["tried"]] == before


def test_a_long_log_is_read_from_its_end_and_bounded(host: Host) -> None:
    host.write("/var/log/kern.log", "x" * 99 + "\n")
    with host.at("/var/log/kern.log").open("a") as log:
        log.writelines(f"NVRM: Xid (PCI:0000:05:00): 31, {number} {'y' * 500}\n" for number in range(2000))
    part = ask(host)["kernel"]
    assert (len(part["lines"]), part["this_boot"], part["truncated"]) == (40, None, True)
    assert part["lines"][-1].startswith("NVRM: Xid (PCI:0000:05:00): 31, 1999 ")
    assert max(map(len, part["lines"])) == 400


def test_no_log_is_a_value_and_a_fifo_blocks_nothing(host: Host) -> None:
    host.at("/var/log").mkdir(parents=True)
    os.mkfifo(host.at("/var/log/kern.log"))
    part = ask(host)["kernel"]
    assert (part["path"], part["lines"]) == (None, [])
    assert {tried["path"]: tried["error"] for tried in part["tried"]} == {
        "/dev/kmsg": "ENOENT", "/var/log/kern.log": "EINVAL", "/var/log/messages": "ENOENT",
        "/var/log/syslog": "ENOENT",
    }  # fmt: skip


def ring_opens() -> bool:
    """Return whether this user may read the kernel's ring; its mode alone does not tell (dmesg_restrict)."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not ring_opens(), reason="needs a kernel ring that this user may read")
def test_the_real_ring_is_read_to_its_end() -> None:
    part = look(Request()).parts["kernel"]
    assert (part["path"], part["this_boot"], part["truncated"]) == ("/dev/kmsg", True, False)


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/run/systemd/container", "lxc\n", "lxc"),
    ],
)
def test_a_container_says_what_it_is(host: Host, path: str, text: str, kind: str) -> None:
    assert ask(host)["driver"]["container"] is None
    host.write(path, text)
    assert ask(host)["driver"]["container"] == kind
