"""Every scenario behind a real sshd, with FlashInfer's real files: the right verdict, states and findings."""

from __future__ import annotations

import os

import pytest
from support.audits import Audited
from support.scenarios import CASES, has_stranger

NAMES = list(CASES)


@pytest.mark.parametrize("name", NAMES)
def test_the_host_is_judged_rightly(audited: Audited, name: str) -> None:
    if name == "venv-unreadable" and os.geteuid() == 0 and not has_stranger():
        pytest.skip("needs the account fleetcheck-bash: root can read every folder")
    expected, host = CASES[name], audited.host(name)
    assert (host.outcome, host.message) == ("checked", None)
    print([(f.rule,f.message,f.expected,f.seen) for f in audited.findings(name) if f.rule=="fleet-outlier"])
    assert {f.rule for f in audited.findings(name) if f.severity != "info"} == expected.rules
    assert host.verdict == expected.verdict


@pytest.mark.parametrize("name", NAMES)
def test_the_gpus_are_seen_also_where_no_environment_works(audited: Audited, name: str) -> None:
    expected, gpus = CASES[name], audited.host(name).gpus
    assert (gpus.state, gpus.compute_capability) == (expected.gpus, expected.capability)
    if expected.count is not None:
        assert gpus.count == expected.count
    if expected.gpus == "ok":
        assert len({device.uuid for device in gpus.devices}) == expected.count
        assert gpus.driver == "580.95.05"


@pytest.mark.parametrize("name", NAMES)
def test_every_environment_is_described(audited: Audited, name: str) -> None:
    expected, host = CASES[name].venvs, audited.host(name)
    assert [(venv.path, venv.state) for venv in host.venvs] == [(seen.path, seen.state) for seen in expected]
    for venv, seen in zip(host.venvs, expected, strict=True):
        flashinfer, fusion = venv.flashinfer, venv.fusion
        assert (flashinfer and flashinfer.csrc_state) == seen.csrc
        assert (flashinfer and flashinfer.version) == seen.version
        if seen.fusion is not None:
            assert fusion is not None
            assert fusion.gate == seen.gate
            assert fusion.guards == seen.guards
            if CASES[name].capability:
                assert fusion.verdict == seen.fusion


def test_csrc_is_where_the_package_keeps_it(audited: Audited) -> None:
    built = audited.built["stock-0-6-2"]
    (venv,) = audited.host("stock-0-6-2").venvs
    assert venv.flashinfer is not None
    assert venv.flashinfer.csrc_dir == venv.flashinfer.csrc_default
    assert venv.flashinfer.csrc_dir is not None
    assert venv.flashinfer.csrc_dir.startswith("/opt/ml-env/lib/")
    assert venv.flashinfer.csrc_dir.endswith("/site-packages/flashinfer/data/csrc")
    assert built.tree.place(venv.flashinfer.csrc_dir).is_dir()


def test_a_decoy_is_named_with_its_path(audited: Audited) -> None:
    (finding,) = (f for f in audited.findings("decoy") if f.rule == "csrc-decoy")
    assert finding.venv == "/opt/ml-env"
    assert "/site-packages/flashinfer/csrc" in str(finding.seen) + finding.message
    assert finding.remedy


def test_a_missing_source_is_named(audited: Audited) -> None:
    (venv,) = audited.host("one-cu-removed").venvs
    assert venv.flashinfer is not None
    assert venv.flashinfer.csrc_missing_count == 1
    assert [name.rpartition("/")[2] for name in venv.flashinfer.csrc_missing] == ["trtllm_allreduce_fusion.cu"]


def test_an_edited_env_py_is_believed_and_reported(audited: Audited) -> None:
    (venv,) = audited.host("env-edited").venvs
    assert venv.flashinfer is not None
    assert venv.flashinfer.csrc_dir is not None
    assert venv.flashinfer.csrc_dir.endswith("/site-packages/flashinfer/csrc")
    assert venv.flashinfer.env_record == "mismatch"


def test_edited_files_are_named_by_record(audited: Audited) -> None:
    (venv,) = audited.host("gate-and-header").venvs
    assert venv.flashinfer is not None
    modified = sorted(path.rpartition("/flashinfer/")[2] for path in venv.flashinfer.modified)
    assert [name.rpartition("/")[2] for name in modified] == ["trtllm_allreduce.cuh", "comm.py"]


def test_the_lost_gpu_is_the_one_that_pci_shows_and_nvidia_smi_does_not(audited: Audited) -> None:
    gpus = audited.host("seven-of-eight").gpus
    assert gpus.pci_count == 8
    missing = [device for device in gpus.devices if device.state == "missing"]
    assert [device.bus_id for device in missing] == ["00000000:15:00.0"]


def test_an_activation_that_leads_elsewhere_is_told(audited: Audited) -> None:
    (venv,) = audited.host("activation-elsewhere").venvs
    assert venv.activation_matches is False
    assert venv.activated_prefix is not None
    assert venv.activated_prefix.endswith("/opt/other")


def test_activation_holds_elsewhere(audited: Audited) -> None:
    for name in ("stock-0-6-2", "stock-0-6-18", "two-venvs", "path-with-spaces-and-quote"):
        assert all(venv.activation_matches is True for venv in audited.host(name).venvs), name


def test_torch_is_read_and_not_imported(audited: Audited) -> None:
    (venv,) = audited.host("stock-0-6-2").venvs
    assert venv.torch is not None
    assert (venv.torch.version, venv.torch.cuda) == ("2.9.0+cu129", "12.9")


def test_the_kernel_versions_of_a_mismatch_are_told(audited: Audited) -> None:
    gpus = audited.host("driver-mismatch").gpus
    assert gpus.driver == "580.95.05"
    assert gpus.driver_userspace == "580.126"
