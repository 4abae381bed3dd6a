"""Hold expectations against facts: each is met, unmet, or could not be checked, and the last is never a pass.

Keys of the GPUs have rules of their own for what is unmet; here they only say whether they could be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Any, Literal

from fleetcheck.facts.records import FileFact, FusionEffective, Gpus, Venv
from fleetcheck.inventory.model import VenvItem
from fleetcheck.rules import gpu, gpu_link, text, versions
from fleetcheck.rules.csrc import aliases
from fleetcheck.rules.observed import VERSIONS, Absent, Observed, Unknown, closed, csrc_dir
from fleetcheck.rules.rule import Look


@dataclass(frozen=True, slots=True)
class Gap:
    """An expectation that is not known to be met. ``venv`` is None where it is of the whole host."""

    key: str
    state: Literal["unmet", "unchecked"]
    expected: Any
    seen: Any = None
    why: str = ""
    venv: Venv | None = None


def in_range(key: str, expected: str, seen: str, venv: Venv | None) -> Iterator[Gap]:
    """Yield a gap where the range does not admit the version, or where one of them cannot be read as one."""
    admitted = versions.admits(expected, seen)
    if admitted is None:
        readable = versions.ranges(expected) is not None
        why = f"{text.brief(seen)} is no version" if readable else f"{text.brief(expected)} is no version range"
        yield Gap(key, "unchecked", expected, seen, why, venv)
    elif not admitted:
        yield Gap(key, "unmet", expected, seen, "", venv)


def version_gaps(look: Look, key: str, observe: Callable[[Venv], Observed]) -> Iterator[Gap]:
    """Yield the gaps of one version over all environments.

    An expectation of the whole host is not one of each environment: that ``/opt/vllm`` lacks sglang is fine as
    long as another one has it. One that an environment's own entry gives is strict.
    """
    wide = getattr(look.target.expect, key)
    having, lacking = 0, 0
    for venv in look.facts.venvs:
        expected = getattr(look.expect(venv), key)
        if expected is None:
            continue
        own = look.sets(venv, key)
        seen = closed(venv) or observe(venv)
        if isinstance(seen, Absent):
            lacking += not own
            if own:
                yield Gap(key, "unmet", expected, None, "", venv)
        elif isinstance(seen, Unknown):
            having += not own
            yield Gap(key, "unchecked", expected, None, seen.why, venv)
        else:
            having += not own
            if key != "csrc_dir":
                yield from in_range(key, expected, seen, venv)
    if wide is not None and lacking and not having:
        yield Gap(key, "unmet", wide, None, "")


def unseen_csrc(look: Look) -> Iterator[Gap]:
    """Yield the environments whose csrc could not be judged though nobody set an expectation for it."""
    for venv, _ in look.installed():
        seen = csrc_dir(venv)
        if look.expect(venv).csrc_dir is None and isinstance(seen, Unknown):
            yield Gap(
                "csrc_dir", "unchecked", venv.flashinfer and venv.flashinfer.csrc_default, None, seen.why, venv
            )


def fusion_gaps(look: Look) -> Iterator[Gap]:
    """Yield where what is in force is not what ``allreduce_fusion`` asks for.

    As with versions, an environment without FlashInfer is a gap only where its own entry requires fusion, or
    where no environment of a host that requires it has FlashInfer.
    """
    key, having, lacking = "allreduce_fusion", 0, 0
    for venv in look.facts.venvs:
        expected = look.expect(venv).allreduce_fusion
        if expected not in ("required", "forbidden"):
            continue
        shut = closed(venv)
        absent = venv.state in ("no-flashinfer", "remnant")
        having, lacking = having + (not absent), lacking + absent
        effective = in_force(venv)
        if shut is not None:
            yield Gap(key, "unchecked", expected, None, shut.why, venv)
        elif absent and not look.sets(venv, key):
            continue
        elif effective == "unknown":
            why = "what is in force in the serving process is not known"
            yield Gap(key, "unchecked", expected, effective, why, venv)
        elif (expected == "required") != (effective in ("on", "on-unvalidated")) or effective == "would-crash":
            yield Gap(key, "unmet", expected, effective, "", venv)
    if look.target.expect.allreduce_fusion == "required" and lacking and not having:
        yield Gap(key, "unmet", "required", "off")


def in_force(venv: Venv) -> FusionEffective:
    """Return what is in force: where the facts leave it open, a module that cannot be built is ``off``."""
    if venv.state in ("no-flashinfer", "remnant"):
        return "off"
    if venv.fusion is None:
        return "unknown"
    barred = venv.fusion.verdict in ("absent", "refused")
    return "off" if barred and venv.fusion.effective == "unknown" else venv.fusion.effective


def nvcc_gaps(look: Look) -> Iterator[Gap]:
    """Yield where the CUDA compiler is not the expected one: each environment's own, else those of the host."""
    asked, open_ = False, []
    for venv in look.facts.venvs:
        expected = look.expect(venv).nvcc
        if expected is None:
            continue
        if venv.toolchain is not None and venv.toolchain.nvcc:
            asked = True
            yield from in_range("nvcc", expected, venv.toolchain.nvcc, venv)
        elif look.sets(venv, "nvcc") or venv.state not in ("no-flashinfer", "remnant"):
            open_.append(venv)
    wide = look.target.expect.nvcc
    for venv in open_:
        if asked or look.sets(venv, "nvcc"):
            why = (closed(venv) or Unknown("which compiler this environment would use is not known")).why
            yield Gap("nvcc", "unchecked", look.expect(venv).nvcc, None, why, venv)
    if wide is not None and not asked:
        yield from toolkit_gaps(look, wide)


def toolkit_gaps(look: Look, expected: str) -> Iterator[Gap]:
    """Yield the gap of a host's toolkits: unmet where none is as expected, unchecked where they disagree."""
    found = [toolkit.nvcc for toolkit in look.facts.toolkits if toolkit.nvcc]
    gaps = [gap for seen in found for gap in in_range("nvcc", expected, seen, None)]
    if not look.facts.toolkits:
        yield Gap("nvcc", "unchecked", expected, None, "no CUDA toolkit was seen")
    elif not found:
        yield Gap("nvcc", "unmet", expected, None)
    elif len(gaps) == len(found):
        yield gaps[0]
    elif gaps:
        why = f"the toolkits hold {text.listing(found)}, and which one is used is not known"
        yield Gap("nvcc", "unchecked", expected, found, why)


def file_gaps(look: Look) -> Iterator[Gap]:
    """Yield where a file has another content than expected, or was not among those that were read."""
    for name, sha256 in (look.target.expect.files or {}).items():
        yield from file_gap(look, look.facts.venvs, name, sha256, None)
    for venv in look.facts.venvs:
        item = look.item(venv)
        for name, sha256 in ((item.expect.files if item is not None else None) or {}).items():
            yield from file_gap(look, (venv,), name, sha256, venv)


def file_gap(look: Look, venvs: tuple[Venv, ...], name: str, sha256: str, owner: Venv | None) -> Iterator[Gap]:
    """Yield the gaps of one file: a path on the host, or one relative to FlashInfer's package folder."""
    found = False
    for path, file, venv in files_of(look, venvs, name, owner):
        found = True
        if file.sha256 is None and file.record != "missing":
            why = f"{text.brief(path)} could not be read"
            yield Gap("files", "unchecked", {name: sha256}, None, why, venv)
        elif file.sha256 != sha256:
            yield Gap("files", "unmet", {name: sha256}, file.sha256, path, venv)
    if not found:
        shut = closed(owner) if owner is not None else None
        why = f"{text.brief(name)} was not among the files that were read" if shut is None else shut.why
        yield Gap("files", "unchecked", {name: sha256}, None, why, owner)


def files_of(
    look: Look, venvs: Sequence[Venv], name: str, owner: Venv | None
) -> Iterator[tuple[str, FileFact, Venv | None]]:
    """Yield what is known of a file, each place once: as FlashInfer's, else as the agent hashed it for this."""
    told: set[str] = set()
    for venv in venvs:
        for file in venv.flashinfer.files if venv.flashinfer is not None else ():
            root = venv.flashinfer.root if venv.flashinfer is not None else None
            path = file.path if file.path.startswith("/") or root is None else f"{root}/{file.path}"
            own = venv.flashinfer is not None and text.inside(venv.flashinfer, path)
            if path in aliases(venv, name) if name.startswith("/") else own == name:
                told |= aliases(venv, path)
                yield path, file, venv
    for file in look.facts.expected_files:
        path = normpath(file.path)
        if path in told:
            continue
        if name.startswith(("/", "~")):
            if path == normpath(name) or (name.startswith("~") and path.endswith(name.lstrip("~"))):
                yield path, file, owner
            continue
        for venv in venvs:
            if venv.flashinfer is not None and path in aliases(venv, f"{venv.flashinfer.root}/{name}"):
                told |= aliases(venv, path)
                yield path, file, venv


def gpu_gaps(look: Look) -> Iterator[Gap]:
    """Yield the expectations of the GPUs that nothing was known to check with, and the link that differs."""
    expect, gpus = look.target.expect, look.facts.gpus
    driver = gpus.driver
    unread = "nvidia-smi gave no such value"
    if expect.gpus is not None and gpu.counted(gpus) is None:
        yield Gap("gpus", "unchecked", expect.gpus, None, "the GPUs could not be counted")
    # A count of 0 that was expected leaves nothing that could have a name.
    bare = gpu.counted(gpus) == 0 and expect.gpus == 0
    if expect.gpu_name is not None and not gpus.names and not bare:
        yield Gap("gpu_name", "unchecked", expect.gpu_name, None, unread)
    if expect.compute_capability is not None and not gpus.compute_capability and not bare:
        yield Gap("compute_capability", "unchecked", expect.compute_capability, None, unread)
    if expect.driver is not None and not bare:
        if driver is None:
            yield Gap("driver", "unchecked", expect.driver, None, "which driver is loaded is not known")
        elif versions.admits(expect.driver, driver) is None:
            yield from in_range("driver", expect.driver, driver, None)
    if expect.link is not None and not bare:
        yield from link_gaps(expect.link, gpus)


def link_gaps(expected: str, gpus: Gpus) -> Iterator[Gap]:
    """Yield what is not known to be met of a class of link (``PHB``) and a PCIe width (``x16``)."""
    wanted, lanes = gpu_link.wanted_class(expected), gpu_link.wanted_lanes(expected)
    if wanted is not None and gpus.link is None:
        yield Gap("link", "unchecked", expected, None, "how the GPUs are linked was not examined")
    elif wanted is not None and gpus.link is not None and gpus.link.casefold() != wanted.casefold():
        yield Gap("link", "unmet", expected, gpus.link)
    elif lanes is not None and all(device.pcie_width is None for device in gpus.devices):
        yield Gap("link", "unchecked", expected, None, "the width of the GPUs' PCIe links is not known")


def misplaced(look: Look) -> Iterator[Gap]:
    """Yield expectations of the GPUs that stand at an environment, where nothing judges them."""
    for item in look.target.venvs:
        if not isinstance(item, VenvItem):
            continue
        for key in gpu.GPU_KEYS:
            expected = getattr(item.expect, key)
            if expected is not None and expected != getattr(look.target.expect, key):
                why = f"it is an expectation of the host, and stands at the environment {text.brief(item.path)}"
                yield Gap(key, "unchecked", expected, None, why)


def came_back(item: VenvItem, venv: Venv) -> bool:
    """Return whether an environment is the one of an entry; one that two entries name carries one of them."""
    path = item.path.rstrip("/")
    if path.startswith("~") and venv.path.endswith(path.removeprefix("~")):
        return True
    return path in {name.rstrip("/") for name in (venv.item, venv.path, venv.real) if name is not None}


def unexamined(look: Look) -> Iterator[Gap]:
    """Yield what was listed and did not come back, and what was expected of environments that are not there."""
    facts = look.facts
    items = [item for item in look.target.venvs if isinstance(item, VenvItem) and not item.is_glob]
    for item in items:
        if not any(came_back(item, venv) for venv in facts.venvs):
            yield Gap("venvs", "unchecked", item.path, None, f"{text.brief(item.path)} was not looked at")
    if facts.venvs:
        return
    why = "no environment was found" if facts.venvs_known else "the environments were not looked at"
    for key in (*VERSIONS, "csrc_dir", "allreduce_fusion"):
        expected = getattr(look.target.expect, key)
        if expected is not None and expected != "any":
            yield Gap(key, "unchecked", expected, None, why)


def scan_gaps(look: Look) -> Iterator[Gap]:
    """Yield what of the inventory's ``scan`` was not searched."""
    if not look.target.scan:
        return
    if look.facts.scanned is None:
        yield Gap("scan", "unchecked", list(look.target.scan), None, "no answer came back")
    for line in look.facts.scan_unread:
        yield Gap("scan", "unchecked", list(look.target.scan), None, text.brief(line))


def gaps(look: Look) -> Iterator[Gap]:
    """Yield every expectation of this host that is not known to be met."""
    yield from gpu_gaps(look)
    for key, observe in {**VERSIONS, "csrc_dir": csrc_dir}.items():
        yield from version_gaps(look, key, observe)
    yield from unseen_csrc(look)
    yield from fusion_gaps(look)
    yield from nvcc_gaps(look)
    yield from file_gaps(look)
    yield from scan_gaps(look)
    yield from misplaced(look)
    yield from unexamined(look)
