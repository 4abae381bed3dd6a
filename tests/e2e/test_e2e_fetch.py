"""Fetching pinned packages, by the real pip from a folder of this machine: whole and verified, or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.fetch import LOCK, FetchError, Package, fetch, fetch_all, is_here, packages


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """A small wheel that pip can find without a network."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    wheel = shelf / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    content = wheel.read_bytes()
    return Package("tiny", "1.0", wheel.name, hashlib.sha256(content).hexdigest(), len(content), "small")


def test_a_package_is_fetched_once(published: Package, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = tmp_path / "cache"
    assert [fetch_all([published], cache), fetch_all([published], cache)] == [0, 0]
    said = capsys.readouterr().out.splitlines()
    assert said == [f"{published.filename}: fetched, 0.0 MB", f"{published.filename}: there"]
    assert [path.name for path in cache.iterdir()] == [published.filename]


def test_a_wheel_for_another_python_is_fetched(published: Package, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    wheel = shelf / "tiny-2.0-cp38-cp38-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny-2.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 2.0\n")
        archive.writestr("tiny-2.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp38-cp38-manylinux_2_17_x86_64\n")
        archive.writestr("tiny-2.0.dist-info/RECORD", "")
    content = wheel.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    package = replace(published, version="2.0", filename=wheel.name, sha256=digest, size=len(content))
    fetch(package, tmp_path / "cache")
    assert is_here(package, tmp_path / "cache")


def test_a_source_archive_is_fetched_and_not_built(published: Package, tmp_path: Path) -> None:
    archive, ran = tmp_path / "shelf" / "tiny-3.0.tar.gz", tmp_path / "ran"
    texts = {"setup.py": f"open({str(ran)!r}, 'w').close()\n", "PKG-INFO": "Metadata-Version: 2.1\nName: tiny\n"}
    with tarfile.open(archive, "w:gz") as file:
        for name, text in texts.items():
            entry = tarfile.TarInfo(f"tiny-3.0/{name}")
            entry.size = len(text)
            file.addfile(entry, io.BytesIO(text.encode()))
    content = archive.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    package = replace(published, version="3.0", filename=archive.name, sha256=digest, size=len(content))
    fetch(package, tmp_path / "cache")
    assert is_here(package, tmp_path / "cache")
    assert not ran.exists()
    with pytest.raises(FetchError):
        fetch(replace(package, filename="tiny-4.0.tar.gz"), tmp_path / "cache")


def test_a_damaged_package_is_fetched_again(published: Package, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    fetch(published, cache)
    damaged = cache / published.filename
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert not is_here(published, cache)
    assert fetch_all([published], cache) == 0
    assert is_here(published, cache)


def test_another_file_under_the_pinned_name_is_refused(published: Package, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(FetchError):
        fetch(replace(published, sha256="0" * 64), cache)
    assert list(cache.iterdir()) == []


def test_a_package_that_cannot_be_had_is_an_error(published: Package, tmp_path: Path) -> None:
    assert fetch_all([replace(published, name="absent")], tmp_path / "cache") == 1


def test_every_pin_is_complete() -> None:
    pinned = packages()
    assert len({package.filename for package in pinned}) == len(pinned)
    assert len(json.loads(LOCK.read_text())) == len(pinned)
    for package in pinned:
        assert len(package.sha256) == 64
        assert package.size > 0
        assert package.set in ("small", "matrix")
