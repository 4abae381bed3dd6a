"""Broken hosts: files closed to an ordinary user, loops of links, folders without end, processes that vanish."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_host import FILES, Answer, Host, look

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program import sources
from fleetcheck.agent.program.distributions import Record
from fleetcheck.agent.program.values import Root
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import Venv
from fleetcheck.inventory.model import Target, VenvItem
from fleetcheck.rules.judge import judge_host

CLOSED = 0o000
STRANGER = 65534
SOURCES = ("trtllm_allreduce_fusion.cu", "trtllm_moe_allreduce_fusion.cu")
WHOLE = {**FILES, **{f"flashinfer/data/csrc/{name}": "// kernel\n" for name in SOURCES}}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


@pytest.fixture
def open_host() -> Iterator[Host]:
    """A host in a folder that other users can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="fleetcheck-agent-") as name:
        Path(name).chmod(0o755)
        yield Host(Path(name) / "root")


def judged(answer: Answer, *paths: str) -> tuple[list[Venv], dict[str, set[str]]]:
    """Return the environments, and the rules that fired on each path; this host has no compiler."""
    assert answer.collector.ended
    facts = host_facts(answer.parts, "12.0")
    target = Target(name="host", venvs=tuple(VenvItem(path=path) for path in paths))
    fired: dict[str, set[str]] = {path: set() for path in paths}
    for finding in judge_host(target, facts):
        if finding.venv in fired and finding.cause is None and finding.rule != "nvcc-missing":
            fired[finding.venv].add(finding.rule)
    return list(facts.venvs), fired


def for_everybody(host: Host, path: str) -> Path:
    """Make an environment whose interpreter any user may run, and return its site-packages."""
    if os.getuid() != 0:
        pytest.skip("needs root, to look as another user")
    python = Path("/usr/bin/python3")
    if not python.exists():
        pytest.skip("needs /usr/bin/python3, which another user may run")
    name = subprocess.run(
        [str(python), "-I", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    site = host.venv(path, python=str(python.with_name(name)), files=WHOLE)
    (host.at(path) / "bin/python").unlink()
    (host.at(path) / "bin/python").symlink_to(python.resolve())
    if site.parent.name != name:
        site.parent.rename(site.parent.with_name(name))
        site = site.parent.with_name(name) / site.name
    return site


def seen_by_a_stranger(host: Host, closed: Path) -> Answer:
    """Look at ``/opt/ml`` as another user while one path is closed to him."""
    mode = closed.stat().st_mode
    closed.chmod(CLOSED)
    try:
        request = Request(sysroot=str(host.root), venvs=("/opt/ml",))
        return look(request, pythons=("/usr/bin/python3",), user=STRANGER, group=STRANGER, extra_groups=[])
    finally:
        closed.chmod(mode)


@pytest.mark.parametrize(
    ("closed", "state", "rules"),
    [
        ("flashinfer/jit/env.py", "unreadable", {"csrc-unreadable", "fusion-refused"}),
        ("flashinfer/data/csrc", "unreadable", {"csrc-unreadable", "fusion-refused"}),
        ("flashinfer/jit/comm.py", "complete", {"fusion-gate-unreadable"}),
        ("flashinfer/data/csrc/norm.cu", "complete", {"fusion-refused"}),
        (
            "flashinfer/data/include/flashinfer/comm/trtllm_allreduce.cuh",
            "complete",
            {"csrc-unreadable", "fusion-refused"},
        ),
        ("flashinfer_python-0.6.2.dist-info/RECORD", "unknown", {"fusion-refused", "expectation-unchecked"}),
        ("flashinfer_python-0.6.2.dist-info/METADATA", "complete", {"fusion-refused"}),
        ("flashinfer_python-0.6.2.dist-info", "unknown", {"fusion-refused", "expectation-unchecked"}),
        ("flashinfer/jit", "unreadable", {"csrc-unreadable", "fusion-gate-unreadable"}),
    ],
)
def test_closed_to_an_ordinary_user(open_host: Host, closed: str, state: str, rules: set[str]) -> None:
    site = for_everybody(open_host, "/opt/ml")
    (venv,), fired = judged(seen_by_a_stranger(open_host, site / closed), "/opt/ml")
    assert venv.state == "ok", venv.error
    assert venv.flashinfer is not None
    assert (venv.flashinfer.csrc_state, venv.flashinfer.csrc_missing) == (state, ())
    assert "csrc-missing" not in fired["/opt/ml"]
    assert fired["/opt/ml"] == rules


@pytest.mark.parametrize("closed", ["", "flashinfer"])
def test_what_may_not_be_looked_into_is_not_missing(open_host: Host, closed: str) -> None:
    site = for_everybody(open_host, "/opt/ml")
    (venv,), fired = judged(seen_by_a_stranger(open_host, site / closed), "/opt/ml")
    assert (venv.state, "may not be read" in (venv.error or "")) == ("unreadable", True)
    assert "venv-unreadable" in fired["/opt/ml"]
    assert not fired["/opt/ml"] & {"flashinfer-missing", "flashinfer-remnant"}


@pytest.mark.parametrize("closed", ["corp.pth", "__editable__.corp-1.pth", "late.py"])
def test_a_start_up_file_that_may_not_be_read_leaves_doubt(open_host: Host, closed: str) -> None:
    """What serves may read it: whether it puts another package in front is not known then."""
    site = for_everybody(open_host, "/opt/ml")
    (site / "corp.pth").write_text("/srv\nimport late\n" if closed == "late.py" else "/srv\n")
    (site / closed).touch()
    (venv,), fired = judged(seen_by_a_stranger(open_host, site / closed), "/opt/ml")
    assert (venv.state, venv.flashinfer and venv.flashinfer.basis) == ("ok", "guessed")
    assert venv.flashinfer is not None
    shown = "/" + str((site / closed).relative_to(open_host.root))
    assert [(one.file, one.line, one.word) for one in venv.flashinfer.start_files] == [(shown, None, "closed")]
    assert fired["/opt/ml"] == {"csrc-startup", "fusion-refused"}
    (venv,), fired = judged(look(Request(sysroot=str(open_host.root), venvs=("/opt/ml",))), "/opt/ml")
    assert (fired["/opt/ml"], venv.flashinfer and venv.flashinfer.basis) == ({"fusion-refused"}, "resolved")


def test_a_package_that_only_a_closed_file_can_lead_to_is_not_called_absent(open_host: Host) -> None:
    site = for_everybody(open_host, "/opt/ml")
    (site / "flashinfer").rename(open_host.at("/srv-flashinfer"))
    (site / "repo.pth").write_text("/srv\n")
    (venv,), fired = judged(seen_by_a_stranger(open_host, site / "repo.pth"), "/opt/ml")
    assert (venv.state, "repo.pth may not be read" in (venv.error or "")) == ("unreadable", True)
    assert fired["/opt/ml"] == {"venv-unreadable"}


@pytest.mark.parametrize(
    ("place", "state"),
    [
        ("", "unreadable"),
        ("bin", "unreadable"),
        ("bin/python", "broken"),
        ("bin/activate", "ok"),
        ("pyvenv.cfg", None),
        ("SITE", "no-flashinfer"),
        ("SITE/flashinfer", "no-flashinfer"),
        ("SITE/flashinfer/__init__.py", None),
        ("SITE/flashinfer/jit", "ok"),
        ("SITE/flashinfer/data", "ok"),
        ("SITE/flashinfer/data/csrc", "ok"),
        ("SITE/flashinfer_python-0.6.2.dist-info", "ok"),
    ],
)
def test_loops_of_links(host: Host, place: str, state: str | None) -> None:
    site = host.venv("/opt/ml")
    host.venv("/opt/beside")
    path = host.at("/opt/ml") / place.replace("SITE", str(site))
    path.rename(f"{path}.away")
    path.symlink_to(path.name)
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml", "/opt/beside")))
    (broken, beside), fired = judged(answer, "/opt/ml", "/opt/beside")
    assert (beside.state, fired["/opt/beside"]) == ("ok", {"fusion-refused"})
    assert state is None or broken.state == state, broken.error
    assert fired["/opt/ml"] - {"fusion-refused"} or place in ("bin/activate", "pyvenv.cfg")
    assert broken.state != "missing"


def test_a_folder_of_sources_without_end(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What RECORD lists is found among more files than are listed, so that nothing is called missing."""
    site = host.venv("/opt/ml")
    csrc = site / "flashinfer/data/csrc"
    for number in range(500):
        (csrc / f"0{number}.o").touch()
    dist = {"record": "present"}
    monkeypatch.setattr(sources, "MOST_BELOW", 100)
    monkeypatch.setattr(sources.below, "__defaults__", (100, ""))
    monkeypatch.setattr(sources.Seen, "listings", {})
    folder = str(site / "flashinfer_python-0.6.2.dist-info")
    record = Record([dist], [folder], str(site / "flashinfer"), sources.RECORDED)
    told = sources.describe_csrc(Root(""), str(site / "flashinfer"), str(csrc), record)
    assert (told["missing"], told["missing_count"], told["error"]) == ([], 0, None)
    assert 100 <= told["files"] <= 102
    assert len(told["extra"]) == 50


ODD = {
    "empty folder": lambda place: place.mkdir(),
    "a file": lambda place: place.write_text("x"),
    "gone": lambda place: place.symlink_to("/proc/0/gone"),
    "a loop": lambda place: place.symlink_to(place.name),
    "files that are folders": lambda place: [
        (place / name).mkdir(parents=True) for name in ("cmdline", "environ", "maps", "stat", "status", "cgroup")
    ],
    "files that are empty": lambda place: [
        place.mkdir(), *((place / name).touch() for name in ("cmdline", "environ", "maps", "stat", "cgroup"))
    ],
    "binary files": lambda place: [
        place.mkdir(),
        *((place / name).write_bytes(bytes(range(256)) * 400) for name in ("environ", "maps", "stat", "cgroup")),
        (place / "cmdline").write_bytes(b"/opt/ml/bin/python\0-m\0sglang.launch_server\0" + bytes(range(256)) * 9),
    ],
    "links that lead nowhere": lambda place: [
        place.mkdir(),
        *((place / name).symlink_to("nowhere") for name in ("exe", "cwd", "root", "environ", "maps")),
        (place / "cmdline").write_bytes(b"/opt/ml/bin/python\0-m\0sglang.launch_server\0"),
        (place / "ns").symlink_to("ns"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_odd_entries_of_proc(host: Host, kind: str) -> None:
    host.venv("/opt/ml")
    ODD[kind](host.at("/proc/77"))
    host.write("/proc/78/cmdline", "/opt/ml/bin/python\0-m\0sglang.launch_server\0")
    host.write("/proc/78/stat", "78 (python) S 1 " + "1 " * 40)
    answer = look(Request(sysroot=str(host.root), discover=("running",)))
    facts = host_facts(answer.parts)
    assert answer.parts["end"]["errors"] == []
    assert [venv.path for venv in facts.venvs] == ["/opt/ml"]
    assert facts.processes is not None
    assert 78 in {process.pid for process in facts.processes}


def test_processes_that_vanish_while_they_are_looked_at() -> None:
    """A real /proc in which processes come and go by the hundred."""
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            subprocess.run(["/bin/true"], check=True)

    workers = [threading.Thread(target=churn) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        answers = [look(Request(discover=("running",))) for _ in range(3)]
    finally:
        over.set()
        for worker in workers:
            worker.join()
    for answer in answers:
        assert answer.parts["end"]["reason"] == "done"
        assert [line for line in answer.parts["end"]["errors"] if not line.startswith("smi")] == []
        assert answer.parts["processes"]["error"] is None
