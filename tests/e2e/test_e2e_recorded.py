"""A real GPU machine, recorded: an H200 with driver 580, FlashInfer 0.6.2 as released and with its gate opened.

``benchmarks/real_gpu.py`` made the recordings, on a machine where the audit's answers equalled the plain command's
and nvidia-smi's; ids and folders are made up. ``idle`` is the plain audit, ``flagged`` one with ``--deep``,
``serving`` one while a process held the ``trtllm_comm`` that FlashInfer's own JIT had just built.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetcheck import recording
from fleetcheck.judge import pipeline
from fleetcheck.run import Finished, HostResult, Run

DATA = Path(__file__).parent / "data" / "h200"
CSRC = "/srv/gpu/{}/lib/python3.12/site-packages/flashinfer/data/csrc"
MODULE = "/srv/gpu/home/.cache/flashinfer/0.6.2/90a/cached_ops/trtllm_comm/trtllm_comm.so"


def replayed(name: str) -> Run:
    taken = recording.read(DATA / f"{name}.evidence.jsonl.gz")
    (last,) = [
        event
        for event in pipeline(taken.targets, taken.looks(), taken.info, taken.policy, taken.end)
        if isinstance(event, Finished)
    ]
    return last.run


def host(name: str) -> HostResult:
    (found,) = replayed(name).hosts
    return found


@pytest.mark.parametrize("name", ["idle", "flagged", "serving"])
def test_the_machine_reads_as_it_was(name: str) -> None:
    found = host(name)
    assert (found.outcome, found.verdict) == ("checked", "ok")
    gpus = found.gpus
    assert (gpus.state, gpus.count, gpus.pci_count, gpus.driver, gpus.kernel_module) == (
        "ok",
        1,
        1,
        "580.159.04",
        "open",
    )
    (device,) = gpus.devices
    assert (device.name, device.compute_capability, device.memory_mib) == ("NVIDIA H200", "9.0", 143771)
    assert (device.bus_id, device.pcie_width, device.pcie_width_max) == ("00000000:00:06.0", 16, 16)
    venvs = {venv.path.rpartition("/")[2]: venv for venv in found.venvs if venv.path.startswith("/srv/gpu/")}
    assert sorted(venvs) == ["patched", "stock"]
    for label, gate in (("stock", (9, 10)), ("patched", (9, 10, 12))):
        flashinfer, fusion = venvs[label].flashinfer, venvs[label].fusion
        assert flashinfer is not None
        assert fusion is not None
        assert (flashinfer.version, flashinfer.csrc_dir) == ("0.6.2", CSRC.format(label))
        assert flashinfer.csrc_state == "complete"
        assert (fusion.verdict, fusion.gate, fusion.guards) == ("supported", gate, 13)


def test_the_real_import_said_the_same() -> None:
    for venv in host("flagged").venvs:
        flashinfer = venv.flashinfer
        if flashinfer is not None and venv.path.startswith("/srv/gpu/"):
            assert flashinfer.basis == "imported"
            assert flashinfer.imported_csrc_dir == flashinfer.csrc_dir
            assert (flashinfer.imported_version, flashinfer.imported_error) == ("0.6.2", None)


def test_only_the_opened_gate_is_told() -> None:
    for name in ("idle", "flagged", "serving"):
        told = [(finding.rule, finding.venv) for finding in replayed(name).findings if finding.severity != "info"]
        assert told == [("package-modified", "/srv/gpu/patched")]


def test_the_process_that_held_the_module_is_attributed() -> None:
    found = host("serving")
    (process,) = [one for one in found.processes or () if one.libraries]
    assert (process.user, process.place) == ("root", "host")
    # Its torch is mapped from another environment, through a .pth file; FlashInfer is its own.
    assert (process.venv, process.named_venv) == ("/srv/gpu/stock", "/srv/gpu/stock")
    assert process.flashinfer_root == "/srv/gpu/stock/lib/python3.12/site-packages/flashinfer"
    assert MODULE in {library.path for library in process.libraries if not library.deleted}
    (module,) = [module for cache in found.caches or () for module in cache.modules]
    assert (module.name, module.version, module.arch, module.built) == ("trtllm_comm", "0.6.2", "90a", True)
    assert [(folder.path, folder.exists) for folder in module.csrc] == [(CSRC.format("stock"), True)]


def test_two_gpus_are_linked_as_topo_says() -> None:
    found = host("two")
    gpus = found.gpus
    assert (gpus.state, gpus.count, gpus.pci_count, gpus.link, gpus.nvlink) == ("ok", 2, 2, "NV18", True)
    assert (gpus.links, gpus.p2p) == ({"0-1": "NV18"}, {"0-1": "OK"})
    assert [device.bus_id for device in gpus.devices] == ["00000000:00:06.0", "00000000:00:07.0"]
    (process,) = [one for one in found.processes or () if one.libraries]
    assert process.venv == "/srv/gpu/stock"
