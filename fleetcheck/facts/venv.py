"""One Python environment of a host: does it work, what does activation lead to, what is installed?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import dirname
from typing import Any, Literal

from fleetcheck.facts import companions, fusion, shape, source, toolchain
from fleetcheck.facts import flashinfer as fi
from fleetcheck.facts.frameworks import framework
from fleetcheck.facts.records import FlashInfer, Fusion, Toolchain, Torch, Venv, VenvState

MAX_PACKAGES = 100
Origin = Literal["listed", "running", "usual"]

_STATES: Mapping[object, VenvState] = {
    "missing": "missing", "unreadable": "unreadable", "no-interpreter": "broken", "broken": "broken",
    "too-old": "broken", "hung": "broken", "not-a-venv": "broken", "present": "unreadable",
}  # fmt: skip
_REASONS: Mapping[object, str] = {
    "no-interpreter": "no interpreter in bin",
    "too-old": "the interpreter is older than Python 3.8",
    "hung": "no answer within the limit",
    "not-a-venv": "no Python environment in that folder",
    "present": "no answer came back",
    "broken": "the interpreter does not run",
}


@dataclass(frozen=True, slots=True)
class HostView:
    """What an environment needs of its host: parts ``system`` and ``toolkits``, the GPUs' capabilities."""

    system: Mapping[str, Any]
    toolkits: object
    capabilities: tuple[str, ...]


def venv(item: Mapping[str, Any], part: object, host: HostView) -> Venv:
    """Type one environment: its entry in the list of environments, and its own part where that arrived."""
    own = shape.mapping(part)
    told = own.get("state") if own else item.get("state")
    activation, interpreter = shape.mapping(own.get("activation")), shape.mapping(own.get("interpreter"))
    packages = {
        name: fi.resolved(shape.mapping(value))
        for name, value in list(shape.mapping(own.get("packages")).items())[:50]
    }
    state, error = _state(told, own, packages)
    env = _environment(activation, host.system)
    package = packages.get("flashinfer", {})
    chain = toolchain.resolved(own.get("tools"), env, fi.version(package)[0]) if env is not None else None
    chain = chain or toolchain.toolchain(host.toolkits, env)
    usable = state == "ok"
    python3 = shape.mapping(activation.get("python3"))
    around = fi.Around(
        env,
        host.capabilities,
        chain.nvcc if chain else None,
        {
            name: value.get("spec") == "file"
            for name, value in packages.items()
            if value.get("spec") in ("file", "none")
        },
    )
    found = companions.beside(fi.flashinfer(package, around), packages) if usable else None
    return Venv(
        path=shape.name(own.get("path")) or shape.name(item.get("path")) or "?",
        real=shape.name(own.get("real")),
        item=shape.name(own.get("item")) or shape.name(item.get("item")),
        origin=_origin(own.get("origin") or item.get("origin")),
        state=state,
        error=error,
        python=shape.name(interpreter.get("version"), 100),
        prefix=shape.name(interpreter.get("prefix")),
        executable=shape.name(interpreter.get("executable")),
        activated_python=shape.name(python3.get("path")),
        activated_prefix=shape.name(python3.get("prefix")),
        activation_matches=shape.flag(python3.get("same")),
        activation_error=_activation_error(activation, python3),
        flashinfer=found,
        fusion=_fusion(packages, host.capabilities, chain, found) if found is not None else None,
        torch=_torch(packages.get("torch", {})),
        toolchain=chain if usable else None,
        packages=_versions(packages),
    )


def _state(
    told: object, own: Mapping[str, Any], packages: Mapping[str, Mapping[str, Any]]
) -> tuple[VenvState, str | None]:
    said = shape.line(own.get("error")) or shape.line(own.get("stderr"))
    if told == "broken" and said and "pyvenv.cfg" in said and "Permission" in said:
        return "unreadable", said
    if told != "ran":
        known = told if isinstance(told, str) and told in _STATES else None
        reason = _REASONS.get(known) if said in (None, "timeout") else said
        return _STATES.get(known, "unreadable"), reason or (None if known else "no answer came back")
    package = packages.get("flashinfer")
    spec = package.get("spec") if package else None
    if package is None or spec not in ("file", "namespace", "none"):
        return "unreadable", (
            shape.line(package.get("error")) if package else None
        ) or said or "FlashInfer was not looked for"
    if spec != "file" and (closed := _closed(package, own)):
        return "unreadable", closed
    if spec == "none":
        return "no-flashinfer", None
    if spec == "namespace":
        where = ", ".join(shape.texts(package.get("locations"), 5))
        return "remnant", shape.line(f"folders without __init__.py: {where}") if where else None
    return "ok", None


def _closed(package: Mapping[str, Any], own: Mapping[str, Any]) -> str | None:
    """Return why FlashInfer may be there although Python does not find it, or None.

    To an import a folder that may not be listed or entered looks like one without the package.
    """
    folders = shape.texts(shape.mapping(own.get("interpreter")).get("closed"), 5)
    if folders:
        return shape.line(f"{', '.join(folders)} may not be read")
    parents = {dirname(where.rstrip("/")) for where in shape.texts(package.get("locations"), 16)}
    for dist in companions.distributions(package):
        if dist.name in companions.OWN and dist.path and dirname(dist.path.rstrip("/")) in parents:
            where = f"{dirname(dist.path)}/flashinfer"
            return shape.line(
                f"{dist.name} {dist.version} is installed, and {where} may not be read, or lacks its __init__.py"
            )
    return None


def _origin(value: object) -> Origin:
    return value if value in ("listed", "running", "usual") else "listed"


def _environment(activation: Mapping[str, Any], system: Mapping[str, Any]) -> dict[str, str] | None:
    """Variables of the login, and over them those that activation left."""
    login, after = system.get("env"), activation.get("env")
    if not isinstance(login, dict) and not isinstance(after, dict):
        return None
    base: dict[str, str] = {}
    if isinstance(after, dict):
        # Activation can unset a variable, except HOME: an environment that lacks it was cut short.
        home = shape.text(shape.mapping(login).get("HOME"))
        base = {"HOME": home} if home else {}
    values = shape.mapping(after if isinstance(after, dict) else login)
    return base | {
        key: text for key, value in list(values.items())[:200] if (text := shape.text(value)) is not None
    }


def _activation_error(activation: Mapping[str, Any], python3: Mapping[str, Any]) -> str | None:
    status = activation.get("status")
    if isinstance(status, str) and status != "ok":
        said = shape.line(activation.get("stderr"))
        return shape.line(f"{status}: {said}" if said else status)
    return shape.line(python3.get("error"))


def _torch(package: Mapping[str, Any]) -> Torch | None:
    if package.get("spec") != "file":
        return None
    text = shape.source(fi.files(package).get("version.py", {}).get("text"))
    said = source.literals(text) if text else {}
    version, cuda = said.get("__version__"), said.get("cuda")
    return Torch(
        version=shape.name(version, 100) or fi.distributions(package).get("torch"), cuda=shape.name(cuda, 40)
    )


def _versions(packages: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for package in packages.values():
        for name, version in fi.distributions(package).items():
            if len(found) < MAX_PACKAGES:
                found.setdefault(name, version)
    return dict(sorted(found.items()))


def _fusion(
    packages: Mapping[str, Mapping[str, Any]],
    capabilities: tuple[str, ...],
    chain: Toolchain | None,
    own: FlashInfer,
) -> Fusion:
    package = packages["flashinfer"]
    callers = []
    for name in fusion.MODULE_FRAMEWORKS:
        found = packages.get(name, {})
        if found.get("spec") == "file":
            dists = [shape.mapping(dist) for dist in shape.items(found.get("dists"), 50)]
            callers.append(framework(name, fi.distributions(found).get(name), fi.files(found), dists))
    rows = shape.items(package.get("gates"), 1000)
    listed = chain.arch_list if chain is not None and chain.arch_list_from == fusion.ARCH_LIST else None
    version = fi.version(package)[0]
    judged = fusion.fusion(fi.files(package), version, capabilities, callers, rows, arch_list=listed)
    doubt = fi.sources_doubt(own, package)
    return judged if doubt is None else fusion.unsure(judged, *doubt, capabilities)
