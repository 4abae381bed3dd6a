"""One look of the agent under strace: what it opened, wrote, connected to and started."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.agent_host import read_until, this_python

from fleetcheck.agent.bundle import new_marker, script
from fleetcheck.agent.evidence import Request
from fleetcheck.agent.frame import Collector

CHANGES = (
    "creat", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "symlink",
    "symlinkat", "link", "linkat", "mknod", "mknodat", "truncate", "chmod", "fchmodat", "chown", "lchown",
    "fchownat", "utimensat", "setxattr",
)  # fmt: skip
CALLS = ",".join(["open", "openat", *CHANGES, "socket", "bind", "connect", "sendto", "sendmsg", "execve"])
WRITES = re.compile(rf"O_(WRONLY|RDWR|CREAT|TRUNC)|^\d+ +({'|'.join(CHANGES)})\(")
# Nothing is behind them that could be changed or woken; the kernel's log is what the host part reads.
HARMLESS = re.compile(r'"/dev/(null|zero|u?random|kmsg|fd/\d+|std(in|out|err))"')


@dataclass(frozen=True)
class Trace:
    """The calls of every process of the look, and the parts of its answer."""

    lines: list[str]
    parts: Mapping[str, Any]
    venvs: int

    def matching(self, pattern: str) -> list[str]:
        """Return the calls in which a pattern is found."""
        return [line for line in self.lines if re.search(pattern, line)]

    @property
    def states(self) -> list[str]:
        """The states of the environments that were asked for."""
        return [self.parts[f"venv/{index}"]["state"] for index in range(self.venvs)]

    @property
    def written(self) -> list[str]:
        """Calls that would change a file, beside /dev/null; also those that were refused."""
        return [line for line in self.lines if WRITES.search(line) and '"/dev/null"' not in line]

    def changed_outside(self, scratch: Path) -> list[str]:
        """Return the calls that changed something elsewhere than in the agent's own folders below ``scratch``."""
        own = f'"{scratch}/fleetcheck-'
        return [line for line in self.written if " = -1 " not in line and own not in line]

    @property
    def connections(self) -> list[str]:
        """Calls that name an address of a network, or that reach any socket."""
        return self.matching(r"AF_INET6?, *sin6?_|(connect|sendto|sendmsg)\(")

    @property
    def devices(self) -> list[str]:
        """Files of /dev that were opened, beside shared memory and those with nothing behind them."""
        return [line for line in self.matching(r'open(at)?\(.*"/dev/(?!shm/)') if not HARMLESS.search(line)]


def trace(request: Request, log: Path, env: Mapping[str, str] | None = None) -> Trace:
    """Run the agent once through a shell, in the environment ``env``, and follow all its processes."""
    marker = new_marker()
    command = ["strace", "-f", "-qq", "-s", "300", "-e", f"trace={CALLS}", "-o", str(log), "/bin/sh"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdin is not None
        process.stdin.write(script(request, marker, pythons=(this_python(),)))
        process.stdin.flush()
        collector = Collector(marker, request.max_bytes)
        read_until(process, collector, 300, lambda: collector.ended)
        process.stdin.close()
    return Trace(log.read_text(errors="replace").splitlines(), collector.parts, len(request.venvs))
