"""What is known of an environment and of the CUDA toolchain that it would use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetcheck.facts.fact import Fact
from fleetcheck.facts.package_records import FlashInfer, Fusion, Torch

VenvState = Literal["ok", "missing", "unreadable", "broken", "no-flashinfer", "remnant"]


class Toolkit(Fact):
    """A CUDA toolkit on the host; ``nvcc`` is its version, None where it has no compiler."""

    path: str
    nvcc: str | None = None


class Toolchain(Fact):
    """The CUDA toolchain as FlashInfer's JIT would find it from this environment."""

    cuda_home: str | None = None
    nvcc: str | None = None
    nvcc_path: str | None = None
    """The compiler that would be called, whether it is there or not."""
    found: bool | None = None
    """Whether that compiler is there; None where it was not looked for."""
    named_by: Literal["FLASHINFER_NVCC", "PYTORCH_NVCC", "CUDA_HOME", "CUDA_PATH", "PATH", "default"] | None = None
    problem: str | None = None
    """What is wrong with the variable that names the toolkit, such as a path that begins with a colon."""
    compiler: str | None = None
    ninja: str | None = None
    python_headers: bool | None = None
    arch_list: str | None = None
    """The architectures that a variable (``arch_list_from``) names in place of those of the GPUs."""
    arch_list_from: str | None = None
    searched: bool = False
    """Whether host compiler, ninja and headers were looked for."""


class Venv(Fact):
    """One Python environment of one host.

    ``activated_python`` is what ``python3`` means after activation, ``activated_prefix`` its ``sys.prefix``;
    ``activation_matches`` is None where it could not be asked.
    """

    path: str
    real: str | None = None
    item: str | None = None
    """The inventory entry that named it."""
    origin: Literal["listed", "running", "usual"] = "listed"
    state: VenvState = "ok"
    error: str | None = None
    """Why the state is not ``ok``: what the interpreter or the system said, bounded."""
    python: str | None = None
    prefix: str | None = None
    executable: str | None = None
    activated_python: str | None = None
    activated_prefix: str | None = None
    activation_matches: bool | None = None
    activation_error: str | None = None
    flashinfer: FlashInfer | None = None
    fusion: Fusion | None = None
    torch: Torch | None = None
    toolchain: Toolchain | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    """Versions of the distributions that matter: name to version."""
