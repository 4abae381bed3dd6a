"""What serves as root, looked at by an ordinary user over a real sshd: it is named, never passed by as ok."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent.agent_host import FILES, look
from support.audits import fleetcheck
from support.scenarios import STRANGER, has_stranger
from support.sshd import NEEDS_SSHD, SSHD, Sshd

from fleetcheck.agent.evidence import Request
from fleetcheck.facts.host import host_facts
from fleetcheck.inventory.model import Target
from fleetcheck.rules.judge import judge_host

PYTHON = "/usr/bin/python3"
SERVER = "print('ready', flush=True)\ninput()\n"
PACKAGES = {**FILES, "sglang/__init__.py": "", "sglang/launch_server.py": SERVER}
ACTIVATED = 'cd / && . "$1/bin/activate" && exec python -B -m sglang.launch_server --tp 8'
BY_PATH = 'cd / && exec "$1/bin/python" -B -m sglang.launch_server --tp 8'
HIDING = """#!/bin/sh
exec unshare -p -f -m sh -c 'mount -t proc -o hidepid=2 proc /proc && \\
setpriv --reuid {0} --regid {1} --clear-groups /bin/sh; exit $?'
"""

pytestmark = [
    pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD),
    pytest.mark.skipif(
        os.geteuid() != 0 or not has_stranger(), reason="needs root, and the account fleetcheck-bash"
    ),
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="needs /usr/bin/python3, which every user can start"),
]


@dataclass(frozen=True)
class Place:
    """A folder that every user can read, with an environment, and the sshd that lets them log in."""

    folder: Path
    sshd: Sshd

    def environment(self, name: str) -> Path:
        """Make an environment with FlashInfer and a server that waits."""
        venv = self.folder / name
        if venv.exists():
            return venv
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=120)
        (site,) = venv.glob("lib/python3*/site-packages")
        for path, text in PACKAGES.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        return venv

    def audit(self, *venvs: str, user: str = STRANGER) -> dict[str, Any]:
        """Audit this machine as a user, through the command, and return the document."""
        host = {
            "address": self.sshd.addresses[0], "port": self.sshd.port, "user": user, "venvs": list(venvs),
            "identity_file": str(self.sshd.key), "known_hosts": str(self.sshd.known_hosts),
        }  # fmt: skip
        inventory = self.folder / "inventory.yaml"
        inventory.write_text(json.dumps({"hosts": {"gpu01": host}}))
        done = fleetcheck("audit", "-i", str(inventory), "--ssh-config", "none", "--format", "json")
        assert done.returncode in (0, 1), done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["hosts"][0]["outcome"] == "checked"
        return document


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="fleetcheck-unseen-"))
    folder.chmod(0o755)
    with Sshd(users=(STRANGER,)) as sshd:
        yield Place(folder, sshd)
    shutil.rmtree(folder)


@contextlib.contextmanager
def serving(how: str, venv: Path) -> Iterator[int]:
    """Start the server as root and yield its process id, once it serves."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    command = ["/bin/sh", "-c", how, "sh", str(venv)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(timeout=60)


def told(document: dict[str, Any], rule: str, pid: int) -> list[dict[str, Any]]:
    """Return the findings of a rule that name a process; others may serve on this machine."""
    return [one for one in document["findings"] if one["rule"] == rule and f" {pid} " in one["message"]]


def test_a_server_in_an_activated_environment_is_no_silent_pass(place: Place) -> None:
    venv = place.environment("ml-env")
    with serving(ACTIVATED, venv) as pid:
        document = place.audit(str(venv), "running")
        as_root = place.audit(str(venv), "running", user="root")
    (finding,) = told(document, "serving-unseen", pid)
    assert (finding["severity"], document["hosts"][0]["verdict"]) == ("error", "findings")
    assert f"Process {pid} (root, sglang) serves from an environment that is not known" in finding["message"]
    assert (
        f"the user {STRANGER} may not read its mapped files, environment and namespace (EACCES)"
        in (finding["message"])
    )
    assert any("sudo: true" in step for step in finding["remedy"])
    assert any("user: root" in step for step in finding["remedy"])
    assert told(as_root, "serving-unseen", pid) == []
    (process,) = (one for one in as_root["hosts"][0]["processes"] if one["pid"] == pid)
    assert (process["venv"], process["venv_basis"]) == (str(venv), "VIRTUAL_ENV")


def test_a_server_in_a_closed_folder_is_named_where_no_environment_is_found(place: Place) -> None:
    venv = place.environment("closed")
    venv.chmod(0o700)
    with serving(BY_PATH, venv) as pid:
        document = place.audit("running")
    (finding,) = told(document, "venv-none", pid)
    assert f"process {pid} (root, sglang) serves from {venv}, which was not examined" in finding["message"]
    assert "EACCES" in finding["message"]
    assert "listed" not in finding["message"]
    assert "usual" not in finding["message"]
    assert f"namei -l {venv}" in finding["remedy"]
    assert any("sudo: true" in step for step in finding["remedy"])
    (other,) = told(document, "serving-unseen", pid)
    assert (other["venv"], other["cause"]) == (str(venv), "venv-none")


def test_a_server_is_attributed_by_its_interpreter_also_through_a_link(place: Place) -> None:
    venv = place.environment("ml-env")
    link = place.folder / "current"
    link.symlink_to(venv)
    with serving(BY_PATH, link) as pid:
        document = place.audit(str(venv), "running")
    assert told(document, "serving-unseen", pid) == []
    (process,) = (one for one in document["hosts"][0]["processes"] if one["pid"] == pid)
    assert (process["venv"], process["venv_basis"], process["named_venv"]) == (str(venv), "argv", str(link))


def test_hidden_processes_are_told_and_not_taken_for_none(place: Place) -> None:
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("needs unshare and setpriv")
    if subprocess.run(["unshare", "-p", "-f", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make namespaces (CAP_SYS_ADMIN)")
    account = pwd.getpwnam(STRANGER)
    shell = place.folder / "hiding"
    shell.write_text(HIDING.format(account.pw_uid, account.pw_gid))
    shell.chmod(0o755)
    venv = place.environment("ml-env")
    answer = look(Request(venvs=(str(venv),), discover=("running",)), shell=str(shell), pythons=(PYTHON,), cwd="/")
    assert (answer.parts["agent"]["uid"], answer.parts["processes"]["hidden"]) == (account.pw_uid, "ENOENT")
    facts = host_facts(answer.parts)
    assert facts.processes_unread == ("the processes of other users: hidden (ENOENT)",)
    target = Target.model_validate({"name": "gpu01", "venvs": [{"path": str(venv)}, "running"]})
    (finding,) = (one for one in judge_host(target, facts) if one.rule == "serving-unseen")
    assert "The processes of other users are hidden from" in finding.message
