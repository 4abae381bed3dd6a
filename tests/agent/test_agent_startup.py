"""Paths of sources that are written down where servers are started: found in files, told without their lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from agent_host import Host, look, this_python
from serving_host import LIBRARY, SERVE, environment

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program.startup import Startup, csrc_paths, unit_of
from fleetcheck.agent.program.values import Root
from fleetcheck.facts.host import host_facts

UNIT = """[Service]
Environment=API_KEY=hunter2 CSRC=/opt/a/flashinfer/csrc
EnvironmentFile=-/etc/default/sg
ExecStartPre=/opt/sg/patch.sh --all
ExecStart=/opt/ml/bin/python -m sglang.launch_server
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def test_units_with_drop_ins_and_what_they_name(host: Host) -> None:
    host.write("/etc/systemd/system/sg@.service", UNIT)
    host.write("/etc/systemd/system/sg@1.service.d/a.conf", "\nExecStartPost=/bin/cp x ~/flashinfer/csrc/\n")
    host.write("/etc/systemd/system/sg@1.service.d/notes.txt", "/opt/n/flashinfer/csrc\n")
    host.write("/etc/default/sg", "TOKEN=hunter2\nDIR='/opt/b/flashinfer/data/csrc'\n")
    host.write("/opt/sg/patch.sh", "#!/bin/sh\nsed -i s/9/1/ /opt/c/flashinfer/csrc/trtllm_allreduce.cu\n")
    found = Startup(Root(str(host.root)))
    found.unit("sg@1.service")
    assert {(one["kind"], one["file"], one["line"], one["path"]) for one in found.named} == {
        ("unit", "/etc/systemd/system/sg@.service", 2, "/opt/a/flashinfer/csrc"),
        ("unit", "/etc/systemd/system/sg@1.service.d/a.conf", 2, "~/flashinfer/csrc"),
        ("environment", "/etc/default/sg", 2, "/opt/b/flashinfer/data/csrc"),
        ("script", "/opt/sg/patch.sh", 2, "/opt/c/flashinfer/csrc"),
    }
    assert "hunter2" not in repr(found.__dict__)


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("cp a.cu /x/flashinfer/csrc", ["/x/flashinfer/csrc"]),
        ('A="/x/flashinfer/csrc":/y/flashinfer/csrc/z.cu', ["/x/flashinfer/csrc", "/y/flashinfer/csrc"]),
        ("cd /x/flashinfer/csrc2", []),
        ("cd flashinfer/csrc", []),
        ("cd /x/other/csrc", []),
        ("csrc", []),
        (
            "/flashinfer/" + "csrc/" * 3,
            ["/flashinfer/csrc", "/flashinfer/csrc/csrc", "/flashinfer/csrc/csrc/csrc"],
        ),
    ],
)
def test_paths_in_a_line(line: str, paths: list[str]) -> None:
    assert list(csrc_paths(line)) == paths


def test_the_unit_of_a_cgroup() -> None:
    assert unit_of("0::/system.slice/system-sg.slice/sg@1.service\n") == "sg@1.service"
    assert unit_of("0::/user.slice/user-0.slice/session-1.scope\n") is None
    assert unit_of("0::/user.slice/user-1.slice/user@1.service/app.slice/sg.service\n") == "sg.service"
    assert unit_of("0::/user.slice/user-1.slice/user@1.service/init.scope") is None


def test_files_that_are_none_and_loops(host: Host) -> None:
    host.write("/etc/systemd/system/sg.service", "ExecStart=/loop\nExecStop=/binary\nExecReload=/dev/null\n")
    host.at("/loop").symlink_to("loop")
    host.write("/binary", b"\x7fELF\0/x/flashinfer/csrc\n")
    found = Startup(Root(str(host.root)))
    found.unit("sg.service")
    found.unit("sg.service")
    assert found.named == []
    assert found.errors == ["/loop: ELOOP"]


def test_the_script_of_a_real_server(tmp_path: Path) -> None:
    folder = tmp_path / "ml"
    site = environment(folder)
    script = tmp_path / "start.sh"
    wrong = f"{site}/flashinfer/csrc"
    script.write_text(f': sources {wrong}\n"$@"\nexit 0\n')
    env = {"PATH": "/usr/bin:/bin", "SERVE_TITLE": "", "SERVE_PATHS": str(site / LIBRARY)}
    command = ["sh", "start.sh", str(folder / "bin/python"), "-I", "-S", "-c", SERVE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=tmp_path
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        answer = look(Request(), pythons=(this_python(),))
        process.stdin.close()
    named = [one for one in host_facts(answer.parts).named_csrc if one.file == str(script)]
    assert [(one.line, one.kind, one.path) for one in named] == [(1, "script", wrong)]
