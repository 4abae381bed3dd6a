"""``--deep``: the real import gives its answer, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from agent_host import FILES, Host, look, read_until, start, this_python, tree

from fleetcheck.agent.bundle import new_marker, script
from fleetcheck.agent.evidence import Request
from fleetcheck.agent.frame import Collector
from fleetcheck.facts.host import host_facts

ENV_PY = """import os, pathlib, socket
_package_root: pathlib.Path = pathlib.Path(__file__).resolve().parents[1]
_base = pathlib.Path(os.environ.get("FLASHINFER_WORKSPACE_BASE", pathlib.Path.home()))
FLASHINFER_WORKSPACE_DIR = _base / ".cache" / "flashinfer" / os.environ["FLASHINFER_CUDA_ARCH_LIST"]
FLASHINFER_CSRC_DIR: pathlib.Path = _package_root / "data" / "csrc"
os.makedirs(FLASHINFER_WORKSPACE_DIR, exist_ok=True)
(FLASHINFER_WORKSPACE_DIR / "flashinfer_jit.log").write_text("log")
os.makedirs(FLASHINFER_CSRC_DIR, exist_ok=True)
"""
REAL = {**FILES, "flashinfer/__init__.py": "__version__ = '0.6.2'\n", "flashinfer/jit/env.py": ENV_PY}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def ask(host: Host) -> Request:
    return Request(sysroot=str(host.root), venvs=("/opt/ml",), deep=True)


def test_the_import_answers_and_its_folder_is_gone(host: Host, scratch: Path) -> None:
    host.venv("/opt/ml", files=REAL)
    before = tree(host.root)
    answer = look(ask(host), env={**os.environ, "TMPDIR": str(scratch)})
    said = answer.parts["deep/0"]["imported"]
    assert said["error"] is None
    facts = host_facts(answer.parts)
    found = facts.venvs[0].flashinfer
    assert found is not None
    assert said["csrc_dir"] == found.imported_csrc_dir == found.csrc_dir
    assert (found.basis, found.imported_version, found.imported_error) == ("imported", "0.6.2", None)
    assert said["version"] == "0.6.2"
    assert answer.parts["end"]["errors"] == []
    assert (tree(host.root), list(scratch.iterdir())) == (before, [])


def test_without_deep_nothing_is_imported(host: Host) -> None:
    host.venv("/opt/ml", files={**REAL, "flashinfer/__init__.py": "raise SystemExit(9)\n"})
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",)))
    assert not [name for name in answer.parts if name.startswith("deep")]
    assert answer.venv()["state"] == "ran"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("import os; os.makedirs(__file__ + '.d')\n", "PermissionError"),
        ("open(__file__ + '.new', 'w')\n", "PermissionError"),
        ("import socket; socket.create_connection(('127.0.0.1', 9), 1)\n", "PermissionError"),
        ("import os; os.rename(__file__, __file__ + 'x')\n", "PermissionError"),
        ("raise SystemExit('no')\n", "SystemExit"),
        ("import torch_that_is_absent\n", "ModuleNotFoundError"),
    ],
)
def test_what_the_import_may_not_do_is_an_error_and_not_done(
    host: Host, scratch: Path, body: str, error: str
) -> None:
    host.venv("/opt/ml", files={**REAL, "flashinfer/jit/env.py": body + ENV_PY})
    before = tree(host.root)
    answer = look(ask(host), env={**os.environ, "TMPDIR": str(scratch)})
    assert answer.parts["deep/0"]["imported"]["error"].startswith(error)
    assert (tree(host.root), list(scratch.iterdir())) == (before, [])
    facts = host_facts(answer.parts)
    assert facts.venvs[0].flashinfer is not None
    assert facts.venvs[0].flashinfer.imported_error is not None
    assert facts.venvs[0].flashinfer.basis == "resolved"


def test_an_end_in_the_middle_leaves_no_folder(host: Host, scratch: Path) -> None:
    host.venv("/opt/ml", files={**REAL, "flashinfer/jit/env.py": "import time\ntime.sleep(1000)\n"})
    process, _ = start(ask(host), env={**os.environ, "TMPDIR": str(scratch)})
    with process:
        until = time.monotonic() + 60
        while not list(scratch.iterdir()):
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.stdout.read()
    while list(scratch.iterdir()):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_only_the_scratch_folder_is_written(host: Host, scratch: Path, tmp_path: Path) -> None:
    host.venv("/opt/ml", files=REAL)
    marker, log = new_marker(), tmp_path / "log"
    calls = "trace=open,openat,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat2,socket,connect"
    command = ["strace", "-f", "-qq", "-s", "300", "-e", calls, "-o", str(log), "/bin/sh"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(scratch)}
    ) as process:
        assert process.stdin is not None
        process.stdin.write(script(ask(host), marker, pythons=(this_python(),)))
        process.stdin.flush()
        collector = Collector(marker, 8 << 20)
        read_until(process, collector, 120, lambda: collector.ended)
        process.stdin.close()
    assert collector.parts["deep/0"]["imported"]["error"] is None
    lines = log.read_text(errors="replace").splitlines()
    done = [line for line in lines if re.search(r"O_(WRONLY|RDWR|CREAT)|mkdir|unlink|rename|creat\(", line)]
    done = [line for line in done if " = -1 " not in line and '"/dev/null"' not in line]
    assert done
    # Below the folder that is removed, the kernel is asked by name alone, in an open folder.
    assert [line for line in done if f'"{scratch}/fleetcheck-' not in line] == []
    assert not [line for line in lines if '"/dev/nvidia' in line]
    assert not [line for line in lines if "socket(" in line and "AF_UNIX" not in line]
    assert list(scratch.iterdir()) == []
