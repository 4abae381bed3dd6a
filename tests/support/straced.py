"""One look of the agent under strace: what it opened, wrote, connected to and started."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from agent.agent_host import read_until, this_python

from fleetcheck.agent.bundle import new_marker, script
from fleetcheck.agent.evidence import Request
from fleetcheck.agent.frame import Collector

CALLS = "trace=open,openat,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat2,symlink,link,socket,connect,execve"


@dataclass(frozen=True)
class Trace:
    """The calls of every process of the look, and the states of its environments."""

    lines: list[str]
    states: list[str]

    def matching(self, pattern: str) -> list[str]:
        """Return the calls in which a pattern is found."""
        return [line for line in self.lines if re.search(pattern, line)]

    @property
    def written(self) -> list[str]:
        """Calls that would change a file, beside /dev/null."""
        found = self.matching(r"O_(WRONLY|RDWR|CREAT)|mkdir|unlink|rename|creat\(|symlink|link\(")
        return [line for line in found if '"/dev/null"' not in line and "readlink" not in line]


def trace(request: Request, log: Path) -> Trace:
    """Run the agent once through a shell and follow all its processes."""
    marker = new_marker()
    command = ["strace", "-f", "-qq", "-s", "300", "-e", CALLS, "-o", str(log), "/bin/sh"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(script(request, marker, pythons=(this_python(),)))
        process.stdin.flush()
        collector = Collector(marker, request.max_bytes)
        read_until(process, collector, 300, lambda: collector.ended)
        process.stdin.close()
    states = [collector.parts[f"venv/{index}"]["state"] for index in range(len(request.venvs))]
    return Trace(log.read_text(errors="replace").splitlines(), states)
