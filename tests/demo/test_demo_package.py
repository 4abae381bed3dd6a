"""The stand-in package: a true RECORD, and the same constants, gate and guards as the real release."""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
from pathlib import Path

import pytest
from support import wheels

from fleetcheck.demo import package

RELEASES = [package.STOCK_0_6_2, package.STOCK_0_6_18]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_record_tells_the_truth(tmp_path: Path, release: package.Release) -> None:
    package.install(release, tmp_path)
    (record,) = tmp_path.glob("*.dist-info/RECORD")
    rows = {path: (digest, size) for path, digest, size in csv.reader(record.read_text().splitlines())}
    assert set(rows) == {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    for path, (digest, size) in rows.items():
        if path.endswith("/RECORD"):
            assert (digest, size) == ("", "")
            continue
        content = (tmp_path / path).read_bytes()
        expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={expected}", len(content))


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_it_is_like_the_real_release_where_the_audit_looks(tmp_path: Path, release: package.Release) -> None:
    package.install(release, tmp_path)
    with zipfile.ZipFile(wheels.fetched("flashinfer-python", release.version)) as real:
        for read in (lambda name: real.read(name).decode(), lambda name: (tmp_path / name).read_text()):
            comm = read("flashinfer/jit/comm.py")
            function = comm[comm.index("def gen_trtllm_comm_module") :]
            assert release.gate in function[: function.index("gen_jit_spec")]
            guards = read(package.HEADER).count("(__CUDA_ARCH__ < 1200)")
            assert guards == (13 if release.guarded else 0)
            stock = 'FLASHINFER_CSRC_DIR: pathlib.Path = _package_root / "data" / "csrc"'
            assert stock in read("flashinfer/jit/env.py")
        needed = {f"flashinfer/data/csrc/{name}.cu" for name in package.SOURCES if "trtllm" in name}
        assert needed <= set(real.namelist())


def test_an_edit_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a")
    with pytest.raises(ValueError, match="does not hold"):
        package.edit(file, "b", "c")
