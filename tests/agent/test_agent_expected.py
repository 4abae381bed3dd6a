"""Files of ``expect.files``: hashed on the host, so that right is met and wrong is unmet; only sums leave it."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from agent_host import Host, look

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program import expected
from fleetcheck.agent.program.expected import gather_expected
from fleetcheck.agent.program.values import Root
from fleetcheck.facts.host import host_facts
from fleetcheck.inventory.model import Target
from fleetcheck.remote.reach import expected_files
from fleetcheck.rules.judge import judge_host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def test_right_wrong_gone_and_unreadable(host: Host) -> None:
    host.venv("/opt/ml")
    host.write("/etc/fleet-release", "hello\n")
    os.mkfifo(host.at("/etc/pipe"))
    right = sha256(b"hello\n").hexdigest()

    def judged(files: dict[str, str]) -> list[tuple[str, str]]:
        target = Target.model_validate({"name": "h", "venvs": [{"path": "/opt/ml"}], "expect": {"files": files}})
        names = expected_files(target)
        answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",), files=names))
        assert "hello" not in repr(answer.parts["expected"])
        found = judge_host(target, host_facts(answer.parts))
        return [(one.rule, one.message) for one in found if one.rule.startswith("expectation-")]

    assert judged({"/etc/fleet-release": right}) == []
    ((rule, message),) = judged({"/etc/fleet-release": "0" * 64})
    assert (rule, message) == ("expectation-unmet", "/etc/fleet-release does not have the expected content.")
    ((rule, message),) = judged({"/etc/gone": right})
    assert (rule, message) == ("expectation-unmet", "/etc/gone is not there, and a content is expected of it.")
    ((rule, message),) = judged({"/etc/pipe": right})
    assert rule == "expectation-unchecked"
    assert "/etc/pipe could not be read" in message


def test_a_name_relative_to_flashinfer_in_each_environment(host: Host) -> None:
    for prefix in ("/opt/a", "/opt/b"):
        host.write(f"{prefix}/lib/python3.12/site-packages/flashinfer/data/csrc/norm.cu", prefix)
    part = gather_expected(Root(str(host.root)), ["data/csrc/norm.cu"], ["/opt/a", "/opt/b", "/opt/none"])
    assert [(one["path"], one["sha256"]) for one in part["files"]] == [
        (f"{p}/lib/python3.12/site-packages/flashinfer/data/csrc/norm.cu", sha256(p.encode()).hexdigest())
        for p in ("/opt/a", "/opt/b")
    ]


def test_it_is_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write("/large", "x" * 4096)
    monkeypatch.setattr(expected, "EXPECTED_LIMIT", 4095)
    monkeypatch.setattr(expected, "MOST_EXPECTED", 1)
    part: dict[str, Any] = gather_expected(Root(str(host.root)), ["/large", "/other"], [])
    assert part["truncated"] == "1 of 2 files"
    assert [(one["path"], one["sha256"], one["error"]) for one in part["files"]] == [
        ("/large", None, "larger than 0 MiB")
    ]
