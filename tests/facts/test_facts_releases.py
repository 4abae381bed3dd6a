"""What the releases themselves hold raises no doubt, with a RECORD and without: a clean checkout is no finding."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.fetch import cache_folder, is_here, packages

from fleetcheck.agent.program.cuts import cut_lines, without_blocks
from fleetcheck.facts import deciders, flashinfer_env, fusion, gates, guards, releases

RELEASES = [package for package in packages() if package.name == "flashinfer-python"]
NAMES = (
    *deciders.MODULES, *deciders.TEXTS, *deciders.HEADERS, deciders.FUSION_SOURCE,
    *(name.removeprefix("data/") for name in (*deciders.HEADERS, deciders.FUSION_SOURCE)),
)  # fmt: skip


def members(archive: Path) -> dict[str, str]:
    """Return the texts of a wheel or a source archive that decide, by their names in the installed package."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            held = {name.partition("/")[2] for name in wheel.namelist() if name.startswith("flashinfer/")}
            return {name: wheel.read(f"flashinfer/{name}").decode() for name in NAMES if name in held}
    found: dict[str, str] = {}
    with tarfile.open(archive) as source:
        for member in source:
            inside = member.name.partition("/")[2].removeprefix("flashinfer/")
            stream = source.extractfile(member) if inside in NAMES and member.isfile() else None
            if stream is not None:
                data = inside.startswith(("csrc/", "include/"))
                found[f"data/{inside}" if data else inside] = stream.read().decode()
    return found


def entry(name: str, text: str) -> dict[str, Any]:
    """Return a file as the agent sends it of a checkout."""
    sent = cut_lines(without_blocks(text), "__CUDA_ARCH") if name in deciders.HEADERS else text
    wanted = name in (*deciders.TEXTS, *deciders.HEADERS, deciders.ENV)
    return {"name": name, "record": "no-record", "sha256": "3f" * 32, "text": sent if wanted else None}


@pytest.mark.parametrize("package", RELEASES, ids=[package.version for package in RELEASES])
def test_a_clean_checkout_of_a_release_raises_no_doubt(package: Any) -> None:
    if not is_here(package, cache_folder()):
        pytest.skip(f"needs {package.filename}: run `make fetch`")
    texts = members(cache_folder() / package.filename)
    files = {name: entry(name, text) for name, text in texts.items()}
    assert flashinfer_env.skipped(texts[deciders.ENV]) is None
    assert (deciders.edited(files), deciders.replaced(files), deciders.lost(files, package.version)) == (
        (),
        {},
        (),
    )
    reading = gates.read(files, package.version)
    known, stock = releases.stock_gate(package.version)
    assert reading.error is None
    assert not known or reading.gate == stock
    found = fusion.fusion(files, package.version, ["12.0"])
    assert found.gate_error is None
    assert found.verdict in ("absent", "refused", "supported", "unsafe-patch")
    assert (found.verdict == "supported") == (bool(stock) and 12 in (stock or ()))
    assert guards.HEADER not in files or found.guards in (0, guards.count(files[guards.HEADER]["text"]))
