"""The look at one host, step by step: its name, its keys, what the real ssh says, and what the audit gets."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetcheck.errors import InputError, Problem
from fleetcheck.schedule.checks import Check

if TYPE_CHECKING:
    from fleetcheck.inventory.model import Inventory, Target
    from fleetcheck.remote.readiness import Fault
    from fleetcheck.remote.route import Route
    from fleetcheck.remote.settings import Settings

SSH_SECONDS = 30
MILESTONES = (
    "Connecting to", "Connection established", "Remote protocol version", "Server host key", "Offering public key",
    "Server accepts key", "Authenticated to", "Sending command",
)  # fmt: skip
"""What ssh says with -v on its way, in order."""


def steps(name: str, source: str | None, chosen: Settings, *, execute: bool) -> Iterator[Check]:
    """Yield one check a step; a step that cannot follow from the one before is left out. Raises InputError."""
    from fleetcheck.cli.inventory import chosen as selected
    from fleetcheck.remote.readiness import LOCAL, SSH, Readiness
    from fleetcheck.remote.route import RouteError

    taken = selected(source, [name], execute=execute, reached=True)
    targets = taken.targets
    if len(targets) != 1:
        raise InputError([Problem(name, None, f"selects {len(targets)} hosts; doctor goes through one")])
    (target,) = targets
    readiness = Readiness(chosen)
    for why in resting_now(taken.inventory, targets).values():
        yield Check("maintenance", f"{why}; an audit leaves it alone, and it is looked at here as you named it")
    if target.connection == LOCAL:
        yield Check("route", "this machine itself, without ssh")
        yield _look(target, chosen)
        return
    if target.connection != SSH:
        yield from (Check(fault.kind, fault.said, fault.do) for fault in readiness.faults(target))
        return
    try:
        route = readiness.route(target)
        gateways = readiness.gateways(target)
    except RouteError as error:
        yield Check("route", str(error), "correct the inventory or the ssh config")
        return
    via = f" through {', '.join(hop.name for hop in gateways)}" if gateways else ""
    via = f" through the command {route.proxy_command}" if route.proxy_command else via
    yield Check("route", f"{route.user}@{route.host} port {route.port}{via}; ssh config read by {route.source}")
    for warning in route.warnings:
        yield Check("route", warning)
    if not gateways and route.proxy_command is None:
        yield _resolved(route.host, route.port)
    yield from _unused(taken.inventory, gateways)
    spoken = [(f"gateway {hop.name}: ", hop) for hop in gateways]
    spoken.append((f"{target.name}: " if gateways else "", route))
    for whose, one in spoken:
        yield from (Check("key", whose + said) for said in readiness.offered(one))
        yield from (Check("known hosts", whose + said) for said in readiness.known(one))
    own = spoken[-1][0]
    for fault in readiness.faults(target, named=True):
        whose = own if fault.gateway is None else f"gateway {fault.gateway}: "
        yield Check(fault.kind, whose + fault.said, fault.do, warns=_of_cron(fault))
    yield _ssh(target, route, chosen)
    yield _look(target, chosen)


def _of_cron(fault: Fault) -> bool:
    """Return whether a fault is cron's alone: an agent may have the key, and nothing is to run without it yet."""
    from fleetcheck.schedule import running

    return fault.kind == "key" and fault.agent and not running.installed()


def _unused(inventory: Inventory, gateways: Sequence[Route]) -> Iterator[Check]:
    """Yield what the inventory sets for a host that is a gateway here, and that does not hold for a gateway."""
    hosts = {target.name: target for target in inventory.targets}
    for hop in gateways:
        host = hosts.get(hop.name)
        if host is None:
            continue
        keys = [("address", host.address, hop.host), ("port", host.port, hop.port), ("user", host.user, hop.user)]
        lost = [key for key, own, used in keys if own is not None and own != used]
        if host.identity_file is not None and host.identity_file not in hop.identity_files:
            lost.append("identity_file")
        if lost:
            said = f"gateway {hop.name}: what the inventory sets for this host is not used: {', '.join(lost)}"
            do = f"write [USER@]ADDRESS[:PORT] in proxy_jump, or give the ssh config a block Host {hop.name}"
            yield Check("route", said, do, warns=True)


def resting_now(inventory: Inventory, targets: Sequence[Target]) -> dict[str, str]:
    """Return why an audit would leave hosts alone today, by name: ``maintenance until 2026-12-05: reinstall``."""
    from fleetcheck.judge import now
    from fleetcheck.policy import Policy, resting

    found = resting(targets, Policy.of(inventory), now().date())
    return {name: str(look.message) for name, look in found.items()}


def _resolved(host: str, port: int) -> Check:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Check(
            "name", f"{host}: {error.strerror or error}", "correct its name, or give the inventory an address"
        )
    addresses = ", ".join(dict.fromkeys(str(item[4][0]) for item in found))
    return Check("name", f"{host} is {addresses}")


def _ssh(target: Target, route: Route, chosen: Settings) -> Check:
    """Return what the real ssh says, told what the audit would do."""
    program = shutil.which("ssh")
    if program is None:
        return Check("ssh", "there is no ssh here", "install openssh-client")
    command = [
        program, "-v", *_told(target, route, chosen), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
        "-o", f"ConnectTimeout={round(chosen.limits.connect)}", "-o", f"HostName={route.host}",
        "-p", str(route.port), "-l", route.user, "--", target.name, "true",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            timeout=SSH_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Check(
            "ssh", f"ssh did not end within {SSH_SECONDS} s", "look where it waits: ssh -v " + target.name
        )
    way = [line.removeprefix("debug1: ") for line in done.stderr.splitlines() if line.startswith("debug1: ")]
    passed = [line for line in way if line.startswith(MILESTONES)]
    if done.returncode != 255:
        return Check("ssh", "; ".join(passed) or "it came through")
    last = [
        line for line in done.stderr.splitlines() if line.strip() and not line.startswith(("debug1:", "OpenSSH"))
    ]
    said = "; then: ".join(piece for piece in ("; ".join(passed), " / ".join(last[-3:])) if piece)
    return Check("ssh", said or "ssh said nothing", "ssh itself does not come through: mend that first")


def _told(target: Target, route: Route, chosen: Settings) -> list[str]:
    """Return the options that make ssh go the audit's way: the inventory's keys win over the ssh config."""
    config = target.ssh_config or chosen.ssh_config
    words = ["-F", str(Path(config).expanduser())] if config else []
    if target.known_hosts or chosen.known_hosts:
        words += ["-o", "UserKnownHostsFile=" + " ".join(f'"{path}"' for path in route.known_hosts_files)]
    if target.proxy_jump:
        return [
            *words,
            "-J",
            target.proxy_jump,
            *(["-i", route.identity_files[0]] if target.identity_file else []),
        ]
    if target.identity_file is None:
        return words
    # ssh offers the config's keys as well, the audit does not; without a config, all that it says is told.
    words = ["-F", "none", "-i", route.identity_files[0], "-o", "IdentitiesOnly=yes"]
    words += ["-o", "UserKnownHostsFile=" + " ".join(f'"{path}"' for path in route.known_hosts_files)]
    if route.host_key_alias:
        words += ["-o", f"HostKeyAlias={route.host_key_alias}"]
    if route.proxy_jump:
        words += ["-J", ",".join(route.proxy_jump)]
    if route.proxy_command:
        words += ["-o", "ProxyCommand=" + route.proxy_command.replace("%", "%%")]
    return words


def _look(target: Target, chosen: Settings) -> Check:
    from fleetcheck.remote.reach import Reach

    reach = Reach(chosen)
    try:
        evidence = reach.look(target)
    finally:
        reach.close()
    if evidence.outcome == "checked":
        return Check("audit", f"checked in {evidence.seconds:.1f} s")
    at = f" (stage {evidence.stage})" if evidence.stage else ""
    return Check("audit", f"{evidence.outcome}{at}", evidence.message or "see the steps above")
