"""CUDA toolkits of the host, the one that FlashInfer's JIT would find, and the name of its arch folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from posixpath import dirname, normpath
from typing import Any

from packaging.version import InvalidVersion, Version

from fleetcheck.facts import shape
from fleetcheck.facts.records import Toolchain, Toolkit

DEFAULT_HOME = "/usr/local/cuda"


def toolkits(part: object) -> tuple[Toolkit, ...]:
    """Type the ``toolkits`` part. ``nvcc`` is None where there is no compiler, or no version of it."""
    found = [shape.mapping(item) for item in shape.items(shape.mapping(part).get("found"), 100)]
    return tuple(
        Toolkit(path=path, nvcc=_nvcc_version(item)) for item in found if (path := shape.name(item.get("path")))
    )


def toolchain(part: object, env: Mapping[str, str] | None) -> Toolchain | None:
    """Return what FlashInfer's own search finds: CUDA_HOME, CUDA_PATH, ``which nvcc``, then /usr/local/cuda.

    None where the environment or the toolkits are not known. ``nvcc`` is ``major.minor[.patch]``.
    """
    kit = shape.mapping(part)
    if env is None or not isinstance(kit.get("found"), list):
        return None
    home = env.get("CUDA_HOME") or env.get("CUDA_PATH")
    which = shape.name(kit.get("which_nvcc"))
    if not home:
        home = dirname(dirname(which)) if which else DEFAULT_HOME
    items = [shape.mapping(item) for item in shape.items(kit["found"], 100)]
    for item in items:
        if normpath(home) in (shape.name(item.get("path")), shape.name(item.get("real"))):
            return Toolchain(cuda_home=home, nvcc=_nvcc_version(item))
    given = bool(env.get("CUDA_HOME") or env.get("CUDA_PATH") or which)
    return Toolchain(cuda_home=home) if given else Toolchain()


def _nvcc_version(item: Mapping[str, Any]) -> str | None:
    if not shape.name(item.get("nvcc")):
        return None
    try:
        document = shape.mapping(
            json.loads(shape.text(shape.mapping(item.get("version_json")).get("text")) or "{}")
        )
    except (ValueError, RecursionError):
        document = {}
    for key in ("cuda_nvcc", "cuda"):
        said = shape.name(shape.mapping(document.get(key)).get("version"), 40)
        if said and re.fullmatch(r"\d{1,3}(?:\.\d{1,6}){1,3}", said):
            return said
    # The folder's own name is what is left where version.json is not there (toolkits below 11.1, distributions).
    named = re.search(
        r"cuda-(\d{1,2}\.\d{1,2})", shape.name(item.get("real")) or shape.name(item.get("path")) or ""
    )
    return named.group(1) if named else None


def parsed(version: str | None) -> Version | None:
    """Return a version as PEP 440 has it, or None."""
    try:
        return Version(version[:100]) if version else None
    except InvalidVersion:
        return None


def arch_folder(
    version: str | None, capabilities: Sequence[str], env: Mapping[str, str] | None, nvcc: str | None
) -> str | None:
    """Return the arch part of FlashInfer's workspace (``90a``, ``120f``, ``75_80``), or None where it is unsure.

    It is what an import in ``env`` on these GPUs would compute: an arch list set there wins, and hidden GPUs
    or a nvcc that is not known leave the answer open.
    """
    flashinfer = parsed(version)
    if flashinfer is None or env is None:
        return None
    if flashinfer < Version("0.4.0"):
        if "TORCH_CUDA_ARCH_LIST" in env or "CUDA_VISIBLE_DEVICES" in env or not capabilities:
            return None
        return "_".join(sorted({capability.replace(".", "") for capability in capabilities}))
    listed = env.get("FLASHINFER_CUDA_ARCH_LIST")
    if listed is None and ("CUDA_VISIBLE_DEVICES" in env or not capabilities):
        return None
    names: set[tuple[int, str]] = set()
    for wanted in listed.split(" ") if listed is not None else capabilities:
        match = re.fullmatch(r"(\d{1,2})\.(\d)([a-z]?)", wanted)
        minor = _minor(flashinfer, match, nvcc, typed=listed is not None) if match else None
        if match is None or minor is None:
            return None
        names.add((int(match.group(1)), minor))
    return "_".join(f"{major}{minor}" for major, minor in sorted(names))


def _minor(flashinfer: Version, match: re.Match[str], nvcc: str | None, *, typed: bool) -> str | None:
    major, minor, suffix = int(match.group(1)), match.group(2), match.group(3)
    if suffix or (typed and flashinfer < Version("0.6.7")):
        return minor + suffix
    if major == 12 and flashinfer >= Version("0.6.7"):
        compiler = parsed(nvcc)
        if compiler is None or minor != "0":
            return None
        if compiler >= Version("12.9"):
            return "0f"
        # flashinfer#3633: 12.8 serves from 0.7.1 on; before, the arch set stays empty.
        return "0a" if compiler >= Version("12.8") and flashinfer >= Version("0.7.1") else None
    return minor + "a" if major >= 9 else minor
