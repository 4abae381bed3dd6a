"""Hosts behind gateways: one shared connection, whose failure is the gateway's and never the host's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import faults
from support.faults import FaultySsh, Listener
from support.limits import AMPLE
from support.sshd import NEEDS_SSHD, SSHD, Sshd, free_port, make_key, wait_until

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Target
from fleetcheck.remote import engine
from fleetcheck.remote.reach import Reach
from fleetcheck.remote.settings import Limits, Settings

pytestmark = [pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD), pytest.mark.usefixtures("nothing_left")]


@pytest.fixture(scope="module")
def bastion(sshd: Sshd) -> Iterator[Sshd]:
    with Sshd() as daemon:
        daemon.authorized_keys.write_text(Path(f"{sshd.key}.pub").read_text())
        yield daemon


def ssh_config(path: Path, sshd: Sshd, bastions: dict[str, int], known_hosts: str, *lines: str) -> str:
    """Write a config in which each of ``bastions`` leads to its port."""
    text = "".join(f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n" for name, port in bastions.items())
    known = path.with_name("all_known_hosts")
    known.write_text(known_hosts + sshd.known_hosts.read_text())
    common = [
        f"User {sshd.user}",
        f"IdentityFile {sshd.key}",
        "IdentitiesOnly yes",
        f"UserKnownHostsFile {known}",
        *lines,
    ]
    path.write_text(text + "Host *\n" + "".join(f"  {line}\n" for line in common))
    return str(path)


def behind(sshd: Sshd, jump: str | None, name: str = "inner", **keys: Any) -> Target:
    defaults: dict[str, Any] = {"proxy_jump": jump, "identity_file": None, "known_hosts": None, "venvs": ()}
    return sshd.target(name, **(defaults | keys))


def look(target: Target, config: str, limits: Limits = AMPLE) -> Evidence:
    with Reach(Settings(ssh_config=config, limits=limits)) as reach:
        return reach.look(target)


def verdict(evidence: Evidence) -> tuple[str, str | None, str | None]:
    return evidence.outcome, evidence.stage, evidence.detail


def test_one_gateway_connection_for_all(sshd: Sshd, bastion: Sshd, tmp_path: Path) -> None:
    config = ssh_config(tmp_path / "config", sshd, {"bastion": bastion.port}, bastion.known_hosts.read_text())
    used = Settings(ssh_config=config, limits=AMPLE, gateway_workers=3)
    reach = Reach(used)
    before = bastion.log.read_text().count("Accepted publickey")
    targets = [behind(sshd, "bastion", f"inner{number}") for number in range(8)]
    assert reach.gateway(targets[0]) == "bastion"
    found = {target.name: evidence for target, evidence in engine.run(targets, reach, settings=used)}
    assert [evidence.outcome for evidence in found.values()] == ["checked"] * 8, found
    assert bastion.log.read_text().count("Accepted publickey") == before + 1
    assert sshd.wait_idle()
    assert bastion.wait_idle()


def test_two_gateways_in_turn(sshd: Sshd, bastion: Sshd, tmp_path: Path) -> None:
    with Sshd() as second:
        second.authorized_keys.write_text(Path(f"{sshd.key}.pub").read_text())
        known = bastion.known_hosts.read_text() + second.known_hosts.read_text()
        config = ssh_config(tmp_path / "config", sshd, {"outer": bastion.port, "middle": second.port}, known)
        evidence = look(behind(sshd, "outer,middle"), config)
        assert evidence.outcome == "checked", evidence.message
        assert "Accepted publickey" in second.log.read_text()
        assert second.wait_idle()


def test_gateway_that_refuses(sshd: Sshd, tmp_path: Path) -> None:
    config = ssh_config(tmp_path / "config", sshd, {"bastion": free_port()}, "")
    used = Settings(ssh_config=config, limits=AMPLE)
    targets = [behind(sshd, "bastion", f"inner{number}") for number in range(4)]
    found = [evidence for _, evidence in engine.run(targets, Reach(used), settings=used)]
    assert [verdict(evidence) for evidence in found] == [("gateway-failed", "connect", "refused")] * 4
    assert all("gateway bastion" in (evidence.message or "") for evidence in found)


def test_silent_gateway_is_one_event(sshd: Sshd, tmp_path: Path) -> None:
    with Listener(faults.silent) as server:
        config = ssh_config(tmp_path / "config", sshd, {"bastion": server.port}, "")
        used = Settings(ssh_config=config, limits=replace(AMPLE, banner=0.6))
        targets = [behind(sshd, "bastion", f"inner{number}") for number in range(12)]
        found = [evidence for _, evidence in engine.run(targets, Reach(used), settings=used)]
        assert {verdict(evidence) for evidence in found} == {("gateway-failed", "banner", "timeout")}
        assert server.accepted == 1


def test_gateway_with_an_unknown_host_key(sshd: Sshd, bastion: Sshd, tmp_path: Path) -> None:
    config = ssh_config(tmp_path / "config", sshd, {"bastion": bastion.port}, "")
    evidence = look(behind(sshd, "bastion"), config)
    assert verdict(evidence) == ("gateway-failed", "kex", "host-key-unknown")
    assert "ssh-keyscan" in (evidence.message or "")


def test_gateway_that_drops_connections_is_tried_again(sshd: Sshd, bastion: Sshd, tmp_path: Path) -> None:
    with Listener(faults.first(1, faults.crowded, faults.relay(bastion.port))) as server:
        known = bastion.known_hosts_lines(server.port)
        config = ssh_config(tmp_path / "config", sshd, {"bastion": server.port}, known)
        assert look(behind(sshd, "bastion"), config).outcome == "checked"
        assert server.accepted == 2


def test_dead_host_behind_a_live_gateway(sshd: Sshd, bastion: Sshd, tmp_path: Path) -> None:
    config = ssh_config(tmp_path / "config", sshd, {"bastion": bastion.port}, bastion.known_hosts.read_text())
    assert verdict(look(behind(sshd, "bastion", port=free_port()), config)) == (
        "unreachable",
        "connect",
        "refused",
    )
    with faults.syn_dropped() as port:
        assert verdict(look(behind(sshd, "bastion", port=port), config, replace(AMPLE, connect=2))) == (
            "timeout",
            "connect",
            None,
        )
    unknown = look(behind(sshd, "bastion", address="no-such-host.invalid"), config)
    assert unknown.outcome == "unreachable"


def test_host_key_behind_a_gateway_names_the_gateway(sshd: Sshd, bastion: Sshd, tmp_path: Path) -> None:
    config = ssh_config(tmp_path / "config", sshd, {"bastion": bastion.port}, bastion.known_hosts.read_text())
    known = tmp_path / "empty"
    known.write_text("")
    with Listener(faults.relay(sshd.port)) as server:
        evidence = look(behind(sshd, "bastion", port=server.port), config)
    assert verdict(evidence) == ("host-key-unknown", "kex", "unknown")
    assert f"ssh bastion 'ssh-keyscan -p {server.port} 127.0.0.1'" in (evidence.message or "")


def test_gateway_that_forwards_nothing(sshd: Sshd, tmp_path: Path) -> None:
    with Sshd(options=["AllowTcpForwarding no"]) as closed:
        closed.authorized_keys.write_text(Path(f"{sshd.key}.pub").read_text())
        config = ssh_config(tmp_path / "config", sshd, {"bastion": closed.port}, closed.known_hosts.read_text())
        assert verdict(look(behind(sshd, "bastion"), config)) == (
            "gateway-failed",
            "connect",
            "forwarding-refused",
        )
        assert closed.wait_idle()


def test_gateway_that_never_answers_for_the_channel(sshd: Sshd, tmp_path: Path) -> None:
    host = make_key(tmp_path / "host")
    with FaultySsh(host, stop="channel") as server:
        config = ssh_config(tmp_path / "config", sshd, {"bastion": server.port}, server.known_hosts_line)
        limits = replace(AMPLE, connect=2)
        assert verdict(look(behind(sshd, "bastion"), config, limits)) == ("timeout", "connect", None)


def test_gateway_lost_in_the_middle(sshd: Sshd, bastion: Sshd, tmp_path: Path) -> None:
    hang = tmp_path / "bin" / "nvidia-smi"
    hang.parent.mkdir()
    hang.write_text("#!/bin/sh\nexec sleep 60\n")
    hang.chmod(0o755)
    with (
        Sshd(environment={"PATH": f"{hang.parent}:{os.environ['PATH']}"}) as inner,
        Listener(faults.relay(bastion.port)) as server,
    ):
        inner.authorized_keys.write_text(Path(f"{sshd.key}.pub").read_text())
        known = bastion.known_hosts_lines(server.port) + inner.known_hosts.read_text()
        config = ssh_config(tmp_path / "config", sshd, {"bastion": server.port}, known)
        answers: list[Evidence] = []
        target = behind(sshd, "bastion", port=inner.port)
        thread = threading.Thread(target=lambda: answers.append(look(target, config)))
        thread.start()
        assert wait_until(lambda: any(b"sleep" in _command(pid) for pid in inner.sessions()))
        server.hang_up()
        thread.join(20)
        assert [verdict(answer) for answer in answers] == [("gateway-failed", "probe", "lost")]
        assert inner.wait_idle()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_proxy_command(sshd: Sshd, bastion: Sshd, tmp_path: Path) -> None:
    known = bastion.known_hosts.read_text()
    plain = tmp_path / "plain"
    ssh_config(plain, sshd, {"bastion": bastion.port}, known)
    command = f"ProxyCommand ssh -F {plain} -o BatchMode=yes -W %h:%p bastion"
    config = ssh_config(tmp_path / "config", sshd, {}, known, command)
    evidence = look(behind(sshd, None), config)
    assert evidence.outcome == "checked", evidence.message
    assert bastion.wait_idle()


@pytest.mark.parametrize("command", ["no-such-program %h %p", "echo no way >&2; exit 1 #"])
def test_proxy_command_that_fails(command: str, sshd: Sshd, tmp_path: Path) -> None:
    config = ssh_config(tmp_path / "config", sshd, {}, "", f"ProxyCommand {command}")
    evidence = look(behind(sshd, None), config)
    assert verdict(evidence) == ("gateway-failed", "banner", "proxy-command")
    assert "no-such-program" in (evidence.message or "") or "no way" in (evidence.message or "")


def test_proxy_command_that_hangs_is_killed(sshd: Sshd, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    config = ssh_config(
        tmp_path / "config", sshd, {}, "", f"ProxyCommand sh -c 'echo $$ > {mark}; exec sleep 600'"
    )
    assert verdict(look(behind(sshd, None), config, replace(AMPLE, banner=2))) == ("timeout", "banner", None)
    pid = int(mark.read_text())
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_proxy_command_of_the_inventory(sshd: Sshd, bastion: Sshd, tmp_path: Path) -> None:
    config = ssh_config(tmp_path / "config", sshd, {"bastion": bastion.port}, bastion.known_hosts.read_text())
    command = f"ssh -F {config} -o BatchMode=yes -W %h:%p bastion"
    evidence = look(behind(sshd, None, proxy_command=command), config)
    assert evidence.outcome == "checked", evidence.message
    assert bastion.wait_idle()


@pytest.mark.parametrize("known", [False, True])
def test_advice_behind_a_proxy_command_is_not_to_scan(
    known: bool, sshd: Sshd, bastion: Sshd, tmp_path: Path
) -> None:
    config = ssh_config(tmp_path / "config", sshd, {"bastion": bastion.port}, bastion.known_hosts.read_text())
    other = (tmp_path / "known").resolve()
    changed = f"[127.0.0.1]:{sshd.port} " + " ".join(Path(f"{bastion.host_key}.pub").read_text().split()[:2])
    other.write_text(f"{changed}\n" if known else "")
    command = f"ssh -F {config} -o BatchMode=yes -W %h:%p bastion"
    evidence = look(behind(sshd, None, proxy_command=command, known_hosts=str(other)), config)
    assert evidence.outcome == ("host-key-changed" if known else "host-key-unknown")
    message = evidence.message or ""
    assert "ssh-keyscan" not in message and "the gateway" not in message and "--accept-new" in message
    assert (f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {other}" in message) == known
