"""CUDA toolkits of the host, the one that FlashInfer's JIT would find, and the name of its arch folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
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


def resolved(tools: object, env: Mapping[str, str], flashinfer: str | None) -> Toolchain | None:
    """Return what FlashInfer of this version would compile with, out of what each step of its search finds.

    ``flashinfer`` None, or unreadable: the steps of the releases from 0.5.0 on. The part is ``tools`` of an
    environment or a process; None where it did not come.
    """
    seen = shape.mapping(tools)
    homes = shape.mapping(seen.get("homes"))
    if not isinstance(seen.get("homes"), dict):
        return None
    version = parsed(flashinfer) or Version("0.5.0")
    home, by = _home(seen, env, version)
    item = shape.mapping(homes.get(home) or homes.get(normpath(home))) if home else {}
    variable = "FLASHINFER_NVCC" if version >= Version("0.4.0") else "PYTORCH_NVCC"
    listed = "FLASHINFER_CUDA_ARCH_LIST" if version >= Version("0.3.1") else "TORCH_CUDA_ARCH_LIST"
    nvcc = f"{home}/bin/nvcc" if home else None
    found = shape.flag(item.get("nvcc")) if item else (None if home and home.startswith("/") else False)
    named = shape.mapping(seen.get("named_nvcc"))
    if env.get(variable):
        nvcc, by = env[variable], variable
        found = shape.flag(named.get("there"))
        item = shape.mapping(homes.get(dirname(dirname(env[variable]))))
    cxx, header = shape.mapping(seen.get("cxx")), shape.mapping(seen.get("python_h"))
    return Toolchain(
        cuda_home=home,
        nvcc=_header_version(item) if item else None,
        nvcc_path=shape.name(nvcc),
        found=found,
        named_by=by,
        problem=_problem(env, item, by),
        compiler=shape.name(cxx.get("path")),
        ninja=shape.name(seen.get("ninja")),
        python_headers=shape.flag(header.get("there")),
        arch_list=env.get(listed),
        arch_list_from=listed if listed in env else None,
        searched=True,
    )


def _home(seen: Mapping[str, Any], env: Mapping[str, str], version: Version) -> tuple[str | None, Any]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(name):
            return env[name], name
    which = shape.name(seen.get("which_nvcc"))
    if which:
        return dirname(dirname(which)), "PATH"
    # 0.4.x gave up here; before, torch looked, and from 0.5.0 on FlashInfer itself does.
    none = Version("0.4.0") <= version < Version("0.5.0")
    return (None, None) if none else (DEFAULT_HOME, "default")


def _problem(env: Mapping[str, str], item: Mapping[str, Any], by: str | None) -> str | None:
    if by not in ("CUDA_HOME", "CUDA_PATH"):
        return None
    value = env[by]
    if ":" in value:
        # vllm#36077: a list of paths, as PATH has it, is taken for one path.
        return f"{by} holds a colon: {shape.line(value, 200)}"
    if not value.startswith("/"):
        return f"{by} is no absolute path: {shape.line(value, 200)}"
    if item and shape.flag(item.get("exists")) is False:
        return f"{by} names a folder that is not there: {shape.line(value, 200)}"
    return None


def _header_version(item: Mapping[str, Any]) -> str | None:
    told = shape.name(item.get("version"), 40)
    by_json = _nvcc_version({**item, "nvcc": "there", "version_json": {"text": item.get("version_json")}})
    found = by_json if by_json and item.get("version_json") else told or by_json
    return found if shape.flag(item.get("nvcc")) else None


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


@lru_cache(maxsize=1024)
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
        if given := env.get("TORCH_CUDA_ARCH_LIST"):
            return _torch_folder(given)
        if "CUDA_VISIBLE_DEVICES" in env or not capabilities:
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


def _torch_folder(listed: str) -> str | None:
    """Return what those releases make of a list that torch reads: its names go, and so do all letters."""
    wanted = listed.replace(" ", ";").split(";")
    numbers = [re.fullmatch(r"(\d{1,2})\.(\d)[a-z]?(?:\+PTX)?", one) for one in wanted]
    found = {match[1] + match[2] for match in numbers if match}
    return "_".join(sorted(found)) if all(numbers) else None


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
