"""Real packages for the tests: a fetched wheel, unpacked once and installed by hard links.

In: the wheels that ``make fetch`` brought. Out: ``site-packages`` folders as pip leaves them, with the files that
pip adds (``INSTALLER``, ``REQUESTED``, the console script) and their rows in RECORD. Nothing of a package runs.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
from support.fetch import Package, cache_folder, is_here, packages


def fetched(name: str, version: str) -> Path:
    """Return the wheel of one pinned package; skip the test where it was not fetched."""
    (package,) = (p for p in packages() if (p.name, p.version) == (name, version))
    if not is_here(package, cache_folder()):
        pytest.skip(f"needs {package.filename}: run `make fetch`")
    return cache_folder() / package.filename


def available(name: str) -> Iterator[Package]:
    """Yield the pinned packages of this name whose wheel lies in the cache, by size alone."""
    for package in packages():
        path = cache_folder() / package.filename
        if package.name == name and path.is_file() and path.stat().st_size == package.size:
            yield package


def unpack(wheel: Path, folder: Path) -> Path:
    """Unpack ``wheel`` into ``folder`` as ``pip install`` would and return ``folder``.

    The console scripts land in ``folder/.scripts``, because a site-packages folder does not hold them;
    :func:`install` puts them where RECORD says.
    """
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (info,) = folder.glob("*.dist-info")
    rows = [(f"{info.name}/INSTALLER", b"pip\n"), (f"{info.name}/REQUESTED", b"")]
    for path, content in rows:
        (folder / path).write_bytes(content)
    scripts = folder / ".scripts"
    scripts.mkdir()
    for name, text in _console_scripts(info):
        (scripts / name).write_bytes(text)
        rows.append((f"../../../bin/{name}", text))
    with (info / "RECORD").open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            (path, record_hash(content), len(content)) for path, content in rows
        )
    return folder


def _console_scripts(info: Path) -> Iterator[tuple[str, bytes]]:
    entry_points = info / "entry_points.txt"
    if not entry_points.exists():
        return
    parser = ConfigParser()
    parser.read(entry_points)
    for name, value in parser.items("console_scripts"):
        module, function = value.split(":")
        text = f"#!/usr/bin/python3\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        yield name, text.encode()


def record_hash(content: bytes) -> str:
    """Return a hash as RECORD writes it: ``sha256=`` and urlsafe base64 without padding."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


def install(unpacked: Path, site: Path, bin_folder: Path) -> None:
    """Install an unpacked wheel into ``site`` by hard links. Edit its files with :func:`edit` alone."""
    for folder, names, files in os.walk(unpacked):
        if ".scripts" in names:
            names.remove(".scripts")
        goal = site / Path(folder).relative_to(unpacked)
        goal.mkdir(exist_ok=True)
        for name in files:
            os.link(f"{folder}/{name}", goal / name)
    for script in (unpacked / ".scripts").iterdir():
        os.link(script, bin_folder / script.name)


def edit(path: Path, old: str, new: str, *, count: int | None = None) -> None:
    """Replace every ``old`` in one installed file by ``new``, leaving the other trees that share it alone.

    ``count`` is how often ``old`` must stand there (None: at least once), so that an edit that would change
    nothing fails the test instead of passing it.
    """
    text = path.read_text()
    seen = text.count(old)
    assert seen == count if count is not None else seen > 0, f"{path}: {old!r} stands there {seen} times"
    replacement = path.with_name(path.name + ".new")
    replacement.write_text(text.replace(old, new))
    replacement.replace(path)
