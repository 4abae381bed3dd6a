"""``--deep`` by the program: an import that failed is no pass, and one that the audit kept back is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent.agent_host import FILES, Host
from support.program import call

OWN = {**FILES, "flashinfer/__init__.py": "__version__ = '0.6.2'\n"}
ENV_PY = FILES["flashinfer/jit/env.py"]


def inventory(tmp_path: Path, body: str) -> str:
    """Make an environment of this machine whose import begins with ``body``, and an inventory that lists it."""
    host = Host(tmp_path / "root")
    host.venv("/opt/ml", files={**OWN, "flashinfer/jit/env.py": body + ENV_PY})
    path = tmp_path / "own.yaml"
    path.write_text(f"hosts:\n  me: {{connection: local, venvs: [{host.at('/opt/ml')}]}}\n")
    return str(path)


@pytest.mark.parametrize(
    ("body", "code", "rule", "severity"),
    [
        ("import filelock_that_is_absent\n", 1, "import-failed", "error"),
        ("import socket; socket.create_connection(('127.0.0.1', 9), 1)\n", 0, "import-unchecked", "warning"),
    ],
)
def test_an_import_that_gave_no_answer_is_a_finding(
    tmp_path: Path, body: str, code: int, rule: str, severity: str
) -> None:
    own = inventory(tmp_path, body)
    done = call(tmp_path, "audit", "-i", own, "--deep", "--format", "json", "--no-history")
    assert done.returncode == code, done.stderr
    found = {one["rule"]: one for one in json.loads(done.stdout)["findings"]}
    assert (found[rule]["severity"], found[rule]["basis"]) == (severity, "imported")
    shown = call(tmp_path, "show", "me", "-i", own, "--deep")
    assert shown.returncode == code
    _, _, unseen = shown.stdout.partition("\nNot examined\n")
    assert "the real import that was asked for (" in unseen


def test_an_import_that_works_and_one_that_nobody_asked_for_are_no_findings(tmp_path: Path) -> None:
    own = inventory(tmp_path, "")
    for more, state in ((["--deep"], "answered"), ([], None)):
        done = call(tmp_path, "audit", "-i", own, *more, "--format", "json", "--no-history")
        document = json.loads(done.stdout)
        assert document["hosts"][0]["venvs"][0]["flashinfer"]["imported_state"] == state
        assert not [one for one in document["findings"] if one["rule"].startswith("import-")]
        assert "real import" not in call(tmp_path, "show", "me", "-i", own, *more).stdout
