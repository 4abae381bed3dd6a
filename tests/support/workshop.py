"""Makes the hosts of the end-to-end tests: folders with real FlashInfer files, and code that must not run.

In: an unpacked wheel a version. Out: a :class:`Built` host: its folder and what the inventory says of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from support import wheels

from fleetcheck.demo import smi
from fleetcheck.demo.tree import Environment, HostTree
from fleetcheck.inventory.model import Expect

VENV = "/opt/ml-env"
GATE = "supported_major_versions=[9, 10]"
WIDE_GATE = "supported_major_versions=[9, 10, 12]"
GUARD = " && (__CUDA_ARCH__ < 1200)"
HEADER = "data/include/flashinfer/comm/trtllm_allreduce.cuh"
RTX = Expect(gpus=8, compute_capability="12.0", gpu_name=smi.RTX_PRO_6000.name)


@dataclass
class Built:
    """One host that was made. ``venvs`` are the inventory's paths, ``user`` who logs in (None: the current)."""

    tree: HostTree
    expect: Expect = RTX
    venvs: list[str] = field(default_factory=lambda: [VENV])
    user: str | None = None


class Workshop:
    """Makes hosts below ``folder``. Importing its torch, or ``json`` from ``traps``, leaves a marker."""

    def __init__(self, folder: Path, unpacked: dict[str, Path]) -> None:
        self.folder = folder
        self.unpacked = unpacked
        self.markers = folder / "markers"
        self.markers.mkdir(mode=0o777)
        self.markers.chmod(0o777)
        self.traps = folder / "traps"
        self.traps.mkdir()
        for name in ("json", "base64", "hashlib", "sitecustomize", "usercustomize"):
            (self.traps / f"{name}.py").write_text(self.trap(name))

    def trap(self, name: str) -> str:
        """Return a module that writes a marker when it runs, and fails."""
        return f"open({str(self.markers / name)!r}, 'w').close()\nraise RuntimeError('{name} was executed')\n"

    def host(self, name: str, *, gpus: bool = True) -> Built:
        """Make a host, with eight working RTX PRO 6000 unless told otherwise."""
        tree = HostTree(self.folder / "hosts" / name, name)
        tree.write("/usr/local/cuda/include/cuda.h", "#define CUDA_VERSION 12090\n")
        tree.write("/usr/local/cuda/bin/nvcc", "#!/bin/sh\nexit 1\n", 0o755)
        if gpus:
            tree.gpus(smi.RTX_PRO_6000, 8)
        return Built(tree)

    def environment(self, built: Built, version: str | None, path: str = VENV) -> Environment:
        """Make an environment that holds FlashInfer's real files (None: none), and a torch that must not run."""
        made = built.tree.environment(path)
        torch = made.site / "torch"
        torch.mkdir()
        (torch / "__init__.py").write_text(self.trap("torch"))
        (torch / "version.py").write_text("__version__ = '2.9.0+cu129'\ncuda = '12.9'\n")
        (made.site / "sitecustomize.py").write_text("")
        if version is not None:
            wheels.install(self.unpacked[version], made.site, made.bin)
        return made

    def stock(self, name: str, version: str = "0.6.2") -> tuple[Built, Environment]:
        """Make a host with one environment that holds FlashInfer as installed."""
        built = self.host(name)
        return built, self.environment(built, version)
