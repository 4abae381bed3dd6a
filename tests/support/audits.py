"""Audits hosts of the end-to-end tests through the library and through the command."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.sshd import Sshd
from support.workshop import Built, Workshop

from fleetcheck.audit import audit
from fleetcheck.inventory.model import Target, VenvItem
from fleetcheck.judge import Policy, new_run
from fleetcheck.recording import Writer
from fleetcheck.remote.settings import Settings
from fleetcheck.rules.finding import Finding
from fleetcheck.run import Finished, HostResult, Run

COMMAND = Path(sys.executable).with_name("fleetcheck")


@dataclass
class Audited:
    """What the one audit left: the run, the recording, the hosts' folders before and after."""

    run: Run
    targets: tuple[Target, ...]
    settings: Settings
    evidence: Path
    shop: Workshop
    built: dict[str, Built]
    before: dict[str, tuple[int, ...]]
    after: dict[str, tuple[int, ...]]
    left_running: list[int]
    executed: list[str]

    def host(self, name: str) -> HostResult:
        """Return the result of one host."""
        (host,) = (host for host in self.run.hosts if host.name == name)
        return host

    def findings(self, name: str) -> list[Finding]:
        """Return the findings of one host."""
        return [finding for finding in self.run.findings if finding.host == name]


def target(sshd: Sshd, name: str, host: Built) -> Target:
    """Return the inventory's entry of one built host, in a group of its own: these hosts are meant to differ."""
    keys = {"user": host.user} if host.user else {}
    venvs = tuple(VenvItem(path=path) for path in host.venvs)
    root = str(host.tree.root)
    return sshd.target(name, sysroot=root, groups=(name,), venvs=venvs, expect=host.expect, **keys)


def record(targets: tuple[Target, ...], settings: Settings, evidence: Path) -> Run:
    """Audit ``targets``, write the recording, and return the run."""
    info, policy, writer = new_run("e2e"), Policy(), Writer(evidence)
    writer.begin(info, policy, targets)
    for event in audit(targets, info=info, policy=policy, settings=settings, on_evidence=writer.host):
        if isinstance(event, Finished):
            assert event.run.run.finished is not None
            writer.end(event.run.run.finished, complete=event.run.run.complete)
            return event.run
    raise AssertionError("the audit ended without a run")


def fleetcheck(*arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Run the installed command and return how it ended; ``seconds`` bound it."""
    command = [str(COMMAND), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
