"""Prepared faults: doctor names each of them and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support import nights
from support.crontab import alone, listed
from support.loopback import LoopbackFleet
from support.program import PROGRAM, SECONDS, call, environ
from support.sshd import NEEDS_SSHD, SSHD, make_key, wait_until

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
def ward(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Ward]:
    inventory, known = tmp_path / "fleet.yaml", tmp_path / "known_hosts"
    inventory.write_text(fleet.inventory(3).read_text())
    known.write_text(fleet.known_hosts.read_text())
    with History.open(tmp_path / "h.db") as history:
        made = nights.run(1, [nights.machine("a")], at=now() - timedelta(hours=1))
        nights.store(history, made, str(inventory))
    with alone():  # a schedule of another test would be judged too
        yield Ward(fleet, tmp_path, inventory, known)


def test_where_all_is_well_nothing_is_a_fault(ward: Ward) -> None:
    code, checks = ward.examine()
    assert code == 0
    assert [one["check"] for one in checks if not one["ok"]] == []
    names = ["ssh", "inventory", "key", "known hosts", "history", "clock", "limit", "lock", "schedule"]
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


def unknown_hosts(ward: Ward) -> None:
    ward.known_hosts.write_text("")


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
    (unknown_hosts, "known hosts", "host[0000-0002]: their keys are not in "),
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


def test_unknown_keys_are_one_line_and_one_command(ward: Ward) -> None:
    """The command is run as it stands: then every key is known."""
    unknown_hosts(ward)
    text = ward.inventory.read_text() + "  twice: {address: 127.0.0.1}\n"
    ward.inventory.write_text(text.replace("  twice", "twice").replace("twice: {", "  twice: {"))
    code, checks = ward.examine()
    faults = [one for one in checks if not one["ok"]]
    assert (code, len(faults)) == (1, 1), faults
    assert faults[0]["said"] == f"host[0000-0002],twice: their keys are not in {ward.known_hosts}"
    command = faults[0]["do"].partition("then: ")[2]
    assert command.startswith(f"ssh-keyscan -p {ward.fleet.sshd.port} 127.0.0.1 127.0.0.2 127.0.0.3 >> ")
    subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True, timeout=SECONDS)
    assert ward.examine()[0] == 0


@pytest.fixture
def agent(ward: Ward) -> Iterator[str]:
    """An agent that holds the one key that the hosts admit."""
    socket = ward.home / "agent.sock"
    command = ["ssh-agent", "-D", "-a", str(socket)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
        try:
            assert wait_until(socket.exists)
            lent = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
            subprocess.run(["ssh-add", "-q", ward.fleet.sshd.key], check=True, env=lent, timeout=SECONDS)
            yield str(socket)
        finally:
            process.kill()


def test_a_host_that_an_agent_opens_is_no_fault(ward: Ward, agent: str) -> None:
    """It works by hand; cron, which has no agent, is warned of, and is at fault once a schedule is installed."""
    config = ward.home / "config"
    lines = ward.fleet.config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("Identit")) + "IdentityFile none\n")
    words = (
        "doctor", "host0001", "-i", ward.inventory, "--ssh-config", config, "--known-hosts", ward.known_hosts,
    )  # fmt: skip
    done = call(ward.home, *words, SSH_AUTH_SOCK=agent)
    assert done.returncode == 0, done.stdout
    marks = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert sorted(set(marks)) == ["ok", "warn"]
    said, do = next(
        (line, after) for line, after in pairwise(done.stdout.splitlines()) if line.startswith("warn   key: ")
    )
    assert "there is no key that needs no agent" in said
    place = f"-p {ward.fleet.sshd.port} {ward.fleet.sshd.user}@127.0.0.2"
    assert f"ssh-copy-id -i FILE.pub {place}, and in the inventory: identity_file: FILE" in do
    if not listed().strip() and shutil.which("crontab"):
        subprocess.run(["crontab", "-"], input="0 3 * * * fleetcheck audit --cron\n", text=True, check=True)
        try:
            assert call(ward.home, *words, SSH_AUTH_SOCK=agent).returncode == 1
        finally:
            subprocess.run(["crontab", "-r"], check=False, capture_output=True)


def test_each_line_says_of_whom_it_speaks_behind_a_gateway(ward: Ward) -> None:
    """The host has a key and the gateway none, whose settings in the inventory do not hold for a gateway."""
    key, config = ward.fleet.sshd.key, ward.home / "config"
    config.write_text(
        f"Host box-a\n HostName 127.0.0.3\n IdentityFile /no/key\nHost *\n Port {ward.fleet.sshd.port}\n"
        f" User {ward.fleet.sshd.user}\n IdentityAgent none\n IdentitiesOnly yes\n"
    )
    ward.inventory.write_text(
        f"hosts:\n  box-a: {{address: 127.0.0.1, identity_file: {key}}}\n"
        f"  box-d: {{address: 127.0.0.2, identity_file: {key}, proxy_jump: box-a}}\n"
    )
    words = ("-i", ward.inventory, "--ssh-config", config, "--known-hosts", ward.known_hosts, "--db", ward.db)
    lines = call(ward.home, "doctor", *words).stdout.splitlines()
    (fault,) = (line for line in lines if line.startswith("FAULT"))
    assert fault.startswith("FAULT  key: box-d: its gateway box-a: the identity file /no/key ")
    lines = call(ward.home, "doctor", "box-d", *words).stdout.splitlines()
    assert any(line.startswith(f"ok     key: box-d: {key} ") for line in lines), lines
    assert any(line.startswith("FAULT  key: gateway box-a: the identity file /no/key ") for line in lines)
    assert any(
        "ssh-copy-id" in line and "in the ssh config: Host box-a, IdentityFile FILE" in line for line in lines
    )
    assert any(line.startswith("ok     known hosts: gateway box-a: [127.0.0.3]:") for line in lines)
    assert any(line.startswith("ok     known hosts: box-d: [127.0.0.2]:") for line in lines)
    (unused,) = (line for line in lines if line.startswith("warn"))
    assert unused.endswith("what the inventory sets for this host is not used: address, identity_file")


def test_a_gateway_whose_name_is_not_known_is_mended_elsewhere_than_a_host(ward: Ward) -> None:
    ward.inventory.write_text(
        "hosts:\n  box-a.invalid: {address: 127.0.0.1}\n"
        f"  box-d: {{address: 127.0.0.2, identity_file: {ward.fleet.sshd.key}, proxy_jump: box-a.invalid}}\n"
    )
    code, checks = ward.examine("box-d")
    (audit,) = (one for one in checks if one["check"] == "audit")
    assert (code, audit["said"]) == (1, "gateway-failed (stage resolve)")
    assert "the name box-a.invalid is not known; the ssh config says where a gateway is" in audit["do"]
    assert "set address:" not in audit["do"]
