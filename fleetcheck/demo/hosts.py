"""The demo's nine hosts: two that are well, and seven with one thing wrong each.

In: an empty folder. Out: the host in it. Each function tells in one line what the audit should find.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from fleetcheck.demo import package, smi
from fleetcheck.demo.tree import Environment, HostTree

VENV = "/opt/ml-env"
GPUS = 8
ENV = "jit/env.py"


def _host(root: Path, name: str, release: package.Release) -> tuple[HostTree, Environment]:
    tree = HostTree(root, name)
    tree.gpus(smi.RTX_PRO_6000, GPUS)
    tree.write("/usr/local/cuda/version.json", '{"cuda": {"name": "CUDA SDK", "version": "13.0.1"}}\n')
    tree.write("/usr/local/cuda/include/cuda.h", "#define CUDA_VERSION 13000\n")
    tree.write("/usr/local/cuda/bin/nvcc", "#!/bin/sh\nexit 1\n", 0o755)
    environment = tree.environment(VENV)
    package.install(release, environment.site)
    return tree, environment


def supported(root: Path, name: str) -> None:
    """FlashInfer 0.6.18 as installed: the gate admits these GPUs."""
    _host(root, name, package.STOCK_0_6_18)


def refused(root: Path, name: str) -> None:
    """FlashInfer 0.6.2 as installed: the gate refuses these GPUs, nothing is broken."""
    _host(root, name, package.STOCK_0_6_2)


def wrong_path(root: Path, name: str) -> None:
    """``env.py`` was edited, so that FlashInfer compiles a copy of its sources in ``flashinfer/csrc``."""
    _, environment = _host(root, name, package.STOCK_0_6_2)
    package.edit(environment.flashinfer / ENV, package.CSRC, '"csrc"')
    shutil.copytree(environment.flashinfer / "data" / "csrc", environment.flashinfer / "csrc")


def decoy(root: Path, name: str) -> None:
    """Somebody patched a copy in ``flashinfer/csrc``, which FlashInfer never reads."""
    _, environment = _host(root, name, package.STOCK_0_6_2)
    copy = environment.flashinfer / "csrc" / "trtllm_allreduce.cu"
    copy.parent.mkdir()
    copy.write_text("// patched here, and read by nobody\n")


def unsafe_patch(root: Path, name: str) -> None:
    """The gate was widened by hand while the header still compiles the kernels to nothing for these GPUs."""
    _, environment = _host(root, name, package.STOCK_0_6_2)
    package.edit(environment.flashinfer / "jit/comm.py", package.GATE, package.WIDENED_GATE)


def hung_gpu(root: Path, name: str) -> None:
    """nvidia-smi never answers."""
    tree, _ = _host(root, name, package.STOCK_0_6_18)
    tree.nvidia_smi(smi.hanging())


def missing_venv(root: Path, name: str) -> None:
    """The environment that the inventory names is not there."""
    HostTree(root, name).gpus(smi.RTX_PRO_6000, GPUS)


def lost_gpu(root: Path, name: str) -> None:
    """PCI shows eight GPUs and nvidia-smi seven."""
    tree, _ = _host(root, name, package.STOCK_0_6_18)
    tree.place("/usr/bin/nvidia-smi").unlink()
    rows = [smi.row(smi.RTX_PRO_6000, number) for number in range(GPUS) if number != 5]
    tree.nvidia_smi(smi.answering(rows))


UNREACHABLE = "demo-rtx06"
"""Nothing listens on this host's port."""

HOSTS: Mapping[str, Callable[[Path, str], None]] = {
    "demo-rtx01": supported,
    "demo-rtx02": refused,
    "demo-rtx03": wrong_path,
    "demo-rtx04": decoy,
    "demo-rtx05": unsafe_patch,
    "demo-rtx07": hung_gpu,
    "demo-rtx08": missing_venv,
    "demo-rtx09": lost_gpu,
}
"""Every host that can be reached: name to what makes it."""
