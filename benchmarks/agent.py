"""CPU and peak memory of the agent against its budgets, under every Python of this machine.

    python benchmarks/agent.py [FOLDER…]

FOLDER holds an unpacked FlashInfer wheel (``flashinfer/`` and its ``.dist-info``), further ones what goes beside
it, such as sglang; without it, the newest one below ``$FLEETCHECK_CACHE``. The host part is measured as the
whole tree of processes that the script starts, shell and interpreter start-up included, with no environment
listed and no nvidia-smi; the venv part as what one environment adds to it. Peak memory is that of the agent's
largest process, as its last part tells.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "agent"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent_host import pythons, shells

from fleetcheck.agent.bundle import inside_text, new_marker, script
from fleetcheck.agent.evidence import Request
from fleetcheck.agent.frame import Collector

HOST_CPU_MS = 100
VENV_CPU_MS = 150
MEMORY_MIB = 24
RUNS = 7


def source_tree() -> Path | None:
    """Return the folder with FlashInfer in it: the argument, else the newest in the cache."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1]).resolve()
    cache = os.environ.get("FLEETCHECK_CACHE")
    found = sorted(Path(cache).glob("**/flashinfer/jit/env.py")) if cache else []
    return found[-1].parents[2] if found else None


def measure(shell: str, request: Request, python: str) -> tuple[float, float]:
    """Return CPU milliseconds and peak MiB of one run, from the kernel's accounts of a child that ran it."""
    marker = new_marker()
    text = script(request, marker, pythons=(python,))
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        with subprocess.Popen(
            [shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(text)
            process.stdin.flush()
            collector = Collector(marker, request.max_bytes)
            collector.feed(process.stdout.read())
            process.stdin.close()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        states = [collector.parts.get(f"venv/{index}", {}).get("state") for index in range(len(request.venvs))]
        whole = collector.ended and states == ["ran"] * len(request.venvs)
        # The kernel's figure for a child holds the memory of this process, from before its exec.
        memory = collector.parts["end"]["max_rss_kib"] / 1024 if whole else 0
        os.write(tell, f"{whole} {1000 * (usage.ru_utime + usage.ru_stime)} {memory}".encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told) as answers:
        whole_text, cpu, peak = answers.read().split()
    os.waitpid(pid, 0)
    if whole_text != "True":
        raise SystemExit(f"the answer under {python} was not whole")
    return float(cpu), float(peak)


def environment(folder: Path, python: str, version: str, tree: Path) -> str:
    """Make an environment with FlashInfer linked into it, and return its path."""
    venv = folder / f"venv-{version}"
    subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = venv / f"lib/python{version}/site-packages"
    for place in (tree, *map(Path, sys.argv[2:])):
        for entry in place.resolve().iterdir():
            if entry.name.startswith(("flashinfer", "sglang")):
                (site / entry.name).symlink_to(entry)
    return str(venv)


def main() -> int:
    """Print one line a Python and shell, and return 1 where a budget is broken."""
    tree = source_tree()
    if tree is None or not (tree / "flashinfer/jit/env.py").is_file():
        print("needs a folder with an unpacked FlashInfer wheel: its path, or FLEETCHECK_CACHE", file=sys.stderr)
        return 2
    sent = len(script(Request(), new_marker()))
    print(
        f"on the wire {sent / 1024:.0f} KiB, to each environment {len(inside_text()) / 1024:.0f} KiB, over {tree}"
    )
    print(f"{'python':8}{'shell':8}{'host CPU':>12}{'venv CPU':>12}{'peak':>12}   (medians of {RUNS})")
    broken = 0
    with tempfile.TemporaryDirectory() as name:
        for version, python in pythons().items():
            venv = environment(Path(name), python, version, tree)
            for shell in shells():
                alone = [measure(shell, Request(discover=("running",)), python) for _ in range(RUNS)]
                both = [measure(shell, Request(discover=("running",), venvs=(venv,)), python) for _ in range(RUNS)]
                host_cpu = statistics.median(cpu for cpu, _ in alone)
                venv_cpu = statistics.median(cpu for cpu, _ in both) - host_cpu
                peak = max(memory for _, memory in alone + both)
                over = host_cpu > HOST_CPU_MS or venv_cpu > VENV_CPU_MS or peak > MEMORY_MIB
                broken += over
                figures = f"{host_cpu:9.0f} ms{venv_cpu:9.0f} ms{peak:8.1f} MiB"
                print(f"{version:8}{Path(shell).name:8}{figures}   {'OVER BUDGET' if over else 'ok'}")
    print(f"budgets: host {HOST_CPU_MS} ms, one environment {VENV_CPU_MS} ms, {MEMORY_MIB} MiB")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
