"""CPU and peak memory of the agent against its budgets, under every Python of this machine.

    python benchmarks/agent.py [FOLDER…]
    python benchmarks/agent.py --version 0.7.4 [--python 3.8,3.13] [--shell bash] [--runs 7]

FOLDER holds an unpacked FlashInfer wheel (``flashinfer/`` and its ``.dist-info``), further ones what goes beside
it, such as sglang. Without it, ``--version`` is installed, out of those that ``make fetch`` brings
(``tests/support/fetch.py --all`` for all of them): the newest of the small set unless told otherwise.

The host part is measured as the whole tree of processes that the script starts, shell and interpreter start-up
included, with no environment listed and no nvidia-smi; the venv part as what one environment adds to it. Peak
memory is that of the agent's largest process, as its last part tells.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
# In the place of this folder, whose agent.py would be taken for tests/agent.
sys.path[:1] = [str(HERE), str(HERE / "tests")]

from agent.agent_host import pythons, shells  # noqa: E402  the path must stand first
from support import fetch, wheels  # noqa: E402
from support.costs import Cost, NotWholeError, look_cost  # noqa: E402

from fleetcheck.agent.bundle import inside_text, new_marker, script  # noqa: E402
from fleetcheck.agent.evidence import Request  # noqa: E402

HOST_CPU_MS = 100
VENV_CPU_MS = 150
MEMORY_MIB = 24
RUNS = 7


def fetched(version: str | None) -> fetch.Package | None:
    """Return a release that was fetched, without a version the newest of the small set, or None."""
    found = [
        package
        for package in fetch.packages()
        if package.name == "flashinfer-python"
        and (package.version == version if version else package.set == "small")
        and (fetch.cache_folder() / package.filename).is_file()
    ]
    return max(found, key=lambda package: tuple(map(int, package.version.split("."))), default=None)


def environment(folder: Path, python: str, version: str, trees: list[Path]) -> str:
    """Make an environment with FlashInfer in it, and return its path."""
    venv = folder / f"venv-{version}"
    subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = venv / f"lib/python{version}/site-packages"
    for tree in trees:
        if (tree / ".scripts").is_dir():
            wheels.install(tree, site, venv / "bin")
            continue
        for entry in tree.resolve().iterdir():
            if entry.name.startswith(("flashinfer", "sglang", "vllm")):
                (site / entry.name).symlink_to(entry)
    return str(venv)


def measure(shell: str, python: str, venv: str, runs: int) -> tuple[float, float, float]:
    """Return milliseconds of CPU of the host part and of one environment, and the peak in MiB."""
    discover = ("running",)
    alone = [look_cost(shell, Request(discover=discover), python) for _ in range(runs)]
    both = [look_cost(shell, Request(discover=discover, venvs=(venv,)), python) for _ in range(runs)]

    def cpu(costs: list[Cost]) -> float:
        return statistics.median(cost.cpu_ms for cost in costs)

    return cpu(alone), cpu(both) - cpu(alone), max(cost.peak_mib for cost in alone + both)


def main() -> int:
    """Print one line a Python and shell, and return 1 where a budget is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--version", help="a release of FlashInfer that was fetched")
    parser.add_argument("--python", help="only these, such as 3.8,3.13", default="")
    parser.add_argument("--shell", help="only this one, such as bash", default="")
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    sent = len(script(Request(), new_marker()))
    broken = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = None if given.folders else fetched(given.version)
        if package is None and not given.folders:
            print("needs a folder with an unpacked FlashInfer wheel, or `make fetch`", file=sys.stderr)
            return 2
        trees, said = given.folders, " ".join(map(str, given.folders))
        if package is not None:
            trees = [wheels.unpack(fetch.cache_folder() / package.filename, folder / "unpacked")]
            said = f"FlashInfer {package.version}"
        wire = f"{sent / 1024:.0f} KiB, to each environment {len(inside_text()) / 1024:.0f} KiB"
        print(f"on the wire {wire}, over {said}")
        print(f"{'python':8}{'shell':8}{'host CPU':>12}{'venv CPU':>12}{'peak':>12}   (medians of {given.runs})")
        wanted = given.python.split(",") if given.python else list(pythons())
        for version, python in pythons().items():
            if version not in wanted:
                continue
            venv = environment(folder, python, version, trees)
            for shell in shells():
                if given.shell and Path(shell).name != given.shell:
                    continue
                try:
                    host_cpu, venv_cpu, peak = measure(shell, python, venv, given.runs)
                except NotWholeError as error:
                    raise SystemExit(f"the answer was not whole {error}") from None
                over = host_cpu > HOST_CPU_MS or venv_cpu > VENV_CPU_MS or peak > MEMORY_MIB
                broken += over
                figures = f"{host_cpu:9.0f} ms{venv_cpu:9.0f} ms{peak:8.1f} MiB"
                print(f"{version:8}{Path(shell).name:8}{figures}   {'OVER BUDGET' if over else 'ok'}", flush=True)
    print(f"budgets: host {HOST_CPU_MS} ms, one environment {VENV_CPU_MS} ms, {MEMORY_MIB} MiB")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
