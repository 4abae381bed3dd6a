"""The stand-in of nvidia-smi answers as the real tool was seen to: streams, exit codes, texts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fleetcheck.demo import smi


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "nvidia-smi"
    path.write_text(smi.answering([smi.row(smi.H200, number) for number in (0, 2)], "580.159.04"))
    path.chmod(0o755)
    return path


def ask(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_rows_are_of_the_fields_that_were_asked_in_their_order(script: Path) -> None:
    done = ask(script, "--query-gpu=name,index,compute_cap", "--format=csv,noheader,nounits")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "NVIDIA H200, 0, 9.0\nNVIDIA H200, 2, 9.0\n"


def test_an_unknown_field_ends_it_on_stdout_with_status_2(script: Path) -> None:
    done = ask(script, "--query-gpu=index,nosuchfield", "--format=csv")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout == 'Field "nosuchfield" is not a valid field to query.\n\n'


def test_the_version_is_that_of_the_driver(script: Path) -> None:
    done = ask(script, "--version")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "NVIDIA-SMI version  : 580.159.04",
        "NVML version        : 580.159",
        "DRIVER version      : 580.159.04",
        "CUDA Version        : 13.0",
    ]


def test_without_a_device_it_finds_none(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text(smi.answering([]))
    path.chmod(0o755)
    done = ask(path, "--query-gpu=index", "--format=csv")
    assert (done.returncode, done.stdout) == (6, "No devices were found\n")


def test_the_hanging_one_heeds_no_polite_signal_and_ends_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text("echo started\n" + smi.hanging())
    with subprocess.Popen(["/bin/sh", path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"started\n"
            path.with_name("marker").touch()
            assert process.poll() is None
            path.unlink()
            assert process.wait(60) == 0
        finally:
            process.kill()
