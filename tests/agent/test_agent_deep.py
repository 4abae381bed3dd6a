"""``--deep``: the real import gives its answer, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from agent_host import FILES, Host, look, start, tree
from support.straced import trace

from fleetcheck.agent.evidence import Request
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
        ("import socket; socket.socket().bind(('127.0.0.1', 0))\n", "PermissionError"),
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
    before = tree(host.root)
    seen = trace(ask(host), tmp_path / "log", {**os.environ, "TMPDIR": str(scratch)})
    assert seen.parts["deep/0"]["imported"]["error"] is None
    assert [line for line in seen.written if f'"{scratch}/fleetcheck-' in line]
    assert (seen.changed_outside(scratch), seen.connections, seen.devices) == ([], [], [])
    assert (tree(host.root), list(scratch.iterdir())) == (before, [])


def test_the_import_takes_what_the_activation_puts_in_front(host: Host, scratch: Path) -> None:
    host.venv("/opt/ml", files=REAL)
    copy = host.at("/srv/repo/flashinfer")
    shutil.copytree(next(host.at("/opt/ml").glob("lib/python*/site-packages/flashinfer")), copy)
    with host.at("/opt/ml/bin/activate").open("a") as script:
        script.write(f"export PYTHONPATH={host.at('/srv/repo')}\n")
    env = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": "/nowhere"}
    answer = look(ask(host), env=env)
    found = host_facts(answer.parts).venvs[0].flashinfer
    assert found is not None
    assert (found.root, found.basis) == ("/srv/repo/flashinfer", "imported")
    assert found.imported_csrc_dir == found.csrc_dir == "/srv/repo/flashinfer/data/csrc"
    assert found.hidden is not None
    assert (found.hidden.by, found.recorded_version) == ("activation", None)
