"""A fleet on loopback for tests of size and for benchmarks: one real sshd under many names.

In: a folder and a number of hosts. Out: an inventory, an ssh config and known_hosts that lead every name to the
one daemon. All names share one made host, whose environment and nvidia-smi the agent looks at; where ``recorded``,
the daemon plays that look's answer back in place of running the agent: a thousand hosts then fit on one machine.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import yaml
from support.sshd import Sshd

from fleetcheck.agent import bundle
from fleetcheck.agent.evidence import Request
from fleetcheck.demo import hosts
from fleetcheck.inventory.model import Target, VenvItem
from fleetcheck.remote.reach import request_for
from fleetcheck.remote.settings import Settings

ADDRESSES = 16
"""sshd listens on no more (MAX_LISTEN_SOCKS)."""
PLACEHOLDER = "@marker@"
REPLAY = """\
# Reads the agent's script up to its marker and answers what was recorded, behind that marker.
marker=$(grep -m1 '^fleetcheck_marker=')
marker=${marker#*\\'}
exec sed "s/^@marker@ /${marker%\\'} /" ANSWER
"""


class LoopbackFleet:
    """``with LoopbackFleet(folder) as fleet:`` a daemon, and the files that lead to it.

    ``padding`` adds lines for hosts of other names to known_hosts, which in a real fleet holds a line a host.
    ``users`` may log in besides the current one: the account without a shell, where this machine has it.
    """

    def __init__(self, folder: Path, *, recorded: bool = False, padding: int = 0) -> None:
        self.folder = folder.resolve()
        self._recorded, self._padding = recorded, padding
        self._stack = contextlib.ExitStack()
        accounts = {entry.pw_name for entry in pwd.getpwall()} if os.geteuid() == 0 else set()
        self.users = tuple(accounts & {"fleetcheck-nologin"})

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.sysroot = self.folder / "host"
            hosts.supported(self.sysroot, "loopback")
            self.folder.chmod(0o755)
            options: list[str] = []
            if self._recorded:
                answer, replay = self.folder / "answer", self.folder / "replay.sh"
                marker = bundle.new_marker()
                answer.write_bytes(answered(self.request(), marker).replace(marker.encode(), PLACEHOLDER.encode()))
                replay.write_text(REPLAY.replace("ANSWER", str(answer)))
                options.append(f"ForceCommand exec /bin/sh {replay}")
            self.sshd = stack.enter_context(Sshd(addresses=ADDRESSES, options=options, users=self.users))
            self.known_hosts = self.folder / "known_hosts"
            self.known_hosts.write_text("".join(self._known_lines()))
            self.config = self.folder / "ssh_config"
            self.config.write_text(
                f"Port {self.sshd.port}\nUser {self.sshd.user}\nIdentityFile {self.sshd.key}\nIdentitiesOnly yes\n"
                f"UserKnownHostsFile {self.known_hosts}\nGlobalKnownHostsFile /dev/null\n"
                "StrictHostKeyChecking yes\nBatchMode yes\n"
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def request(self) -> Request:
        """Return what the agent is asked on each host."""
        target = Target(name="any", sysroot=str(self.sysroot), venvs=(VenvItem(path=hosts.VENV),))
        settings = Settings()
        return request_for(target, settings, settings.limits.host)

    def names(self, count: int) -> dict[str, str]:
        """Return ``count`` host names and the address of each."""
        return {f"host{number:04}": self.sshd.addresses[number % ADDRESSES] for number in range(count)}

    def inventory(self, count: int, others: dict[str, dict[str, object]] | None = None) -> Path:
        """Write an inventory of ``count`` good hosts, and ``others`` with the keys given."""
        entries: dict[str, object] = {name: {"address": address} for name, address in self.names(count).items()}
        document = {
            "defaults": {"venvs": [hosts.VENV], "sysroot": str(self.sysroot)},
            "hosts": entries | (others or {}),
        }
        path = self.folder / f"inventory-{len(entries) + len(others or {})}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def _known_lines(self) -> Iterator[str]:
        kind, blob = Path(f"{self.sshd.host_key}.pub").read_text().split()[:2]
        for address in self.sshd.addresses:
            yield f"[{address}]:{self.sshd.port} {kind} {blob}\n"
        for number in range(self._padding):
            yield f"[gpu{number:04}.lab]:{self.sshd.port} {kind} {blob}\n"


def answered(request: Request, marker: str) -> bytes:
    """Return the bytes with which the agent answers ``request`` on this machine."""
    with subprocess.Popen(
        ["/bin/sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as shell:
        assert shell.stdin is not None and shell.stdout is not None
        shell.stdin.write(bundle.script(request, marker))
        shell.stdin.flush()
        answer = shell.stdout.read()
    assert f"{marker} end ".encode() in answer
    return answer
