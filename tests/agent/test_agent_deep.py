"""``--deep``: the real import gives its answer, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from agent_host import FILES, Answer, Host, look, start, tree
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
# The guard's refusal told as something else, a file that it kept from being there, and one that changed nothing.
WRAPPED = """try:
    open(__file__ + '.new', 'w')
except OSError as error:
    raise RuntimeError('no cache') from error
"""
NEVER_WRITTEN = """try:
    open(__file__ + '.new', 'w')
except OSError:
    pass
open(__file__ + '.new')
"""
SWALLOWED = """try:
    open(__file__ + '.new', 'w')
except OSError:
    pass
import torch_that_is_absent
"""


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
    ("body", "error", "state"),
    [
        ("import os; os.makedirs(__file__ + '.d')\n", "PermissionError", "refused"),
        ("open(__file__ + '.new', 'w')\n", "PermissionError", "refused"),
        ("import socket; socket.create_connection(('127.0.0.1', 9), 1)\n", "PermissionError", "refused"),
        ("import socket; socket.socket().bind(('127.0.0.1', 0))\n", "PermissionError", "refused"),
        ("import os; os.rename(__file__, __file__ + 'x')\n", "PermissionError", "refused"),
        (WRAPPED, "RuntimeError: no cache", "refused"),
        (NEVER_WRITTEN, "FileNotFoundError", "refused"),
        ("raise SystemExit('no')\n", "SystemExit", "failed"),
        ("import torch_that_is_absent\n", "ModuleNotFoundError", "failed"),
        (SWALLOWED, "ModuleNotFoundError", "failed"),
        ("open('/etc/shadow.that.is.absent')\n", "FileNotFoundError", "failed"),
        ("raise RuntimeError('No CUDA GPUs are available')\n", "RuntimeError", "no-gpu"),
    ],
)
def test_what_the_import_may_not_do_is_an_error_and_not_done(
    host: Host, scratch: Path, body: str, error: str, state: str
) -> None:
    host.venv("/opt/ml", files={**REAL, "flashinfer/jit/env.py": body + ENV_PY})
    before = tree(host.root)
    answer = look(ask(host), env={**os.environ, "TMPDIR": str(scratch)})
    assert answer.parts["deep/0"]["imported"]["error"].startswith(error)
    assert (tree(host.root), list(scratch.iterdir())) == (before, [])
    facts = host_facts(answer.parts)
    assert facts.venvs[0].flashinfer is not None
    assert facts.venvs[0].flashinfer.imported_error is not None
    assert facts.venvs[0].flashinfer.imported_state == state
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


def answered(answer: Answer) -> tuple[str | None, str | None]:
    """Return how the first environment's import ended, and what was said of it."""
    found = host_facts(answer.parts).venvs[0].flashinfer
    assert found is not None
    return found.imported_state, found.imported_error


def test_an_interpreter_that_ends_in_the_import_is_a_failure(host: Host, scratch: Path) -> None:
    host.venv("/opt/ml", files={**REAL, "flashinfer/jit/env.py": "import os; os.abort()\n"})
    answer = look(ask(host), env={**os.environ, "TMPDIR": str(scratch)})
    assert answered(answer)[0] == "failed"


def test_without_a_scratch_folder_the_import_is_told_as_not_made(host: Host, tmp_path: Path) -> None:
    host.venv("/opt/ml", files=REAL)
    answer = look(ask(host), env={**os.environ, "TMPDIR": str(tmp_path / "absent")})
    state, why = answered(answer)
    assert (state, (why or "").partition(":")[0]) == ("not-made", "no scratch folder")


def test_an_import_for_which_there_was_no_time_is_told_as_not_made(host: Host, scratch: Path) -> None:
    host.venv("/opt/ml", files={**REAL, "flashinfer/jit/env.py": "import time\ntime.sleep(1000)\n"})
    answer = look(replace(ask(host), host_limit=4.0), env={**os.environ, "TMPDIR": str(scratch)})
    assert answered(answer) == ("not-made", "limit")
    assert list(scratch.iterdir()) == []
