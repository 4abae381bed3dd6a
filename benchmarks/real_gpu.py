"""On a machine with a real GPU: what the audit says against what the machine says, and what each costs.

Needs an NVIDIA GPU with its driver, torch for this interpreter, OpenSSH's sshd and ssh-keygen, and a folder of
wheels: flashinfer-python 0.6.2 and what its import asks for. Builds two environments (as released; gate opened by
hand), puts a real sshd in front of this machine on loopback, and audits it through the command line:

    python benchmarks/real_gpu.py --wheels WHEELS --out OUT [--build]

``--build`` also compiles ``trtllm_comm`` through FlashInfer's own JIT (minutes), keeps a process with it loaded,
and audits again. OUT receives ``report.json``, ``report.md`` and the evidence, its ids replaced by made-up ones.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tests")]

from support.sshd import Sshd  # noqa: E402  the path must stand first

PLAIN = "import flashinfer.jit.env as e; print(e.FLASHINFER_CSRC_DIR)"
SERVE = """
import sys
from flashinfer.jit.comm import gen_trtllm_comm_module
gen_trtllm_comm_module().build_and_load()
print("ready", flush=True)
sys.stdin.read()
"""
QUERY = "index,uuid,pci.bus_id,name,compute_cap,memory.total,driver_version,pcie.link.width.current"


@dataclass
class Cost:
    """What one command cost: seconds, MiB, and the files that it left."""

    wall_s: float
    cpu_s: float
    peak_rss_mib: float
    gpu_mib: int
    files_written: int
    output: str


def gpu_memory() -> int:
    """Return the used memory of all GPUs, MiB."""
    text = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sum(int(value) for value in text.split() if value.isdigit())


def listing(*folders: Path) -> set[tuple[str, int, int]]:
    """Return every file below the folders with its size and time of change."""
    found = set()
    for folder in folders:
        for path in folder.rglob("*"):
            state = path.lstat()
            found.add((str(path), state.st_size, state.st_mtime_ns))
    return found


@contextmanager
def gpu_peak() -> Iterator[list[int]]:
    """Sample the used GPU memory until the block ends; the list then holds the growth above the start, MiB."""
    start, peak, done = gpu_memory(), [0], threading.Event()

    def sample() -> None:
        while not done.wait(0.1):
            peak[0] = max(peak[0], gpu_memory() - start)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def measured(command: list[str], home: Path, watch: list[Path], stdin: bytes = b"") -> Cost:
    """Run a command and return its cost, children included."""
    before = listing(home, *watch)
    environment = {**os.environ, "HOME": str(home)}
    with gpu_peak() as peak, tempfile.TemporaryFile() as out:
        begin = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment)
        assert child.stdin is not None
        child.stdin.write(stdin)
        child.stdin.flush()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stdin.close()
        out.seek(0)
        text = out.read().decode(errors="replace")
    if child.returncode != 0:
        raise SystemExit(f"{shlex.join(command)[:200]} ended with {child.returncode}:\n{text[-3000:]}")
    written = len({path for path, _, _ in listing(home, *watch) - before})
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, peak[0], written, text)


def environments(base: Path, wheels: Path) -> tuple[Path, Path]:
    """Build the two environments, with this interpreter's torch, and return their folders."""
    torch = subprocess.run(
        [sys.executable, "-c", "import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    made = []
    for name in ("stock", "patched"):
        venv = base / name
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        names = ["flashinfer_python", "apache_tvm_ffi", "nvidia_cudnn_frontend"]
        files = [str(next(wheels.glob(f"{package}-*.whl"))) for package in names]
        pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet"]
        subprocess.run([*pip, "--no-index", "--no-deps", "--no-compile", *files], check=True)
        packages = next((venv / "lib").glob("python3*/site-packages"))
        (packages / "torch.pth").write_text(torch + "\n")
        made.append(venv)
    gate = next((made[1] / "lib").glob("python3*/site-packages/flashinfer/jit/comm.py"))
    text = gate.read_text()
    opened = re.sub(
        r"(def gen_trtllm_comm_module.*?supported_major_versions=)\[9, 10\]", r"\1[9, 10, 12]", text, flags=re.S
    )
    if opened == text:
        raise SystemExit("the gate of gen_trtllm_comm_module was not found in this FlashInfer")
    gate.write_text(opened)
    return made[0], made[1]


def audit(sshd: Sshd, venvs: list[Path], out: Path, name: str, *flags: str) -> dict[str, Any]:
    """Audit this machine through sshd and the command line; return the JSON document."""
    inventory = out / "inventory.yaml"
    entry = {
        "address": "127.0.0.1", "port": sshd.port, "user": sshd.user, "identity_file": str(sshd.key),
        "known_hosts": str(sshd.known_hosts), "venvs": [*map(str, venvs), "running"],
    }  # fmt: skip
    inventory.write_text(json.dumps({"hosts": {"gpu-machine": entry}}))
    command = [sys.executable, "-m", "fleetcheck", "audit", "-i", str(inventory), "--format", "json"]
    command += ["--ssh-config", "none", "--output", f"evidence:{out / (name + '.raw.jsonl')}", *flags]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=HERE, timeout=300)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"the audit ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    (out / f"{name}.json").write_text(done.stdout)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def made_up(text: str, places: dict[str, str]) -> str:
    """Replace ids and folders of this machine by made-up ones, the same one each time."""
    for place, name in places.items():
        text = text.replace(place, name)
    text = re.sub(r"/tmp/fleetcheck-sshd-\w+", "/tmp/fleetcheck-sshd", text)
    text = re.sub(
        r"\((\w+)@\)", "(builder@)", text
    )  # who built the driver's module, in /proc/driver/nvidia/version
    seen: dict[str, str] = {}

    def uuid(match: re.Match[str]) -> str:
        return seen.setdefault(match[0], f"GPU-00000000-0000-4000-8000-{len(seen) + 1:012d}")

    text = re.sub(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid, text)
    text = re.sub(r"(?<=, )\d{13}(?=, )", "1650000000000", text)
    text = re.sub(r'("machine_id": ?")[0-9a-f]+"', r"\g<1>" + "0" * 64 + '"', text)
    return re.sub(r'("hostname": ?")[^"]*"', r'\1gpu-machine"', text)


def compare(document: dict[str, Any], venv: Path, plain: str) -> dict[str, Any]:
    """Return what the audit says of one environment and of the GPUs beside what the machine says."""
    host = document["hosts"][0]
    found = next(item for item in host["venvs"] if item["path"] == str(venv))
    rows = subprocess.run(
        ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    listed = [[cell.strip() for cell in row.split(",")] for row in rows]
    seen = [
        [
            str(gpu["index"]),
            gpu["uuid"],
            gpu["bus_id"],
            gpu["name"],
            gpu["compute_capability"],
            str(gpu["memory_mib"]),
        ]
        for gpu in host["gpus"]["devices"]
    ]
    return {
        "csrc_dir": {"audit": found["flashinfer"]["csrc_dir"], "plain": plain},
        "csrc_equal": found["flashinfer"]["csrc_dir"] == plain,
        "csrc_state": found["flashinfer"]["csrc_state"],
        "fusion": found["fusion"],
        "gpus_equal": seen == [row[:6] for row in listed],
        "driver_equal": {host["gpus"]["driver"]} == {row[6] for row in listed},
        "gpus": host["gpus"],
        "findings": [(finding["rule"], finding["severity"]) for finding in document["findings"]],
    }


def main() -> None:
    """Run everything and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--flag", action="append", default=[], help="a further flag for one more audit (--deep)")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    base = Path(tempfile.mkdtemp(prefix="fleetcheck-real-"))
    stock, patched = environments(base, given.wheels)
    report: dict[str, Any] = {}
    with Sshd() as sshd:
        home = base / "home"
        home.mkdir()
        plain = f"source {stock}/bin/activate && python3 -c {shlex.quote(PLAIN)}"
        costs = {}
        for name in ("plain command, first", "plain command, warm"):
            costs[name] = measured(["bash", "-c", plain], home, [stock])
        answer = costs["plain command, warm"].output.strip().splitlines()[-1]
        costs["agent, two environments, nvidia-smi"] = agent_cost([stock, patched], home)
        first = audit(sshd, [stock, patched], given.out, "idle")
        report["stock"], report["patched"] = compare(first, stock, answer), compare(first, patched, answer)
        if given.flag:
            deep = audit(sshd, [stock, patched], given.out, "flagged", *given.flag)
            report["flagged"] = compare(deep, stock, answer)
            report["flagged"]["basis"] = [venv["flashinfer"]["basis"] for venv in deep["hosts"][0]["venvs"]]
        if given.build:
            report["serving"] = serving(sshd, stock, patched, given.out, home)
    report["costs"] = {name: {**asdict(cost), "output": cost.output[-200:]} for name, cost in costs.items()}
    for raw in given.out.glob("*.raw.jsonl"):
        packed = given.out / raw.name.replace(".raw.jsonl", ".evidence.jsonl.gz")
        places = {str(base): "/srv/gpu", str(given.wheels.resolve()): "/srv/wheels", str(HERE): "/srv/fleetcheck"}
        packed.write_bytes(gzip.compress(made_up(raw.read_text(), places).encode(), mtime=0))
        raw.unlink()
    (given.out / "report.json").write_text(json.dumps(report, indent=1, default=str))
    (given.out / "report.md").write_text(table(costs))
    print(
        json.dumps({key: value for key, value in report.items() if key != "costs"}, indent=1, default=str)[:6000]
    )
    print(table(costs))


def agent_cost(venvs: list[Path], home: Path) -> Cost:
    """Return what the agent costs on the host, run as sshd runs it: the script on the stdin of a shell."""
    from fleetcheck.agent.bundle import new_marker, script
    from fleetcheck.agent.evidence import Request

    text = script(Request(venvs=tuple(map(str, venvs))), new_marker())
    return measured(["/bin/sh"], home, venvs, text)


def serving(sshd: Sshd, stock: Path, patched: Path, out: Path, home: Path) -> dict[str, Any]:
    """Build trtllm_comm through the JIT, keep a process with it loaded, audit, and return what was seen of it."""
    begin = time.monotonic()
    environment = {**os.environ, "HOME": str(home), "MAX_JOBS": str(os.cpu_count() or 4)}
    environment["PATH"] = f"{stock}/bin:{environment['PATH']}"
    environment["VIRTUAL_ENV"] = str(stock)
    with subprocess.Popen(
        [str(stock / "bin" / "python"), "-c", SERVE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            ready = next((line for line in server.stdout if line.strip() == "ready"), None)
            built = time.monotonic() - begin
            if ready is None:
                return {"built": False}
            maps = Path(f"/proc/{server.pid}/maps").read_text()
            mapped = sorted(
                {line.split(None, 5)[5].strip() for line in maps.splitlines() if "trtllm_comm" in line}
            )
            document = audit(sshd, [stock, patched], out, "serving")
            return {
                "built": True, "build_s": built, "pid": server.pid, "mapped": mapped,
                "processes": document["hosts"][0]["processes"], "caches": document["hosts"][0]["caches"],
                "findings": [(finding["rule"], finding["severity"]) for finding in document["findings"]],
            }  # fmt: skip
        finally:
            server.kill()


def table(costs: dict[str, Cost]) -> str:
    """Return the costs as a table in Markdown, each as a ratio to the warm plain command too."""
    base = costs["plain command, warm"]
    lines = [
        "| what | wall s | CPU s | of the plain command's CPU | peak MiB | GPU MiB | files written |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {cost.wall_s:.2f} | {cost.cpu_s:.2f} | {cost.cpu_s / base.cpu_s:.3f} "
        f"| {cost.peak_rss_mib:.0f} | {cost.gpu_mib} | {cost.files_written} |"
        for name, cost in costs.items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
