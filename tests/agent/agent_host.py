"""Hosts made of files for the agent's tests, and the real script run on them through a real shell."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import os
import selectors
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fleetcheck.agent.bundle import new_marker, script
from fleetcheck.agent.evidence import Request
from fleetcheck.agent.frame import Collector

ENV_PY = """import pathlib
_package_root: pathlib.Path = pathlib.Path(__file__).resolve().parents[1]
FLASHINFER_DATA: pathlib.Path = _package_root / "data"
FLASHINFER_CSRC_DIR: pathlib.Path = _package_root / "data" / "csrc"
"""
COMM_PY = """from . import env


def gen_trtllm_comm_module():
    flags = current_compilation_context.get_nvcc_flags_list(supported_major_versions=[9, 10])
    return flags
"""
HEADER = "#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 1200)\nint a;\n#endif\n"
FILES = {
    "flashinfer/__init__.py": "raise SystemExit('imported')\n",
    "flashinfer/version.py": "__version__ = '0.6.2'\n",
    "flashinfer/jit/__init__.py": "",
    "flashinfer/jit/env.py": ENV_PY,
    "flashinfer/jit/comm.py": COMM_PY,
    "flashinfer/comm/__init__.py": "",
    "flashinfer/comm/trtllm_ar.py": "x = 1\n",
    "flashinfer/data/csrc/trtllm_allreduce.cu": "// kernel\n",
    "flashinfer/data/csrc/norm.cu": "// norm\n",
    "flashinfer/data/include/flashinfer/comm/trtllm_allreduce.cuh": HEADER,
    "flashinfer/data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh": "#pragma once\n",
}
ACTIVATE = 'VIRTUAL_ENV="{venv}"\nexport VIRTUAL_ENV\nPATH="$VIRTUAL_ENV/bin:$PATH"\nexport PATH\n'


@functools.cache
def pythons() -> dict[str, str]:
    """Return every CPython of 3.8 to 3.14 on this machine: version (``3.11``) to real path."""
    found: dict[str, str] = {}
    folders = [*os.environ.get("PATH", "").split(":"), "/usr/bin"]
    folders += [str(path / "bin") for path in Path("~/.pyenv/versions").expanduser().glob("3.*")]
    for minor in range(8, 15):
        for folder in folders:
            path = f"{folder}/python3.{minor}"
            ask = [path, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
            with contextlib.suppress(OSError):
                answer = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=60)
                version, _, executable = answer.stdout.strip().partition(" ")
                if version == f"3.{minor}":  # a shim answers too, by the interpreter that it stands for
                    found[version] = os.path.realpath(executable)
                    break
    return found


def this_python() -> str:
    """Return the interpreter that runs the tests, outside any environment."""
    return os.path.realpath(sys.executable)


class Host:
    """A host as a folder. Paths are given as the host has them."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.write("/proc/stat", "cpu 1 2\nbtime 1700000000\n")
        self.write("/proc/sys/kernel/osrelease", "6.8.0-test\n")
        self.write("/proc/cmdline", "quiet intel_iommu=on iommu=pt\n")
        self.write("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
        self.write("/etc/os-release", 'PRETTY_NAME="Test Linux 1"\n')

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str | bytes, *, executable: bool = False) -> Path:
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)
        if executable:
            place.chmod(0o755)
        return place

    def gpu(self, bus_id: str = "0000:05:00.0", device: str = "0x2bb5") -> None:
        for name, text in {
            "vendor": "0x10de",
            "device": device,
            "class": "0x030200",
            "max_link_width": "16",
        }.items():
            self.write(f"/sys/bus/pci/devices/{bus_id}/{name}", text + "\n")

    def smi(self, body: str) -> None:
        self.write("/usr/bin/nvidia-smi", "#!/bin/sh\n" + body, executable=True)

    def venv(self, path: str, *, python: str | None = None, files: dict[str, str] | None = None) -> Path:
        """Make an environment with FlashInfer ``files`` (relative to site-packages) and their RECORD."""
        python = python or this_python()
        version = Path(python).name.removeprefix("python")
        if version.count(".") != 1:
            version = ".".join(map(str, sys.version_info[:2]))
        self.write(f"{path}/pyvenv.cfg", f"home = {Path(python).parent}\ninclude-system-site-packages = false\n")
        (self.at(path) / "bin").mkdir()
        (self.at(path) / "bin/python").symlink_to(python)
        (self.at(path) / "bin/python3").symlink_to("python")
        self.write(f"{path}/bin/activate", ACTIVATE.format(venv=self.at(path)))
        site = f"{path}/lib/python{version}/site-packages"
        self.at(site).mkdir(parents=True)
        if files is None:
            files = FILES
        rows = []
        for name, text in files.items():
            self.write(f"{site}/{name}", text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            rows.append(f"{name},sha256={digest},{len(text.encode())}")
        if files:
            info = f"{site}/flashinfer_python-0.6.2.dist-info"
            self.write(
                f"{info}/METADATA", "Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.6.2\n\nText\n"
            )
            self.write(f"{info}/RECORD", "\n".join([*rows, "flashinfer_python-0.6.2.dist-info/RECORD,,"]) + "\n")
            self.write(f"{info}/INSTALLER", "pip\n")
        return self.at(site)


class Answer:
    """What came back: the collector's parts, stderr, the shell's exit status."""

    def __init__(self, collector: Collector, stderr: str, returncode: int) -> None:
        self.collector, self.stderr, self.returncode = collector, stderr, returncode
        self.parts: dict[str, Any] = collector.parts

    def venv(self, index: int = 0) -> dict[str, Any]:
        value: dict[str, Any] = self.parts[f"venv/{index}"]
        return value


def start(request: Request, **options: Any) -> tuple[subprocess.Popen[bytes], str]:
    """Start a shell, send it the script, keep its stdin open. Returns the process and the marker."""
    marker = new_marker()
    pythons_of_host = options.pop("pythons", (this_python(),))
    shell = options.pop("shell", "/bin/sh")
    process = subprocess.Popen(
        [shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    assert process.stdin is not None
    process.stdin.write(script(request, marker, pythons=pythons_of_host))
    process.stdin.flush()
    return process, marker


def look(request: Request, *, bound: float = 60.0, **options: Any) -> Answer:
    """Run the agent as the controller does: stdin stays open until its output ends."""
    process, marker = start(request, **options)
    collector = Collector(marker, request.max_bytes)
    with process:
        assert process.stdout is not None and process.stderr is not None and process.stdin is not None
        read_until(process, collector, bound, lambda: False)
        process.stdin.close()
        stderr = process.stderr.read().decode()
    return Answer(collector, stderr, process.returncode)


def read_until(process: subprocess.Popen[bytes], collector: Collector, bound: float, enough: Any) -> None:
    """Feed the collector until ``enough()`` or the end of stdout; fails after ``bound`` seconds."""
    assert process.stdout is not None
    until = time.monotonic() + bound
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not enough():
            if not selector.select(max(0.0, until - time.monotonic())):
                process.kill()
                raise AssertionError(f"no end after {bound} s; {list(collector.parts)}")
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                return
            collector.feed(data)


def tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return every file below a folder: its mode, time of change, and hash of the content or link target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = str(path.readlink()) if path.is_symlink() else ""
        if path.is_file() and not path.is_symlink():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = (info.st_mode, info.st_mtime_ns, content)
    return found


def shells() -> list[str]:
    """Return the POSIX shells of this machine."""
    return [path for path in map(shutil.which, ("dash", "bash")) if path]
