"""A large fleet with faulty hosts in it, mixed, and what the audit of each must come to.

In: a loopback fleet. Out: the hosts that fail, with the keys that lead to them, and the audit of all.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from support import faults
from support.faults import FaultySsh, Listener
from support.loopback import LoopbackFleet
from support.program import environ
from support.sshd import free_port, make_key

Expected = tuple[str, str | None, str | None]
LIMITS = {"connect": 4.0, "banner": 10.0, "auth": 10.0, "channel": 10.0}
SAMPLE_SECONDS = 0.1
ANY = "*"


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of faulty host: the inventory's keys, and outcome, stage and detail of the look."""

    keys: dict[str, object]
    expected: Expected


def line_a_second(connection: socket.socket, ended: threading.Event) -> None:
    """Send a line that is no SSH banner each second, for ever."""
    while not ended.wait(1):
        connection.sendall(b"please wait\r\n")


def flood(channel: paramiko.Channel) -> None:
    """Answer without an end."""
    block = b"0" * 32768
    while True:
        channel.sendall(block)


def dies(channel: paramiko.Channel) -> None:
    """Lose the connection once the command has begun."""
    channel.recv(1)
    channel.get_transport().close()


def ends(channel: paramiko.Channel) -> None:
    """End at once, with status 7 and no answer."""
    channel.recv(1)
    channel.send_exit_status(7)


@contextlib.contextmanager
def kinds(fleet: LoopbackFleet) -> Iterator[dict[str, Fault]]:
    """Yield every kind of faulty host, served as long as the context lasts."""
    folder, sshd = fleet.folder / "faults", fleet.sshd
    folder.mkdir()
    other, host = make_key(folder / "other"), make_key(folder / "host")
    found: dict[str, Fault] = {}
    with contextlib.ExitStack() as stack:

        def plain(name: str, serve: Callable[..., None], *expected: str | None) -> None:
            server = stack.enter_context(Listener(serve))
            found[name] = Fault({"address": "127.0.0.1", "port": server.port}, expected)  # type: ignore[arg-type]

        def ssh(name: str, expected: Expected, **options: Any) -> None:
            server = stack.enter_context(FaultySsh(host, **options))
            known = folder / f"known_hosts-{name}"
            known.write_text(server.known_hosts_line)
            found[name] = Fault({"address": "127.0.0.1", "port": server.port, "known_hosts": str(known)}, expected)

        def real(name: str, expected: Expected, **keys: object) -> None:
            found[name] = Fault({"address": "127.0.0.1"} | keys, expected)

        plain("silent", faults.silent, "timeout", "banner", None)
        plain("slow-banner", line_a_second, "timeout", "banner", None)
        plain("banner-only", faults.banner_only, "timeout", "kex", None)
        plain("http", faults.http, "unreachable", "banner", "not-ssh")
        plain("closes", faults.close_at_once, "unreachable", "banner", "closed")
        plain("resets", faults.reset, "unreachable", "kex", "reset")
        real("refused", ("unreachable", "connect", "refused"), port=free_port())
        dropped = stack.enter_context(faults.syn_dropped())
        real("dropped", ("timeout", "connect", None), port=dropped)
        found["no-name"] = Fault({"address": "no-such-host.invalid"}, ("unreachable", "resolve", ANY))
        ssh("auth-hang", ("timeout", "auth", None), stop="auth")
        ssh("channel-hang", ("timeout", "channel", None), stop="channel")
        ssh("exec-hang", ("timeout", "channel", None), stop="exec")
        ssh("flood", ("probe-error", "probe", "too-large"), run=flood)
        ssh("dies", ("probe-error", "probe", "lost"), run=dies)
        ssh("ends", ("probe-error", "probe", "exit-7"), run=ends)
        ssh("no-session", ("probe-error", "channel", "refused"), refuse_session=True)
        for name, line, expected in _known_hosts(fleet, Path(f"{other}.pub")):
            known = folder / f"known_hosts-{name}"
            known.write_text(line)
            real(name, expected, known_hosts=str(known))
        real("not-authorised", ("auth-failed", "auth", "refused"), identity_file=str(other))
        real("wrong-user", ("auth-failed", "auth", "refused"), user="nobody-such")
        real("dead-gateway", ("gateway-failed", "connect", "refused"), proxy_jump=f"127.0.0.1:{free_port()}")
        gateway = f"{sshd.user}@127.0.0.1:{sshd.port}"
        real("dead-behind", ("unreachable", "connect", "refused"), proxy_jump=gateway, port=free_port())
        for user in fleet.users:
            real("nologin", ("probe-error", "probe", "login-shell"), user=user)
        yield found


def _known_hosts(fleet: LoopbackFleet, other: Path) -> Iterator[tuple[str, str, Expected]]:
    name = f"[127.0.0.1]:{fleet.sshd.port}"
    shown = " ".join(Path(f"{fleet.sshd.host_key}.pub").read_text().split()[:2])
    stranger = " ".join(other.read_text().split()[:2])
    yield "key-unknown", "", ("host-key-unknown", "kex", "unknown")
    yield "key-changed", f"{name} {stranger}\n", ("host-key-changed", "kex", "changed")
    yield "key-revoked", f"{name} {shown}\n@revoked {name} {shown}\n", ("host-key-changed", "kex", "revoked")
    yield "key-authority", f"@cert-authority {name} {stranger}\n", ("host-key-unknown", "kex", "cert-authority")


@dataclass(frozen=True, slots=True)
class Audited:
    """How the audit of a faulty fleet ended: seconds, MiB, and what was not as it must be."""

    wall: float
    cpu: float
    memory: float
    wrong: list[str]
    faulty: int


def audit(fleet: LoopbackFleet, count: int, faulty: int, *, seconds: float) -> Audited:
    """Audit ``count`` hosts by the command, ``faulty`` of them of all kinds in turn, within ``seconds``."""
    with kinds(fleet) as known:
        names = list(known)
        chosen = {f"{names[number % len(names)]}-{number}": names[number % len(names)] for number in range(faulty)}
        others = {host: known[kind].keys for host, kind in chosen.items()}
        inventory = fleet.inventory(count - faulty, others)
        limits = [word for name, limit in LIMITS.items() for word in ("--limit", f"{name}={limit}")]
        command = [
            str(Path(sys.executable).with_name("fleetcheck")), "audit", "-i", str(inventory),
            "--ssh-config", str(fleet.config), "--format", "jsonl", *limits,
            "--output", f"json:{fleet.folder}/run.json",
        ]  # fmt: skip
        start = time.perf_counter()
        report, complaints, memory, cpu = _run(command, fleet, seconds)
        wall = time.perf_counter() - start
    wrong = [f"standard error: {complaints[:500]}"] if complaints else []
    lines = [json.loads(line) for line in report.splitlines()]
    hosts = {line["name"]: line for line in lines if line["type"] == "host"}
    if lines[-1]["type"] != "summary" or not lines[-1]["complete"]:
        wrong.append(f"the last line is {report.splitlines()[-1][:200]}")
    whole = json.loads((fleet.folder / "run.json").read_text())
    for where, number in (("report", len(hosts)), ("document", len(whole["hosts"]))):
        if number != count:
            wrong.append(f"{number} hosts in the {where}, not {count}")
    for name, host in hosts.items():
        expected = known[chosen[name]].expected if name in chosen else ("checked", None, None)
        seen = (host["outcome"], host["stage"], host["detail"])
        if seen[:2] != expected[:2] or expected[2] not in (ANY, seen[2]):
            wrong.append(f"{name}: {seen}, not {expected}: {host['message']}")
    return Audited(wall, cpu, memory, wrong, faulty)


def _run(command: list[str], fleet: LoopbackFleet, seconds: float) -> tuple[str, str, float, float]:
    """Return what the command printed, said on standard error, and its peak memory in MiB and CPU seconds."""
    report, complaints = fleet.folder / "report", fleet.folder / "complaints"
    with report.open("wb") as out, complaints.open("wb") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environ(fleet.folder)
        )
    peak, cpu, end = 0.0, 0.0, time.monotonic() + seconds
    try:
        while process.poll() is None:
            # The peak as the kernel keeps it for the program itself; ru_maxrss begins with its parent's memory.
            peak, cpu = _seen(process.pid) or (peak, cpu)
            if time.monotonic() > end:
                raise AssertionError(f"the audit did not end within {seconds:g} s")
            time.sleep(SAMPLE_SECONDS)
    finally:
        process.kill()
        process.wait()
    return report.read_text(), complaints.read_text(), peak, cpu


def _seen(pid: int) -> tuple[float, float] | None:
    with contextlib.suppress(OSError, ValueError, StopIteration, IndexError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return peak, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return None
