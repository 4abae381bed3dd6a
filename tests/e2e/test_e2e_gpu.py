"""nvidia-smi in its bad moods behind a real sshd: it costs no other fact of the host, and leaves nothing."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.sshd import NEEDS_SSHD, SSHD, Sshd, wait_until

from fleetcheck.audit import audit
from fleetcheck.demo import smi
from fleetcheck.demo.tree import HostTree
from fleetcheck.inventory.model import Expect, Target, VenvItem
from fleetcheck.remote.settings import NO_CONFIG, Limits, Settings
from fleetcheck.rules.finding import Finding
from fleetcheck.run import Finished, HostResult, Run

SETTINGS = Settings(limits=Limits(smi=8.0), workers=4, ssh_config=NO_CONFIG)
VENV = "/opt/ml-env"
GPUS = 8
WELL = [smi.row(smi.RTX_PRO_6000, number) for number in range(GPUS)]
SEVEN = [row for number, row in enumerate(WELL) if number != 3]
SIX = [row for number, row in enumerate(WELL) if number not in (2, 5)]
TABLE = "\n".join(
    f"|   {number}  {smi.RTX_PRO_6000.name[:19]}...    On  |   {row['pci.bus_id']} Off |                    0 |"
    for number, row in enumerate(WELL)
    if number != 3
)
LOST = "Unable to determine the device handle for GPU3: 0000:13:00.0: Unknown Error"
UNTIL_GONE = 'trap "" TERM HUP INT; while [ -e "$0" ]; do sleep 0.2; done\n'


def answer(rows: list[dict[str, str]], *, before: str = ":", after: str = ":") -> str:
    """A stand-in that answers for ``rows``, with sh text before and behind the answer to a query."""
    body = smi.answering(rows).partition("\n")[2]
    other = f"case $1 in --query-gpu=*) ;; *) ({body}); exit ;; esac"
    return f"#!/bin/sh\n{other}\n{before}\n({body})\n{after}\n"


@dataclass(frozen=True)
class Mood:
    """How nvidia-smi is, where it lies, and what must be said of the GPUs."""

    script: str
    state: str
    count: int | None
    rules: frozenset[str]
    path: str = "/usr/bin/nvidia-smi"


def mood(script: str, state: str, count: int | None, *rules: str, **where: str) -> Mood:
    return Mood(script, state, count, frozenset(rules), **where)


HUNG = ("smi-hung", "expectation-unchecked")
MUTE = ("gpu-unreadable", "expectation-unchecked")
FAULT = ("gpu-fault", "gpu-count")
DENIED = smi.failing(4, "Failed to initialize NVML: Insufficient Permissions\n")
MOODS = {
    "hangs-politely": mood('#!/bin/sh\nwhile [ -e "$0" ]; do sleep 0.2; done\n', "hung", None, *HUNG),
    "hangs": mood(f"#!/bin/sh\n{UNTIL_GONE}", "hung", None, *HUNG),
    "rows-and-hangs": mood(answer(WELL, after=UNTIL_GONE), "hung", GPUS, *HUNG),
    "floods": mood(answer(WELL, after="head -c 100000000 /dev/zero | tr '\\0' x"), "ok", GPUS),
    "floods-first": mood(answer(WELL, before="yes noise | head -c 100000000"), "unknown", None, *MUTE),
    "elsewhere": mood(smi.answering(WELL), "ok", GPUS, path="/usr/lib/wsl/lib/nvidia-smi"),
    "one-lost": mood(answer(SEVEN, before=f"echo '{LOST}'"), "fault", 7, *FAULT),
    "lost-on-stderr": mood(answer(SEVEN, after=f"echo '{LOST}' >&2; exit 15"), "fault", 7, *FAULT),
    "two-lost-by-index": mood(
        answer(
            SIX,
            before='for n in 2 5; do echo "Unable to determine the device handle for GPU$n: Unknown Error"; done',
        ),
        "fault",
        6,
        *FAULT,
    ),
    "table": mood(
        f"#!/bin/sh\nprintf '%s\\n' {shlex.quote(TABLE)}\n",
        "missing",
        7,
        "gpu-missing",
        "gpu-count",
    ),
    "segfault": mood("#!/bin/sh\nkill -SEGV $$\n", "unknown", None, *MUTE),
    "silent": mood("#!/bin/sh\nexit 0\n", "unknown", None, *MUTE),
    "no-permission": mood(DENIED, "no-permission", None, *MUTE),
}


@dataclass
class Fleet:
    """What was made and what came back."""

    sshd: Sshd
    folder: Path
    run: Run

    def host(self, name: str) -> HostResult:
        (host,) = (host for host in self.run.hosts if host.name == name)
        return host

    def findings(self, name: str) -> list[Finding]:
        return [one for one in self.run.findings if one.host == name]


def tree(folder: Path, name: str, script: str, path: str = "/usr/bin/nvidia-smi") -> HostTree:
    """A host with eight GPUs on PCI, the driver, a toolkit and an environment, and this nvidia-smi."""
    host = HostTree(folder / name, name)
    host.pci(smi.RTX_PRO_6000, GPUS)
    host.driver(devices=GPUS)
    host.write("/usr/local/cuda-12.9/version.json", '{"cuda": {"version": "12.9.0"}}')
    host.environment(VENV)
    host.write(path, script, 0o755)
    return host


def target(sshd: Sshd, host: HostTree, name: str) -> Target:
    expect = Expect(gpus=GPUS, compute_capability="12.0", driver=">=580.95.05")
    return sshd.target(name, sysroot=str(host.root), venvs=(VenvItem(path=VENV),), expect=expect)


def audited(*targets: Target, settings: Settings = SETTINGS) -> Run:
    for event in audit(targets, settings=settings):
        if isinstance(event, Finished):
            return event.run
    raise AssertionError("the audit ended without a run")


def running(folder: Path) -> list[int]:
    """The processes that run something below ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(folder) in line and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="fleetcheck-gpu-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    if SSHD is None:
        pytest.skip(NEEDS_SSHD)
    with Sshd() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def fleet(folder: Path, sshd: Sshd) -> Fleet:
    trees = {name: tree(folder, name, mood.script, mood.path) for name, mood in MOODS.items()}
    return Fleet(sshd, folder, audited(*(target(sshd, host, name) for name, host in trees.items())))


@pytest.mark.parametrize("name", MOODS)
def test_the_gpus_are_what_they_are(fleet: Fleet, name: str) -> None:
    wanted, host = MOODS[name], fleet.host(name)
    assert (host.outcome, host.message) == ("checked", None)
    assert (host.gpus.state, host.gpus.count) == (wanted.state, wanted.count)
    found = {one.rule for one in fleet.findings(name)} - {"flashinfer-missing"}
    assert found == wanted.rules


@pytest.mark.parametrize("name", MOODS)
def test_every_other_fact_of_the_host_is_kept(fleet: Fleet, name: str) -> None:
    host = fleet.host(name)
    assert (host.gpus.driver, host.gpus.kernel_module, host.gpus.pci_count) == ("580.95.05", "open", GPUS)
    assert len(host.gpus.devices) == GPUS
    assert all(device.compute_capability == "12.0" for device in host.gpus.devices)
    assert [(venv.path, venv.state) for venv in host.venvs] == [(VENV, "no-flashinfer")]
    assert [(one.path, one.nvcc) for one in host.toolkits] == [("/usr/local/cuda-12.9", None)]
    assert host.system is not None
    assert host.system.boot_time == 1760000000


def test_rows_before_the_hang_are_kept(fleet: Fleet) -> None:
    devices = fleet.host("rows-and-hangs").gpus.devices
    assert [device.index for device in devices] == list(range(GPUS))
    assert all(device.uuid is not None for device in devices)


@pytest.mark.parametrize("name", ["one-lost", "lost-on-stderr"])
def test_seven_keep_their_numbers_and_the_lost_one_is_named(fleet: Fleet, name: str) -> None:
    devices = fleet.host(name).gpus.devices
    assert [device.index for device in devices if device.state == "ok"] == [0, 1, 2, 4, 5, 6, 7]
    (lost,) = (device for device in devices if device.state == "fault")
    assert (lost.index, lost.bus_id, lost.name) == (3, "00000000:13:00.0", smi.RTX_PRO_6000.name)


def test_a_table_instead_of_rows_tells_which_gpus_there_are(fleet: Fleet) -> None:
    """All else is what sysfs and /proc say: what it shows of the driver and the product is not read."""
    gpus = fleet.host("table").gpus
    shown = [(device.index, device.bus_id, device.state) for device in gpus.devices]
    ids = [f"00000000:{0x10 + number:02X}:00.0" for number in range(GPUS)]
    assert shown == [
        *((number, ids[number], "unknown") for number in range(GPUS) if number != 3), (None, ids[3], "missing"),
    ]  # fmt: skip
    assert gpus.diagnostics == ("nvidia-smi printed its table for people, which was not asked for",)
    assert {device.compute_capability_basis for device in gpus.devices} == {"guessed"}


def test_nothing_of_it_is_left_running(fleet: Fleet) -> None:
    fleet.sshd.wait_idle()
    assert wait_until(lambda: running(fleet.folder) == []), running(fleet.folder)


def hung_for_good(log: Path) -> str:
    """A stand-in that cannot be ended, as one in state D: it runs on in a session of its own, and /proc tells."""
    return (
        f"#!/bin/sh\necho started >>{shlex.quote(str(log))}\n"
        "root=${0%/usr/bin/nvidia-smi}\n"
        f'setsid sh -c \'mkdir -p "$2/proc/$$"; echo "$$ (nvidia-smi) D 1 $$" >"$2/proc/$$/stat"; '
        f"{UNTIL_GONE.strip()}' "
        '"$0" x "$root" >/dev/null 2>&1 </dev/null &\n'
        f"{UNTIL_GONE}"
    )


def test_ten_audits_of_a_hung_host_leave_no_more_than_one(folder: Path, sshd: Sshd, tmp_path: Path) -> None:
    log = tmp_path / "started"
    host = tree(folder, "stuck", hung_for_good(log))
    where = target(sshd, host, "stuck")
    quick = Settings(limits=Limits(smi=3.0), workers=1, ssh_config=NO_CONFIG)
    left: list[list[int]] = []
    try:
        for _ in range(10):
            (result,) = audited(where, settings=quick).hosts
            assert result.gpus.state == "hung"
            assert [venv.state for venv in result.venvs] == ["no-flashinfer"]
            sshd.wait_idle()
            left.append(sorted(running(host.root)))
        assert log.read_text() == "started\n"
        assert len(left[0]) == 1
        assert left == [left[0]] * 10
        assert result.gpus.blocked == (f"nvidia-smi ({left[0][0]})",)
    finally:
        host.place("/usr/bin/nvidia-smi").unlink()
    assert wait_until(lambda: running(host.root) == [])


def test_ten_audits_of_one_that_can_be_killed_leave_none(folder: Path, sshd: Sshd) -> None:
    host = tree(folder, "killable", MOODS["hangs"].script)
    quick = Settings(limits=Limits(smi=1.0), workers=1, ssh_config=NO_CONFIG)
    for _ in range(10):
        (result,) = audited(target(sshd, host, "killable"), settings=quick).hosts
        assert result.gpus.state == "hung"
    sshd.wait_idle()
    assert wait_until(lambda: running(host.root) == [])
