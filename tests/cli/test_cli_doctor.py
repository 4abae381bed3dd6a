"""Prepared faults: doctor names each of them and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import nights
from support.loopback import LoopbackFleet
from support.program import PROGRAM, SECONDS, call, environ
from support.sshd import NEEDS_SSHD, SSHD, make_key

from fleetcheck.cli.cron import lock_path, turn
from fleetcheck.history.store import History
from fleetcheck.judge import new_run, now

pytestmark = pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD)


@dataclass
class Ward:
    """A fleet of which a run from cron would work, and how doctor is called for it."""

    fleet: LoopbackFleet
    home: Path
    inventory: Path
    known_hosts: Path
    more: list[str] = field(default_factory=list)
    python: tuple[str, ...] = PROGRAM

    @property
    def db(self) -> Path:
        return self.home / "h.db"

    def examine(self, *args: str) -> tuple[int, list[dict[str, Any]]]:
        command = [
            *self.python, "doctor", *args, "-i", str(self.inventory), "--ssh-config", str(self.fleet.config),
            "--known-hosts", str(self.known_hosts), "--db", str(self.db), "--format", "json", *self.more,
        ]  # fmt: skip
        done = subprocess.run(
            command, env=environ(self.home), cwd=self.home, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=SECONDS,
        )  # fmt: skip
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)["checks"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackFleet]:
    folder = tmp_path_factory.mktemp("doctor")
    folder.chmod(0o755)
    with LoopbackFleet(folder / "fleet") as made:
        yield made


@pytest.fixture
def ward(fleet: LoopbackFleet, tmp_path: Path) -> Ward:
    inventory, known = tmp_path / "fleet.yaml", tmp_path / "known_hosts"
    inventory.write_text(fleet.inventory(3).read_text())
    known.write_text(fleet.known_hosts.read_text())
    with History.open(tmp_path / "h.db") as history:
        made = nights.run(1, [nights.machine("a")], at=now() - timedelta(hours=1))
        nights.store(history, made, str(inventory))
    return Ward(fleet, tmp_path, inventory, known)


def test_where_all_is_well_nothing_is_a_fault(ward: Ward) -> None:
    code, checks = ward.examine()
    assert code == 0
    assert [one["check"] for one in checks if not one["ok"]] == []
    names = ["ssh", "inventory", "key", "known hosts", "history", "clock", "limit", "lock"]
    assert [one["check"] for one in checks] == names


def broken_inventory(ward: Ward) -> None:
    ward.inventory.write_text("hosts: {a: {colour: red}}\n")


def unknown_rule(ward: Ward) -> None:
    text = ward.inventory.read_text().replace("defaults:\n", "defaults:\n  rules: {pcie-widht: ignore}\n")
    ward.inventory.write_text(text)


def unknown_waived(ward: Ward) -> None:
    waiver = "{rule: gpu-cuont, hosts: host0000, reason: r, until: 2999-01-01}"
    ward.inventory.write_text(f"{ward.inventory.read_text()}waivers: [{waiver}]\n")


def missing_inventory(ward: Ward) -> None:
    ward.inventory.unlink()


def missing_key(ward: Ward) -> None:
    ward.inventory.write_text(
        ward.inventory.read_text() + "  gone: {address: 127.0.0.1, identity_file: /no/key}\n"
    )
    text = ward.inventory.read_text().replace("  gone", "gone").replace("gone: {", "  gone: {")
    ward.inventory.write_text(text)


def encrypted_key(ward: Ward) -> None:
    key = make_key(ward.home / "locked", passphrase="secret")
    ward.inventory.write_text(
        ward.inventory.read_text().replace("defaults:", f"defaults:\n  identity_file: {key}")
    )


def unknown_host(ward: Ward) -> None:
    lines = ward.known_hosts.read_text().splitlines(keepends=True)
    ward.known_hosts.write_text("".join(line for line in lines if "[127.0.0.2]" not in line))


def unreadable_known_hosts(ward: Ward) -> None:
    ward.known_hosts.unlink()
    ward.known_hosts.mkdir()


def no_state_folder(ward: Ward) -> None:
    ward.db.unlink()
    ward.db.mkdir()


def damaged_history(ward: Ward) -> None:
    ward.db.write_bytes(b"\0damaged" * 1000)


def clock_behind(ward: Ward) -> None:
    with History.open(ward.db) as history:
        nights.store(history, nights.run(2, [], at=now() + timedelta(days=3)), "another")


def short_limit(ward: Ward) -> None:
    ward.more = ["--limit", "run=70"]


FAULTS: list[tuple[Callable[[Ward], None], str, str]] = [
    (broken_inventory, "inventory", "colour"),
    (unknown_rule, "inventory", "pcie-widht"),
    (unknown_waived, "inventory", "no rule is called gpu-cuont; did you mean gpu-count"),
    (missing_inventory, "inventory", "fleet.yaml"),
    (missing_key, "key", "/no/key"),
    (encrypted_key, "key", "is encrypted"),
    (unknown_host, "known hosts", "[127.0.0.2]:"),
    (unreadable_known_hosts, "known hosts", "known_hosts"),
    (no_state_folder, "history", "h.db"),
    (damaged_history, "history", "damaged"),
    (clock_behind, "clock", "still to come"),
    (short_limit, "limit", "took 60 s of 70 s"),
]


@pytest.mark.parametrize(("breaks", "check", "says"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS])
def test_a_fault_is_named_and_nothing_else(
    ward: Ward, breaks: Callable[[Ward], None], check: str, says: str
) -> None:
    breaks(ward)
    code, checks = ward.examine()
    faults = [one for one in checks if not one["ok"]]
    assert code == 1
    assert {one["check"] for one in faults} == {check}, faults
    assert says in faults[0]["said"]
    assert all(one["do"] for one in faults)


def test_a_lock_that_is_held_is_named(ward: Ward) -> None:
    info = new_run("fleet.yaml")
    with turn(ward.db, str(ward.inventory), info):
        code, checks = ward.examine()
    (fault,) = (one for one in checks if not one["ok"])
    assert (code, fault["check"]) == (1, "lock")
    assert f"the run {info.id} (process {os.getpid()})" in fault["said"]
    assert lock_path(ward.db, str(ward.inventory)).parent == ward.home


def test_an_agent_that_cron_lacks_does_not_count(ward: Ward) -> None:
    """The key is in an agent of the caller's; cron has no agent."""
    encrypted_key(ward)
    lent = {"SSH_AUTH_SOCK": str(ward.home / "agent.sock")}
    done = call(
        ward.home, "doctor", "-i", ward.inventory, "--ssh-config", ward.fleet.config, "--db", ward.db,
        "--known-hosts", ward.known_hosts, **lent,
    )  # fmt: skip
    assert done.returncode == 1
    fault, remedy = (line for line in done.stdout.splitlines() if not line.startswith("ok"))
    assert fault.startswith("FAULT  key: host[0000-0002]: the key ")
    assert "ssh-keygen" in remedy


def test_a_host_is_gone_through_step_by_step(ward: Ward) -> None:
    code, checks = ward.examine("host0001")
    assert code == 0
    assert [one["check"] for one in checks] == ["route", "name", "key", "known hosts", "ssh", "audit"]
    said = {one["check"]: one["said"] for one in checks}
    assert "Server accepts key" in said["ssh"]
    assert said["audit"].startswith("checked in ")


def test_a_host_that_refuses_the_key(ward: Ward) -> None:
    key = make_key(ward.home / "stranger")
    ward.inventory.write_text(
        ward.inventory.read_text().replace("defaults:", f"defaults:\n  identity_file: {key}")
    )
    code, checks = ward.examine("host0001")
    faults = {one["check"]: one for one in checks if not one["ok"]}
    assert code == 1
    assert set(faults) == {"ssh", "audit"}
    assert "Permission denied" in faults["ssh"]["said"]
    assert faults["audit"]["said"] == "auth-failed (stage auth)"


def test_no_ssh_is_a_fault(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetcheck.schedule import checks

    found = checks.ssh(str(ward.home))
    assert found.do is not None
    assert "install openssh-client" in found.do


def test_a_local_host_is_asked_for_nothing_of_ssh(ward: Ward) -> None:
    ward.inventory.write_text("hosts:\n  me: {connection: local, venvs: [usual]}\n")
    code, checks = ward.examine("me")
    assert code == 0
    assert [one["check"] for one in checks] == ["route", "audit"]
    assert checks[1]["said"].startswith("checked in ")
    code, checks = ward.examine()
    said = {one["check"]: one["said"] for one in checks}
    assert (code, said["key"]) == (0, "no host is reached by ssh, so none is needed")
    assert said["inventory"].endswith("fleet.yaml: valid, 1 host")
    assert "known hosts" not in said


def test_a_connection_that_no_audit_can_make_is_a_fault(ward: Ward) -> None:
    ward.inventory.write_text(ward.inventory.read_text() + "groups: {g: {hosts: box, connection: docker}}\n")
    code, checks = ward.examine()
    (fault,) = (one for one in checks if not one["ok"])
    assert (code, fault["check"]) == (1, "route")
    assert fault["said"].startswith("box: the connection is docker")


def resting(ward: Ward) -> None:
    unknown_host(ward)
    text = ward.inventory.read_text()
    ward.inventory.write_text(
        f"{text}maintenance:\n  - {{hosts: host0001, reason: reinstall, until: 2999-12-31}}\n"
    )


def test_a_host_in_maintenance_is_no_fault_of_the_night(ward: Ward) -> None:
    unknown_host(ward)
    assert ward.examine()[0] == 1
    resting(ward)
    code, checks = ward.examine()
    said = {one["check"]: one["said"] for one in checks}
    assert (code, [one for one in checks if not one["ok"]]) == (0, [])
    assert said["maintenance"] == "host0001: maintenance until 2999-12-31: reinstall; left alone"


def test_to_have_no_key_is_never_well(ward: Ward) -> None:
    """Without any key: the fault alone says so, and what ssh says has no empty piece."""
    ward.inventory.write_text("hosts:\n  nobody: {address: 127.0.0.1, port: 1}\n")
    config = ward.home / "config"
    config.write_text("Host *\n  IdentityFile none\n  IdentityAgent none\n")
    done = call(ward.home, "doctor", "nobody", "-i", ward.inventory, "--ssh-config", config)
    assert done.returncode == 1
    assert not [line for line in done.stdout.splitlines() if line.startswith("ok     key")]
    assert [line for line in done.stdout.splitlines() if line.startswith("FAULT  key")]
    unknown = call(ward.home, "doctor", "x.invalid", "-i", "x.invalid", "--ssh-config", "none")
    (ssh,) = (line for line in unknown.stdout.splitlines() if line.startswith("FAULT  ssh"))
    assert ssh.startswith("FAULT  ssh: ssh: ")
