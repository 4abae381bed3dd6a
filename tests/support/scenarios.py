"""The hosts of the end-to-end tests, each with the one thing that is wrong with it and what must be said of it."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

from support import trees, wheels
from support.workshop import GATE, GUARD, HEADER, VENV, WIDE_GATE, Built, Workshop

from fleetcheck.demo import smi
from fleetcheck.inventory.model import Expect

QUOTED = "/opt/it's a venv"
OTHER = "/opt/other"
ADMITS_12 = (9, 10, 12)
STRANGER = "fleetcheck-bash"


@dataclass(frozen=True)
class Seen:
    """What must be said of one environment. ``csrc`` and ``fusion`` are None where it has no FlashInfer."""

    path: str = VENV
    state: str = "ok"
    csrc: str | None = "complete"
    fusion: str | None = "refused"
    gate: tuple[int, ...] | None = (9, 10)
    guards: int | None = 13
    version: str | None = "0.6.2"


NOTHING = {"csrc": None, "fusion": None, "gate": None, "guards": None, "version": None}


@dataclass(frozen=True)
class Case:
    """One host: how it is made, and what must be said of it. ``rules`` are all findings above ``info``."""

    build: Callable[[Workshop, str], Built]
    verdict: str = "ok"
    rules: frozenset[str] = frozenset()
    gpus: str = "ok"
    count: int | None = 8
    capability: tuple[str, ...] = ("12.0",)
    venvs: tuple[Seen, ...] = field(default=(Seen(),))


CASES: dict[str, Case] = {}


def case(verdict: str = "ok", *rules: str, **expected: object) -> Callable[..., Callable[..., Built]]:
    """Enter a builder into CASES under its own name, with what must be said of the host that it makes."""

    def enter(build: Callable[[Workshop, str], Built]) -> Callable[[Workshop, str], Built]:
        name = build.__name__.replace("_", "-")
        CASES[name] = Case(build, verdict, frozenset(rules), **expected)  # type: ignore[arg-type]
        return build

    return enter


@case()
def stock_0_6_2(shop: Workshop, name: str) -> Built:
    return shop.stock(name)[0]


@case(venvs=(Seen(fusion="supported", gate=ADMITS_12, guards=0, version="0.6.18"),))
def stock_0_6_18(shop: Workshop, name: str) -> Built:
    return shop.stock(name, "0.6.18")[0]


@case("findings", "fusion-unsafe-patch", "package-modified", venvs=(Seen(fusion="unsafe-patch", gate=ADMITS_12),))
def gate_only(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    wheels.edit(made.flashinfer / "jit/comm.py", GATE, WIDE_GATE, count=1)
    return built


@case("findings", "fusion-patched", "package-modified", venvs=(Seen(fusion="patched", gate=ADMITS_12, guards=0),))
def gate_and_header(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    wheels.edit(made.flashinfer / "jit/comm.py", GATE, WIDE_GATE, count=1)
    wheels.edit(made.flashinfer / HEADER, GUARD, "", count=13)
    return built


@case("ok", "fusion-patched", "package-modified", venvs=(Seen(fusion="patched", gate=ADMITS_12, guards=0),))
def gate_header_and_stride(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    wheels.edit(made.flashinfer / "jit/comm.py", GATE, WIDE_GATE, count=1)
    wheels.edit(made.flashinfer / HEADER, GUARD, "", count=13)
    wheels.edit(made.flashinfer / "data/csrc/trtllm_allreduce.cu", "[i + tp_size", "[i + 16", count=2)
    return built


@case("findings", "csrc-decoy")
def decoy(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    folder = made.flashinfer / "csrc"
    folder.mkdir()
    shutil.copy(made.flashinfer / "data/csrc/trtllm_allreduce.cu", folder)
    return built


@case("findings", "csrc-missing", venvs=(Seen(csrc="missing"),))
def csrc_removed(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    shutil.rmtree(made.flashinfer / "data/csrc")
    return built


@case("findings", "csrc-incomplete", venvs=(Seen(csrc="incomplete"),))
def one_cu_removed(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    (made.flashinfer / "data/csrc/trtllm_allreduce_fusion.cu").unlink()
    return built


@case("findings", "csrc-missing", "csrc-unexpected", "env-edited", venvs=(Seen(csrc="missing"),))
def env_edited(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    stock = 'FLASHINFER_CSRC_DIR: pathlib.Path = _package_root / "data" / "csrc"'
    wheels.edit(made.flashinfer / "jit/env.py", stock, stock.replace('"data" / ', ""), count=1)
    return built


@case("findings", "gpu-count", "gpu-missing", gpus="missing", count=7)
def seven_of_eight(shop: Workshop, name: str) -> Built:
    built, _ = shop.stock(name)
    rows = [smi.row(smi.RTX_PRO_6000, number) for number in range(8) if number != 5]
    built.tree.nvidia_smi(smi.answering(rows))
    return built


@case(count=2, capability=("9.0",), venvs=(Seen(fusion="supported"),))
def h200(shop: Workshop, name: str) -> Built:
    built = shop.host(name, gpus=False)
    shop.environment(built, "0.6.2")
    built.tree.gpus(smi.H200, 2)
    built.expect = Expect(gpus=2, compute_capability="9.0")
    return built


@case("findings", "driver-unloaded", "expectation-unchecked", gpus="driver-unloaded", count=None, capability=())
def driver_unloaded(shop: Workshop, name: str) -> Built:
    built = shop.host(name, gpus=False)
    shop.environment(built, "0.6.2")
    built.tree.pci(smi.RTX_PRO_6000, 8, bound=False)
    built.tree.nvidia_smi(smi.failing(9, smi.NOT_LOADED))
    return built


@case("findings", "driver-mismatch", "expectation-unchecked", gpus="driver-mismatch", count=None, capability=())
def driver_mismatch(shop: Workshop, name: str) -> Built:
    built, _ = shop.stock(name)
    built.tree.nvidia_smi(smi.failing(18, smi.MISMATCH.format(nvml="580.126")))
    return built


@case("findings", "smi-missing", "expectation-unchecked", gpus="smi-missing", count=None, capability=())
def no_nvidia_smi(shop: Workshop, name: str) -> Built:
    built, _ = shop.stock(name)
    built.tree.place("/usr/bin/nvidia-smi").unlink()
    return built


@case("findings", "smi-hung", "expectation-unchecked", gpus="hung", count=None, capability=())
def smi_hangs(shop: Workshop, name: str) -> Built:
    built, _ = shop.stock(name)
    built.tree.nvidia_smi(smi.hanging())
    return built


@case("findings", "venv-missing", venvs=(Seen(state="missing", **NOTHING),))
def venv_missing(shop: Workshop, name: str) -> Built:
    return shop.host(name)


@case("findings", "venv-unreadable", venvs=(Seen(state="unreadable", **NOTHING),))
def venv_unreadable(shop: Workshop, name: str) -> Built:
    """Root reads everything, so that he logs in as somebody else here."""
    built, made = shop.stock(name)
    made.real.chmod(0o000)
    built.user = STRANGER if os.geteuid() == 0 and has_stranger() else None
    return built


@case("findings", "venv-broken", venvs=(Seen(state="broken", **NOTHING),))
def interpreter_broken(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    trees.break_interpreter(made)
    return built


@case("findings", "venv-broken", venvs=(Seen(state="broken", **NOTHING),))
def interpreter_gone(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    trees.cut_interpreter(made)
    return built


@case("findings", "flashinfer-missing", venvs=(Seen(state="no-flashinfer", **NOTHING),))
def flashinfer_absent(shop: Workshop, name: str) -> Built:
    built = shop.host(name)
    shop.environment(built, None)
    return built


@case("findings", "activate-mismatch")
def activation_elsewhere(shop: Workshop, name: str) -> Built:
    built, made = shop.stock(name)
    trees.activate_elsewhere(made, shop.environment(built, None, OTHER))
    return built


@case(venvs=(Seen(), Seen(OTHER, fusion="supported", gate=ADMITS_12, guards=0, version="0.6.18")))
def two_venvs(shop: Workshop, name: str) -> Built:
    built, _ = shop.stock(name)
    shop.environment(built, "0.6.18", OTHER)
    built.venvs = [VENV, OTHER]
    return built


@case(venvs=(Seen(QUOTED),))
def path_with_spaces_and_quote(shop: Workshop, name: str) -> Built:
    built = shop.host(name)
    shop.environment(built, "0.6.2", QUOTED)
    built.venvs = [QUOTED]
    return built


def has_stranger() -> bool:
    """Return whether the account exists that sees less than root."""
    try:
        pwd.getpwnam(STRANGER)
    except KeyError:
        return False
    return True
