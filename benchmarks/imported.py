"""The agent's answer beside that of the real import, for every pinned FlashInfer, and what each costs.

    python tests/support/fetch.py --all
    python benchmarks/imported.py --torch TORCH [--versions 0.6.2,0.7.4] [--scratch FOLDER] [--strace]

TORCH is what pip shall install as torch (a wheel, or a requirement such as ``torch==2.13.0+cpu`` where pip's
configuration finds it); the CPU build is enough, and needs CPython of the version that runs this. Each release is
installed into an environment of its own, all share one torch. Then, for each:

- ``source VENV/bin/activate && python -c 'import flashinfer.jit.env …'`` prints every constant, once as the
  machine is and once with a list of architectures set: without a GPU there is none to name the workspace by. What
  it costs is the cheaper of the two runs, since the first compiles;
- the audit looks at the same environment through a real sshd, in the same two ways and with ``--deep``.

All constants, the real csrc folder and the version must be equal. What rests on the GPUs may be left out by the
audit only where no list is set. Needs sshd, and for ``--strace``, which follows a look with ``--deep``, strace.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
# In the place of this folder, whose agent.py would be taken for tests/agent.
sys.path[:1] = [str(HERE), str(HERE / "tests")]

from support import wheels  # noqa: E402  the path must stand first
from support.costs import Cost, look_cost  # noqa: E402
from support.fetch import Package, cache_folder, is_here, packages  # noqa: E402
from support.sshd import Sshd  # noqa: E402
from support.straced import trace  # noqa: E402

from fleetcheck.agent.evidence import Request  # noqa: E402
from fleetcheck.audit import audit  # noqa: E402
from fleetcheck.inventory.model import VenvItem  # noqa: E402
from fleetcheck.judge import Policy, new_run  # noqa: E402
from fleetcheck.remote.settings import NO_CONFIG, Limits, Settings  # noqa: E402
from fleetcheck.run import Finished  # noqa: E402

# What the import itself asks for, in every release; what else a release requires is imported later or if there.
NEEDED = (
    "numpy", "requests", "tqdm", "einops", "click", "tabulate", "packaging", "ninja", "nvidia-ml-py",
    "apache-tvm-ffi",
)  # fmt: skip
ASK = """
import json, os, flashinfer, flashinfer.jit.env as e
def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else repr(value)
constants = {name: plain(value) for name, value in vars(e).items() if name.isupper() and name[0] != "_"}
print(json.dumps([constants, os.path.realpath(e.FLASHINFER_CSRC_DIR), getattr(flashinfer, "__version__", None)]))
"""
LISTED = {"FLASHINFER_CUDA_ARCH_LIST": "12.0f", "TORCH_CUDA_ARCH_LIST": "12.0"}
# Named by the GPUs, or by a list in their place.
BY_GPUS = {"FLASHINFER_WORKSPACE_DIR", "FLASHINFER_JIT_DIR", "FLASHINFER_GEN_SRC_DIR"}
GOAL = 40
RUNS = 5


@dataclass
class Row:
    """What was seen of one release. ``problem`` is the import's own, ``differs`` what the audit says otherwise."""

    version: str
    problem: str | None = None
    differs: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    constants: int = 0
    plain: Cost | None = None
    look: Cost | None = None
    alone: Cost | None = None

    @property
    def said(self) -> str:
        """Return the row's answer in a few words."""
        if self.problem is not None:
            return f"does not import: {self.problem}"
        return f"differs: {'; '.join(self.differs)}" if self.differs else f"equal, {self.constants} constants"


def installed(package: Package, folder: Path, libraries: Path) -> Path:
    """Make the environment of one release, with the shared libraries behind it; return its folder."""
    venv = folder / package.version
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = (venv / "lib").glob("python3*/site-packages")
    unpacked = folder / f"unpacked-{package.version}"
    unpacked.mkdir()
    wheels.install(wheels.unpack(cache_folder() / package.filename, unpacked), site, venv / "bin")
    (site / "beside.pth").write_text(f"{libraries}\n")
    return venv


def environ(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return what a login has, and ``more``."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", **more}


def plain(venv: Path, env: dict[str, str]) -> tuple[list[Any] | str, Cost]:
    """Run the plain command; return its constants, csrc folder and version (or why not), and its cost."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = ["bash", "-c", f'source "{venv}/bin/activate" && python -c "$ASK"']
        began = time.monotonic()
        child = subprocess.Popen(command, stdout=out, stderr=err, env={**env, "ASK": ASK}, cwd=env["HOME"])
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - began
        cost = Cost(1000 * (usage.ru_utime + usage.ru_stime), 1000 * wall, usage.ru_maxrss / 1024)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            return (err.read().decode(errors="replace").strip().splitlines() or ["no word"])[-1], cost
        answer: list[Any] = json.loads(out.read().splitlines()[-1])
        return answer, cost


def audited(sshd: Sshd, venv: Path, *, deep: bool = False) -> dict[str, Any]:
    """Audit this machine through sshd; return what the JSON document says of FlashInfer in one environment."""
    settings = Settings(limits=Limits(smi=10.0), ssh_config=NO_CONFIG, deep=deep)
    host = sshd.target("here", venvs=(VenvItem(path=str(venv)),))
    for event in audit((host,), info=new_run("imported"), policy=Policy(), settings=settings):
        if isinstance(event, Finished):
            document = event.run.model_dump(mode="json")
            (found,) = document["hosts"][0]["venvs"]
            return dict(found["flashinfer"] or {"version": found["error"], "constants": {}})
    raise SystemExit("the audit ended without a run")


def differences(real: list[Any], said: dict[str, Any], may_lack: set[str]) -> tuple[list[str], list[str]]:
    """Return what is told otherwise or not at all, and what is rightly left out."""
    constants, csrc, version = real
    told = said["constants"]
    differs = [name for name, value in told.items() if constants.get(name) != value]
    lacks = sorted(set(constants) - set(told))
    differs += [f"{name} is not told" for name in lacks if name not in may_lack]
    if said.get("csrc_real") != csrc or said.get("csrc_dir") != constants["FLASHINFER_CSRC_DIR"]:
        differs.append(f"csrc is told as {said.get('csrc_dir')}")
    # 0.2.x and 0.3.x have no __version__; their metadata tells.
    if version is not None and said["version"] != version:
        differs.append(f"version {version} is told as {said['version']}")
    return differs, [name for name in lacks if name in may_lack]


def compared(package: Package, venv: Path, sshds: tuple[Sshd, Sshd]) -> Row:
    """Compare one release in all ways."""
    row, (bare, listed) = Row(package.version), sshds
    real, row.plain = plain(venv, environ(bare.home, {}))
    if isinstance(real, str):
        row.problem = real
        return row
    row.constants = len(real[0])
    row.differs, row.left_out = differences(real, audited(bare, venv), BY_GPUS)
    deep = audited(bare, venv, deep=True)
    imported = (deep.get("imported_csrc_dir"), deep.get("imported_version"), deep.get("basis"))
    if imported != (real[0]["FLASHINFER_CSRC_DIR"], real[2] or "None", "imported"):
        row.differs.append(f"--deep tells {imported}, {deep.get('imported_error')}")
    again, warm = plain(venv, environ(listed.home, LISTED))
    if isinstance(again, str):
        row.differs.append(f"with a list of architectures it does not import: {again}")
    else:
        row.differs += [f"{one} (with a list)" for one in differences(again, audited(listed, venv), set())[0]]
        row.plain = min(row.plain, warm, key=lambda cost: cost.cpu_ms)
    env = environ(bare.home, {})
    base = os.path.realpath(sys.executable)
    row.look = middle([look_cost("/bin/sh", Request(venvs=(str(venv),)), base, env) for _ in range(RUNS)])
    row.alone = middle([look_cost("/bin/sh", Request(), base, env) for _ in range(RUNS)])
    return row


def middle(costs: list[Cost]) -> Cost:
    """Return the medians of CPU and wall, and the largest peak."""
    cpu, wall = (statistics.median(getattr(c, name) for c in costs) for name in ("cpu_ms", "wall_ms"))
    return Cost(cpu, wall, max(cost.peak_mib for cost in costs))


def followed(venv: Path, folder: Path) -> Iterator[str]:
    """Yield what a look with ``--deep`` did that it may not: under strace, in a scratch folder of its own."""
    scratch, home = folder / "strace-tmp", folder / "strace-home"
    for place in (scratch, home):
        place.mkdir(exist_ok=True)
    env = environ(home, {"TMPDIR": str(scratch)})
    seen = trace(Request(venvs=(str(venv),), deep=True), folder / "strace.log", env)
    error = seen.parts["deep/0"]["imported"]["error"]
    yield from [] if error is None else [f"the import failed: {error}"]
    yield from [] if [line for line in seen.written if f"{scratch}/" in line] else ["nothing was written at all"]
    yield from seen.changed_outside(scratch) + seen.connections + seen.devices
    yield from (f"{path} is left" for place in (scratch, home) for path in place.rglob("*"))


def lines(rows: list[Row]) -> Iterator[str]:
    """Yield the table in Markdown."""
    yield (
        "| FlashInfer | the audit's answer | import: CPU s | wall s | MiB "
        "| look: CPU ms | wall ms | MiB | CPU | CPU of the environment alone |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        start = f"| {row.version} | {row.said} | "
        if row.plain is None or row.look is None or row.alone is None:
            yield start + "| | | | | | | |"
            continue
        real, look, own = row.plain, row.look, row.look.cpu_ms - row.alone.cpu_ms
        yield start + (
            f"{real.cpu_ms / 1000:.2f} | {real.wall_ms / 1000:.2f} | {real.peak_mib:.0f} "
            f"| {look.cpu_ms:.0f} | {look.wall_ms:.0f} | {look.peak_mib:.0f} "
            f"| 1 : {real.cpu_ms / look.cpu_ms:.0f} | 1 : {real.cpu_ms / own:.0f} |"
        )


def summary(rows: list[Row]) -> Iterator[str]:
    """Yield what the table comes to."""
    told = sum(row.problem is None and not row.differs for row in rows)
    yield f"{told} of {len(rows)} releases are told as their import tells."
    left = sorted({name for row in rows for name in row.left_out})
    yield f"Without a list of architectures the audit leaves out: {', '.join(left) or 'nothing'}."
    own = [
        row.plain.cpu_ms / (row.look.cpu_ms - row.alone.cpu_ms)
        for row in rows
        if row.plain and row.look and row.alone
    ]
    if own:
        span = f"1 : {min(own):.0f} to 1 : {max(own):.0f}"
        yield f"One environment costs {span} of its import's CPU (goal 1 : {GOAL})."


def run(given: argparse.Namespace, folder: Path) -> int:
    """Do everything below one folder; return the exit status."""
    wanted = [p for p in packages() if p.name == "flashinfer-python"]
    wanted.sort(key=lambda p: tuple(map(int, p.version.split("."))))
    if given.versions:
        wanted = [p for p in wanted if p.version in given.versions.split(",")]
    missing = [p.filename for p in wanted if not is_here(p, cache_folder())]
    if missing or not wanted:
        print(f"not fetched: {', '.join(missing)} (tests/support/fetch.py --all)", file=sys.stderr)
        return 2
    libraries = folder / "libraries"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--quiet"]
    subprocess.run([*pip, "--target", str(libraries), given.torch, *NEEDED], check=True)
    rows, bad = [], 0
    with ExitStack() as stack:
        sshds = (stack.enter_context(Sshd()), stack.enter_context(Sshd(environment=LISTED)))
        for package in wanted:
            venv = installed(package, folder, libraries)
            row = compared(package, venv, sshds)
            rows.append(row)
            print(f"{row.version}: {row.said}", file=sys.stderr, flush=True)
            for line in followed(venv, folder) if given.strace and row.problem is None else ():
                bad += 1
                print(f"{row.version}: --deep under strace: {line}", flush=True)
    if given.strace and not bad:
        print("Under strace, --deep wrote to its scratch folder alone, which is gone; no device, no connection.")
    print("\n".join([*lines(rows), "", *summary(rows)]))
    return 1 if bad or any(row.differs for row in rows) else 0


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", required=True, help="what pip shall install as torch")
    parser.add_argument("--versions", help="only these, such as 0.6.2,0.7.4")
    parser.add_argument("--scratch", type=Path, help="where the environments are made, and removed (some 5 GB)")
    parser.add_argument("--strace", action="store_true", help="also follow a look with --deep")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleetcheck-imported-", dir=given.scratch) as name:
        return run(given, Path(name).resolve())


if __name__ == "__main__":
    sys.exit(main())
