"""The host wrapper of the plain all-reduce: what each real release holds, and what an edit leaves known."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from support.fetch import cache_folder, is_here, packages

from fleetcheck.facts import releases
from fleetcheck.facts.records import FileFact, FlashInfer
from fleetcheck.facts.wrapper import SOURCE, stride

RELEASES = [package for package in packages() if package.name == "flashinfer-python"]
WITH_IT = [package for package in RELEASES if Version(package.version) >= Version("0.2.14")]


def source(archive: Path) -> bytes:
    """Return the wrapper of a release, out of a wheel or a source archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(f"flashinfer/{SOURCE}")
    with tarfile.open(archive) as held:
        name = next(one for one in held.getnames() if one.endswith("/csrc/trtllm_allreduce.cu"))
        stream = held.extractfile(name)
        assert stream is not None
        return stream.read()


def package(**facts: Any) -> FlashInfer:
    return FlashInfer(**{"version": "0.6.2", "root": "/fi", "csrc_state": "complete", "verified": True, **facts})


def file(record: str, data: bytes = b"edited") -> FileFact:
    return FileFact(path=f"/fi/{SOURCE}", sha256=hashlib.sha256(data).hexdigest(), record=record)


@pytest.mark.parametrize("one", WITH_IT, ids=[one.version for one in WITH_IT])
def test_each_release_is_known_by_its_version_and_by_its_file(one: Any) -> None:
    if not is_here(one, cache_folder()):
        pytest.skip(f"needs {one.filename}: run `make fetch`")
    text = source(cache_folder() / one.filename)
    wrong = b"lamport_peer_comm_buffer_ptrs[i + tp_size]" in text
    assert wrong != (b"lamport_peer_comm_buffer_ptrs[i + MAX_RANKS_PER_NODE]" in text)
    assert releases.has_wrong_stride(one.version) is wrong
    wanted = "wrong" if wrong else "right"
    assert stride(package(version=None, verified=False, files=(file("no-record", text),))) == wanted
    assert stride(package(version=one.version)) == wanted


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({}, "wrong"),
        ({"verified": "partly"}, "wrong"),
        ({"verified": False}, "unknown"),
        ({"verified": None}, "unknown"),
        ({"version": None}, "unknown"),
        ({"version": "0.6.17"}, "right"),
        ({"version": "0.2.13"}, "unknown"),
        ({"csrc_state": "missing"}, "unknown"),
        ({"csrc_state": "incomplete", "csrc_missing": ("norm.cu",)}, "wrong"),
        ({"csrc_state": "incomplete", "csrc_missing": ("trtllm_allreduce.cu",)}, "unknown"),
        ({"absent": (SOURCE,)}, "unknown"),
        ({"modified": (SOURCE,)}, "unknown"),
        ({"prebuilt": ("/jit_cache/trtllm_comm",)}, "unknown"),
        ({"prebuilt": ("/jit_cache/norm",)}, "wrong"),
        ({"files": (file("match"),)}, "wrong"),
        ({"files": (file("mismatch"),)}, "edited"),
        ({"files": (file("no-record"),)}, "unknown"),
        ({"files": (file("unlisted"),)}, "unknown"),
        ({"files": (file("unreadable"),)}, "unknown"),
        ({"files": tuple(FileFact(path=f"/fi/{at}") for at in range(200))}, "unknown"),
    ],
)
def test_what_is_known(facts: dict[str, Any], wanted: str) -> None:
    assert stride(package(**facts)) == wanted
