"""The files of ``scan:``: searched within bounds, what was not searched is told, and only paths leave the host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from agent_host import Host, look

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program import startup
from fleetcheck.agent.program.startup import PathScan
from fleetcheck.agent.program.values import Root
from fleetcheck.facts.host import host_facts
from fleetcheck.inventory.model import Target
from fleetcheck.rules.finding import Finding
from fleetcheck.rules.judge import judge_host

NOTHING = {"system": {"hostname": "host"}}
WRONG = "/opt/ml/lib/python3.12/site-packages/flashinfer/csrc"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def scanned(host: Host, *patterns: str) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Look with these patterns; return the part, and what is found about them."""
    host.venv("/opt/ml")
    answer = look(
        Request(sysroot=str(host.root), venvs=("/opt/ml",), scan=patterns), env={**os.environ, "HOME": "/root"}
    )
    assert answer.parts["end"]["errors"] == []
    target = Target.model_validate({"name": "host", "venvs": [{"path": "/opt/ml"}], "scan": patterns})
    found = judge_host(target, host_facts(answer.parts))
    part: dict[str, Any] = answer.parts["scan"]
    return part, tuple(one for one in found if one.rule == "csrc-hardcoded" or "scan" in one.message)


def test_files_folders_and_globs(host: Host) -> None:
    host.write("/opt/deploy/Dockerfile", f"FROM x\nENV TOKEN=hunter2\nRUN sed -i s/9/12/ {WRONG}/a.cu\n")
    host.write("/opt/deploy/below/deep.sh", f"{WRONG}\n")
    host.write("/srv/a/compose.yaml", f"command: cp x {WRONG}\n")
    host.write("/srv/b/compose.yaml", "command: nothing\n")
    host.write("/root/patch.sh", "cp a /gone/flashinfer/data/csrc/a.cu\n")
    part, findings = scanned(host, "/opt/deploy", "/srv/*/compose.yaml", "~/patch.sh")
    assert {(one["file"], one["line"], one["kind"], one["path"]) for one in part["named"]} == {
        ("/opt/deploy/Dockerfile", 3, "scan", WRONG),
        ("/srv/a/compose.yaml", 1, "scan", WRONG),
        ("/root/patch.sh", 1, "scan", "/gone/flashinfer/data/csrc"),
    }
    assert (part["files"], part["unmatched"], part["errors"], part["truncated"]) == (4, [], [], None)
    assert "hunter2" not in repr(part)
    assert sorted((one.rule, one.severity, one.basis) for one in findings) == [
        ("csrc-hardcoded", "error", "resolved"), ("csrc-hardcoded", "error", "resolved"),
        ("csrc-hardcoded", "warning", "resolved"),
    ]  # fmt: skip


def test_what_was_not_searched_is_told(host: Host) -> None:
    host.write("/a/large", b"x" * (startup.STARTUP_LIMIT + 5) + f"\n{WRONG}\n".encode())
    host.at("/a/loop").symlink_to("loop")
    os.mkfifo(host.at("/a/pipe"))
    host.write("/a/program", b"\x7fELF\0\n" + WRONG.encode())
    part, findings = scanned(host, "/a/large", "/a/loop", "/a/pipe", "/a/program", "/gone", "/a/*.none")
    assert part["named"] == []
    assert part["unmatched"] == ["/gone", "/a/*.none"]
    assert part["errors"] == [
        f"/a/large: searched to its first {startup.STARTUP_LIMIT} bytes",
        "/a/loop: ELOOP",
        "/a/pipe: not a regular file",
    ]
    told = " ".join(one.message for one in findings)
    assert {one.rule for one in findings} == {"expectation-unchecked"}
    assert len(findings) == 5
    assert all(word in told for word in ("/gone matches nothing", "/a/*.none", "ELOOP", "not a regular file"))


def test_no_answer_is_no_pass(host: Host) -> None:
    host.write("/a", "")
    target = Target(name="host", venvs=(), scan=("/a",))
    (found,) = (one for one in judge_host(target, host_facts(NOTHING)) if "scan" in one.message)
    assert (found.rule, found.severity) == ("expectation-unchecked", "warning")
    quiet = judge_host(Target(name="host", venvs=()), host_facts(NOTHING))
    assert [one for one in quiet if "scan" in one.message] == []


def test_it_is_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        host.write(f"/many/{number:03}", f"{WRONG}\n" * 3)
    monkeypatch.setattr(startup, "MOST_SCANNED", 20)
    told = PathScan(Root(str(host.root)), ["/many", "/many/*"]).run()
    assert (told["files"], told["truncated"]) == (20, "more than 20 files or 5 s")
    assert len(told["named"]) <= startup.MOST_NAMED
    monkeypatch.setattr(startup, "MOST_MATCHES", 10)
    told = PathScan(Root(str(host.root)), ["/many/*"]).run()
    assert (told["files"], told["truncated"]) == (10, "more than 10 matches or 5 s")
    monkeypatch.setattr(startup, "SCAN_LIMIT", -1.0)
    assert PathScan(Root(str(host.root)), ["/many"]).run()["files"] == 0
