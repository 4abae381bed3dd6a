"""What an audit promises: it touches nothing, runs nothing of the hosts', and leaves a document that replays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
from support.audits import Audited, fleetcheck
from support.scenarios import CASES
from support.sshd import Sshd

from fleetcheck import recording
from fleetcheck.judge import pipeline
from fleetcheck.report.schema import run_schema
from fleetcheck.run import Finished, Run


def test_no_file_of_any_host_is_touched(audited: Audited) -> None:
    changed = {path for path, state in audited.before.items() if audited.after.get(path) != state}
    assert changed == set()
    assert set(audited.after) == set(audited.before)


def test_nothing_of_the_hosts_is_executed(audited: Audited, sshd: Sshd) -> None:
    assert audited.executed == []
    # The traps are live: a plain python3 in the same login runs the one on PYTHONPATH.
    command = [
        "ssh", "-F", "none", "-i", str(sshd.key), "-o", f"UserKnownHostsFile={sshd.known_hosts}",
        "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-p", str(sshd.port),
        f"{sshd.user}@{sshd.addresses[0]}", "python3 -c 'import json'",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    trapped = list(audited.shop.markers.iterdir())
    assert trapped != [], done.stderr
    for marker in trapped:
        marker.unlink()


def test_nothing_is_left_running(audited: Audited) -> None:
    assert audited.left_running == []


def test_the_document_is_valid_and_lists_every_host_once(audited: Audited) -> None:
    document = json.loads(json.dumps(audited.run.to_json()))
    jsonschema.Draft202012Validator.check_schema(run_schema())
    jsonschema.validate(document, run_schema())
    assert [host["name"] for host in document["hosts"]] == list(CASES)
    assert document["schema"] == "fleetcheck/run/1"
    assert document["summary"]["hosts"] == len(CASES)
    assert {"run", "summary", "hosts", "findings"} <= set(document)


def test_a_replay_gives_the_same_document(audited: Audited) -> None:
    assert replayed(audited.evidence).to_json() == audited.run.to_json()


def test_the_command_replays_to_the_same_document(audited: Audited) -> None:
    done = fleetcheck("replay", str(audited.evidence), "--format", "json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout) == audited.run.to_json()


def test_the_command_audits_and_says_the_same(audited: Audited, tmp_path: Path) -> None:
    names = ("stock-0-6-18", "gate-only", "csrc-removed", "venv-missing")
    hosts = {
        target.name: {
            "address": target.address, "port": target.port, "user": target.user, "sysroot": target.sysroot,
            "identity_file": target.identity_file, "known_hosts": target.known_hosts,
            "venvs": ["/opt/ml-env"], "expect": target.expect.model_dump(exclude_none=True),
        }
        for target in audited.targets
        if target.name in names
    }  # fmt: skip
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(json.dumps({"hosts": hosts}))
    done = fleetcheck("audit", "-i", str(inventory), "--ssh-config", "none", "--format", "json")
    assert done.returncode == 1, done.stderr
    said = {host["name"]: host for host in json.loads(done.stdout)["hosts"]}
    assert set(said) == set(names)
    for name in names:
        first = audited.run.to_json()["hosts"][list(CASES).index(name)]
        for key in ("outcome", "verdict", "gpus", "venvs"):
            assert said[name][key] == first[key], (name, key)


def replayed(path: Path) -> Run:
    """Judge a recording again."""
    opened = recording.read(path)
    for event in pipeline(opened.targets, opened.looks(), opened.info, opened.policy, opened.end):
        if isinstance(event, Finished):
            return event.run
    raise AssertionError("the replay ended without a run")
