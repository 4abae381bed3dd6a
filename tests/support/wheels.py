"""Real packages for the tests: a fetched wheel, unpacked once and installed by hard links.

In: the wheels and source archives that ``make fetch`` brought. Out: ``site-packages`` folders as pip leaves them,
with the files that pip adds (``INSTALLER``, ``REQUESTED``, the console script) and their rows in RECORD. Nothing
of a package runs.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
from support.fetch import cache_folder, is_here, packages

from fleetcheck.agent.program import sources


def fetched(name: str, version: str) -> Path:
    """Return the wheel of one pinned package; skip the test where it was not fetched."""
    (package,) = (p for p in packages() if (p.name, p.version) == (name, version))
    if not is_here(package, cache_folder()):
        pytest.skip(f"needs {package.filename}: run `make fetch`")
    return cache_folder() / package.filename


def decides(name: str) -> bool:
    """Return whether a file of a wheel is one that an audit looks at.

    All others stay in the wheel where a test asks for these alone: the newest release is 855 MB of 18,000 files.
    """
    data = "flashinfer/data/"
    parts = (f"{data}csrc/", f"{data}include/flashinfer/", *(f"flashinfer/{file}" for file in sources.STAND))
    parts += (f"{data}spdlog/",)
    return (name.endswith(".py") and not name.startswith(data)) or name.startswith(parts)


def unpack(wheel: Path, folder: Path, only: Callable[[str], bool] | None = None) -> Path:
    """Unpack ``wheel`` into ``folder`` as ``pip install`` would and return ``folder``.

    With ``only`` just the files of which it says so, and the metadata, whose RECORD lists all the others too.
    A source archive is laid out as its own build does it. The console scripts land in ``folder/.scripts``, because
    a site-packages folder does not hold them; :func:`install` puts them where RECORD says.
    """
    if wheel.name.endswith(".tar.gz"):
        _build(wheel, folder, only)
    else:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            archive.extractall(folder, [n for n in names if only is None or only(n) or ".dist-info/" in n])
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


# Where the files of a source archive go, a distribution: for FlashInfer by its ``[tool.setuptools.package-dir]``.
# vLLM's wheels are 200 to 500 MB of libraries; its source archives hold the same Python files.
LAYOUT = {
    "flashinfer_python": {
        "flashinfer/": "flashinfer/",
        "csrc/": "flashinfer/data/csrc/",
        "include/": "flashinfer/data/include/",
        "tvm_binding/": "flashinfer/data/tvm_binding/",
        "3rdparty/cutlass/include/": "flashinfer/data/cutlass/include/",
        "3rdparty/cutlass/tools/": "flashinfer/data/cutlass/tools/",
        "3rdparty/spdlog/include/": "flashinfer/data/spdlog/include/",
    },
    "vllm": {"vllm/": "vllm/"},
}


def _build(archive: Path, folder: Path, only: Callable[[str], bool] | None) -> None:
    """Lay the files of a source archive out as its wheel would, with the RECORD that it would have."""
    rows = []
    distribution, _, version = archive.name.removesuffix(".tar.gz").partition("-")
    layout, info = LAYOUT[distribution], f"{distribution}-{version}.dist-info"
    with tarfile.open(archive) as source:
        for member in source:
            name = member.name.partition("/")[2]
            start = next((start for start in layout if name.startswith(start)), None)
            opened = source.extractfile(member) if member.isfile() else None
            if opened is None or (start is None and name != "PKG-INFO"):
                continue
            content = opened.read()
            goal = f"{info}/METADATA" if start is None else layout[start] + name.removeprefix(start)
            rows.append((goal, record_hash(content), len(content)))
            if only is None or only(goal) or start is None:
                (folder / goal).parent.mkdir(parents=True, exist_ok=True)
                (folder / goal).write_bytes(content)
    with (folder / info / "RECORD").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


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
