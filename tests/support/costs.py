"""What one look of the agent costs: all processes that its script starts, by the kernel's accounts."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from fleetcheck.agent.bundle import new_marker, script
from fleetcheck.agent.evidence import Request
from fleetcheck.agent.frame import Collector


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU and wall time in milliseconds, the largest process's peak memory in MiB."""

    cpu_ms: float
    wall_ms: float
    peak_mib: float


class NotWholeError(Exception):
    """The answer that was to be measured is not the whole one."""


def look_cost(shell: str, request: Request, python: str, env: Mapping[str, str] | None = None) -> Cost:
    """Run the agent once in a child of its own, and return what it cost. Raises NotWholeError."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = json.dumps(_measured(shell, request, python, env))
            os.write(tell, answer.encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told) as answers:
        text = answers.read()
    os.waitpid(pid, 0)
    found = json.loads(text) if text else {"why": "the measuring process failed"}
    if "why" in found:
        raise NotWholeError(f"under {python}: {found['why']}")
    return Cost(**found)


def _measured(shell: str, request: Request, python: str, env: Mapping[str, str] | None) -> dict[str, object]:
    marker = new_marker()
    text = script(request, marker, pythons=(python,))
    collector, began = Collector(marker, request.max_bytes), time.monotonic()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([shell], env=env, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(text)
        process.stdin.flush()
        collector.feed(process.stdout.read())
        process.stdin.close()
    wall, usage = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    states = [collector.parts.get(f"venv/{index}", {}).get("state") for index in range(len(request.venvs))]
    if not collector.ended or states != ["ran"] * len(request.venvs):
        return {"why": f"environments {states}, end {collector.ended}"}
    # The kernel's figure for a child holds the memory of this process, from before its exec.
    peak = collector.parts["end"]["max_rss_kib"] / 1024
    return asdict(Cost(1000 * (usage.ru_utime + usage.ru_stime), 1000 * wall, peak))
