"""What an environment shows of the things that can be expected: a value, known to be absent, or not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetcheck.facts.records import Venv
from fleetcheck.rules import text
from fleetcheck.rules.versions import below

FIRST_JIT = "0.2.0.dev0"
"""The first version that compiles from sources; those before it hold prebuilt kernels alone."""
CLOSED = {
    "missing": "the environment does not exist",
    "unreadable": "the environment may not be read",
    "broken": "the environment's interpreter does not work",
}


@dataclass(frozen=True, slots=True)
class Absent:
    """The environment is known not to have what the expectation speaks of."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It could not be found out; ``why`` is half a sentence."""

    why: str


Observed = str | Absent | Unknown


def closed(venv: Venv) -> Unknown | None:
    """Return why nothing can be said of an environment, None where something can."""
    return Unknown(CLOSED[venv.state]) if venv.state in CLOSED else None


def flashinfer(venv: Venv) -> Observed:
    """Return the version of FlashInfer."""
    if venv.state in ("no-flashinfer", "remnant"):
        return Absent()
    if venv.flashinfer is None:
        return Unknown("FlashInfer was not examined")
    return venv.flashinfer.version or Unknown("its version could not be read")


def csrc_dir(venv: Venv) -> Observed:
    """Return the folder that the JIT reads, unknown where it could not be looked into."""
    if venv.state in ("no-flashinfer", "remnant"):
        return Absent()
    found = venv.flashinfer
    if found is None:
        return Unknown("FlashInfer was not examined")
    if found.csrc_dir is None and below(found.version, FIRST_JIT):
        return Absent()
    if found.csrc_dir is None:
        return Unknown(text.brief(found.env_error, "jit/env.py was not read"))
    if found.csrc_state == "unreadable":
        return Unknown(f"{text.brief(found.csrc_dir)} may not be read")
    if found.csrc_state == "unknown":
        why = (
            f"could not be verified: {text.brief(found.csrc_error)}" if found.csrc_error else "was not looked into"
        )
        return Unknown(f"{text.brief(found.csrc_dir)} {why}")
    return found.csrc_dir


def framework(name: str) -> Callable[[Venv], Observed]:
    """Return what reads the version of a framework."""

    def observe(venv: Venv) -> Observed:
        version = venv.packages.get(name)
        if version:
            return version
        called = venv.fusion.frameworks if venv.fusion is not None else {}
        if name in called or name in venv.packages:
            return called.get(name) or Unknown("its version could not be read")
        return Absent()

    return observe


def torch_cuda(venv: Venv) -> Observed:
    """Return the CUDA version that torch was built for; a build for the CPU alone has none."""
    if venv.torch is None:
        return Unknown("torch was not examined") if "torch" in venv.packages else Absent()
    if venv.torch.cuda:
        return venv.torch.cuda
    if "+cpu" in (venv.torch.version or ""):
        return Absent()
    return Unknown("torch/version.py names no CUDA version")


def venv_python(venv: Venv) -> Observed:
    """Return the version of the interpreter."""
    return venv.python or Unknown("the interpreter's version is not known")


VERSIONS: dict[str, Callable[[Venv], Observed]] = {
    "flashinfer": flashinfer,
    "sglang": framework("sglang"),
    "vllm": framework("vllm"),
    "torch_cuda": torch_cuda,
    "venv_python": venv_python,
}
