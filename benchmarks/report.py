"""What reports cost: CPU and size of 5,000 hosts with 25,000 findings in each format, beside 1,000 hosts.

``python benchmarks/report.py`` prints a row a format; time that grows with the hosts alone has a ratio near 5.
Then, where Chromium is installed, how long the page of each fleet takes from the request to the first picture, its
script run. It ends with 1 where a format, or the page of 1,000 hosts, takes more than its budget.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from fleetcheck.agent.evidence import OUTCOMES
from fleetcheck.facts.records import Device, FlashInfer, Fusion, Gpus, Torch, Venv
from fleetcheck.report import formats
from fleetcheck.rules.finding import SEVERITIES, Finding
from fleetcheck.run import HostResult, Run, RunInfo, summarise

BUDGET_SECONDS = 10.0
OPENED_SECONDS = 2.0
PAINTED = """() => new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"""
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def fleet(hosts: int) -> Run:
    """Return a run of hosts with 8 GPUs, 2 environments and 5 findings each; one in 50 was not checked."""
    results, findings = [], []
    for number in range(hosts):
        name = f"gpu{number:04d}.rack{number % 40}.lab"
        outcome = OUTCOMES[1 + number % (len(OUTCOMES) - 1)] if number % 50 == 49 else "checked"
        results.append(
            HostResult(
                name=name, address=f"10.{number >> 8}.{number & 255}.1", groups=("rtx",), outcome=outcome,
                stage=None, detail=None, message=None, verdict="findings" if outcome == "checked" else outcome,
                attempts=1, seconds=1.5, system=None, gpus=gpus(number), toolkits=(),
                venvs=(venv(f"/opt/venvs/{number % 9}"), venv("/root/ml-env")), caches=None, processes=None,
            )
        )  # fmt: skip
        findings += [finding(name, number, kind) for kind in range(5)]
    info = RunInfo(
        id="x", started="2030-01-01T00:00:00Z", finished="2030-01-01T00:01:00Z", version="0", inventory="x",
        complete=True,
    )  # fmt: skip
    return Run(run=info, summary=summarise(tuple(results)), hosts=tuple(results), findings=tuple(findings))


def gpus(number: int) -> Gpus:
    """Return 8 GPUs."""
    devices = tuple(
        Device(
            index=index, uuid=f"GPU-{number:08x}-{index}", bus_id=f"00000000:0{index}:00.0", name=NAME, state="ok"
        )
        for index in range(8)
    )
    return Gpus(
        state="ok", count=8, compute_capability=("12.0",), names=(NAME,), driver="580.95.05", devices=devices
    )


def venv(path: str) -> Venv:
    """Return an environment whose FlashInfer is whole."""
    root = f"{path}/lib/python3.11/site-packages/flashinfer"
    flash = FlashInfer(
        version="0.6.2", root=root, csrc_dir=f"{root}/data/csrc", csrc_default=f"{root}/data/csrc",
        csrc_state="complete",
    )  # fmt: skip
    fusion = Fusion(verdict="refused", effective="off", gate=(9, 10))
    return Venv(path=path, python="3.11.2", flashinfer=flash, fusion=fusion, torch=Torch(version="2.9.1"))


def finding(host: str, number: int, kind: int) -> Finding:
    """Return a finding: some say the same of every host, some something different of each."""
    different = f" ({number})" if kind % 2 else ""
    return Finding(
        rule=f"rule-{kind}", severity=SEVERITIES[kind % 4], host=host, venv="/root/ml-env" if kind > 2 else None,
        message=f"what the rule {kind} says of a host, in a sentence of usual length{different}", expected="a",
        seen=["b"], basis="resolved", remedy=("cp -a a a.bak", f"pip install --force-reinstall x=={kind}"),
        reference="flashinfer#3903", cause="rule-0" if kind == 4 else None,
    )  # fmt: skip


def cpu_seconds(run: Run, name: str, view: formats.View) -> tuple[float, int]:
    """Return the CPU time that a format takes, and how many bytes it makes."""
    gc.collect()
    before = time.process_time()
    text = formats.render(run, name, view)
    return time.process_time() - before, len(text.encode())


def opened(chromium: str, page: str) -> float:
    """Return how many seconds Chromium takes to open a page, the median of five: request to first picture."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "page.html"
        file.write_text(page, "utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1280, "height": 860})
        taken = []
        for _ in range(5):
            window.goto(file.as_uri())
            taken.append(float(window.evaluate(PAINTED)) / 1000)
        browser.close()
    return statistics.median(taken)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=5000, help="hosts of the larger fleet (default 5000)")
    hosts = parser.parse_args().hosts
    small, large = fleet(hosts // 5), fleet(hosts)
    formats.render(small, "table")  # the first call imports and compiles
    views = {name: (name, formats.View(width=120)) for name in formats.FORMATS}
    views |= {"table --wide": ("table", formats.View(wide=True))}
    print(f"{len(large.hosts)} hosts, {len(large.findings)} findings, beside {len(small.hosts)} hosts")
    print(f"{'format':<14}{'CPU s':>8}{'ratio':>8}{'MB':>8}")
    kept = True
    for label, (name, view) in views.items():
        formats.render(fleet(10), name, view)
        before = min(cpu_seconds(small, name, view)[0] for _ in range(3))
        after, size = cpu_seconds(large, name, view)
        kept = kept and after < BUDGET_SECONDS
        print(f"{label:<14}{after:>8.2f}{after / before if before else float('nan'):>8.1f}{size / 1e6:>8.1f}")
    print(f"budget of a format: {BUDGET_SECONDS:.0f} s, {'kept' if kept else 'BROKEN'}")
    chromium = shutil.which("chromium")
    for run in (small, large) if chromium else ():
        seconds = opened(chromium, formats.render(run, "html"))
        kept = kept and (run is large or seconds < OPENED_SECONDS)
        print(f"page of {len(run.hosts)} hosts: opened in {seconds:.2f} s")
    print(
        f"budget of the small page: {OPENED_SECONDS:.0f} s" if chromium else "the page was not opened: no chromium"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
