"""Which hosts differ from their group, and in what: the comparison behind ``fleet-outlier``.

In: the members of a run. Out: for each host that differs, the facts in which it does. Only facts of an allowlist
are compared, and of those none whose definition says that it is volatile or an identity.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from fleetcheck.facts.records import (
    Fact,
    FileFact,
    FlashInfer,
    Fusion,
    Gpus,
    Toolchain,
    Toolkit,
    Torch,
    Venv,
    kind_of,
)
from fleetcheck.rules import text
from fleetcheck.rules.finding import Finding
from fleetcheck.rules.gpu import counted
from fleetcheck.rules.rule import Member

SUM = re.compile(r"[0-9a-f]{64}")
SMALLEST = 5
"""The fewest hosts with a known value in which four fifths mean anything."""
FIFTHS = 4
ALLOWED: tuple[tuple[type[Fact], str], ...] = (
    (Gpus, "count"), (Gpus, "names"), (Gpus, "compute_capability"), (Gpus, "driver"), (Gpus, "kernel_module"),
    (Gpus, "link"), (Toolkit, "path"), (Toolkit, "nvcc"), (Venv, "python"), (Venv, "packages"),
    (FlashInfer, "version"), (FlashInfer, "install"), (FlashInfer, "csrc_dir"), (FileFact, "sha256"),
    (Fusion, "gate"), (Fusion, "guards"), (Torch, "version"), (Torch, "cuda"), (Toolchain, "cuda_home"),
    (Toolchain, "nvcc"),
)  # fmt: skip
PLAIN = frozenset((model, field) for model, field in ALLOWED if kind_of(model, field) == "plain")
EDITS = ("env-edited", "package-modified", "fusion-unsafe-patch", "fusion-patched", "fusion-gate-unreadable")
LOST = ("gpu-count", "gpu-missing", "gpu-fault", "gpu-unreadable", "smi-hung", "smi-missing")
DRIVER = ("driver-version", "driver-mismatch", "driver-unloaded")
CSRC = ("csrc-unexpected", "csrc-missing", "env-edited")


class Trait(NamedTuple):
    """One thing that hosts can be compared in; hosts that lack it are not compared.

    ``told`` are the rules that say of a host what is wrong with it. ``idle`` traits are of environments that
    are neither listed nor serving.
    """

    words: str
    told: tuple[str, ...] = ()
    venv: str | None = None
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Odd:
    """A trait in which a host differs, what it has, and what its group has. ``group`` is None for all hosts."""

    trait: Trait
    seen: Hashable
    common: Hashable
    group: str | None


def find(members: Sequence[Member]) -> dict[str, list[Odd]]:
    """Return the hosts that differ, each with its traits in one order."""
    values = {one.name: dict(traits(one)) for one in members if one.outcome == "checked"}
    found: dict[str, list[Odd]] = defaultdict(list)
    settled: dict[str, set[Trait]] = {name: set() for name in values}
    for group, names in _groups(members):
        column: dict[Trait, dict[str, Hashable]] = defaultdict(dict)
        for name in names:
            for trait, value in values.get(name, {}).items():
                column[trait][name] = value
        for trait, known in column.items():
            for name, odd in _odd(trait, known, group):
                if trait not in settled[name]:
                    found[name] += [odd] if odd is not None else []
            for name in known if _settles(known) else ():
                settled[name].add(trait)
    return {name: sorted(odd, key=_order) for name, odd in found.items() if odd}


def _order(odd: Odd) -> tuple[bool, str, str]:
    return odd.trait.idle, odd.trait.venv or "", odd.trait.words


def _groups(members: Sequence[Member]) -> list[tuple[str | None, list[str]]]:
    """Return the groups, smallest first; hosts in no group are one group without a name."""
    groups: dict[str | None, list[str]] = defaultdict(list)
    for one in members:
        for group in one.groups or (None,):
            groups[group].append(one.name)
    return sorted(groups.items(), key=lambda item: (len(item[1]), item[0] or ""))


def _settles(known: dict[str, Hashable]) -> bool:
    """Return whether hosts need no comparison in a larger group: their own can tell, or agrees as a whole."""
    return len(known) >= SMALLEST or (len(known) > 1 and len(set(known.values())) == 1)


def _odd(trait: Trait, known: dict[str, Hashable], group: str | None) -> Iterator[tuple[str, Odd]]:
    if len(known) < SMALLEST:
        return
    common, count = Counter(known.values()).most_common(1)[0]
    if count == len(known) or (FIFTHS + 1) * count < FIFTHS * len(known):
        return
    for name, value in known.items():
        if value != common:
            yield name, Odd(trait, value, common, group)


def traits(member: Member) -> Iterator[tuple[Trait, Hashable]]:
    """Yield what is known of a host; unknown values are left out, so that they differ from nothing."""
    rows = chain(_of_host(member), *map(_of_venv, member.venvs))
    for model, field, trait, value in rows:
        if value not in (None, "", ()) and (model, field) in PLAIN:
            yield trait, value


_Row = tuple[type[Fact], str, Trait, Hashable]
_Namer = Callable[..., Trait]


def _of_host(member: Member) -> Iterator[_Row]:
    gpus = member.gpus
    yield Gpus, "count", Trait("the number of GPUs", LOST), counted(gpus)
    yield Gpus, "names", Trait("the GPU model", ("gpu-name",)), tuple(sorted(set(gpus.names)))
    kinds = tuple(sorted(set(gpus.compute_capability)))
    yield Gpus, "compute_capability", Trait("the compute capability", ("compute-capability", "gpu-name")), kinds
    yield Gpus, "driver", Trait("the driver", DRIVER), gpus.driver
    yield Gpus, "kernel_module", Trait("the kernel module", DRIVER), gpus.kernel_module
    yield Gpus, "link", Trait("the link between GPUs", ("expectation-unmet",)), gpus.link
    kits = tuple(sorted(f"{kit.path} {kit.nvcc or 'without nvcc'}" for kit in member.toolkits))
    yield Toolkit, "path", Trait("the list of CUDA toolkits", ("expectation-unmet",)), kits


@lru_cache(maxsize=1 << 16)
def _trait(words: str, told: tuple[str, ...], path: str, idle: bool) -> Trait:
    return Trait(f"{words} in {text.brief(path)}", told, path, idle)


@lru_cache(maxsize=1 << 12)
def _brief(value: str | None) -> str:
    return text.brief(value, "")


def _of_venv(venv: Venv) -> Iterator[_Row]:
    if venv.state not in ("ok", "no-flashinfer", "remnant"):
        return

    def trait(words: str, *told: str) -> Trait:
        return _trait(words, told, venv.path, venv.origin == "usual")

    yield Venv, "python", trait("Python", "expectation-unmet"), venv.python
    for name, version in venv.packages.items():
        if name in ("torch", "flashinfer"):
            continue  # compared below, with what belongs to them
        yield Venv, "packages", trait(_brief(name), "expectation-unmet"), version
    if venv.torch is not None:
        yield Torch, "version", trait("torch", "expectation-unmet"), venv.torch.version
        yield Torch, "cuda", trait("torch's CUDA", "expectation-unmet"), venv.torch.cuda
    if venv.toolchain is not None:
        yield Toolchain, "cuda_home", trait("CUDA_HOME"), venv.toolchain.cuda_home
        yield Toolchain, "nvcc", trait("nvcc", "expectation-unmet"), venv.toolchain.nvcc
    if venv.flashinfer is not None:
        yield from _of_flashinfer(venv, venv.flashinfer, trait)


def _of_flashinfer(venv: Venv, found: FlashInfer, trait: _Namer) -> Iterator[_Row]:
    yield FlashInfer, "version", trait("FlashInfer", "expectation-unmet"), found.version
    yield FlashInfer, "install", trait("the kind of FlashInfer install"), _known(found.install)
    own = found.csrc_dir is not None and found.csrc_dir == found.csrc_default
    csrc = "its own data/csrc" if own else found.csrc_dir
    yield FlashInfer, "csrc_dir", trait("the csrc folder", *CSRC), csrc
    # What follows from the version is compared among hosts of one version alone: an upgrade is one difference.
    release = _brief(found.version)
    if not release:
        return
    for file in found.files:
        name = text.inside(found, file.path)
        yield FileFact, "sha256", trait(f"{_brief(name)} of FlashInfer {release}", *EDITS), file.sha256
    fusion = venv.fusion
    if fusion is not None and fusion.gate_state == "read":
        gate = "every major" if fusion.gate is None else f"majors {', '.join(map(str, fusion.gate)) or 'none'}"
        yield Fusion, "gate", trait(f"the gate of FlashInfer {release}", *EDITS), gate
    if fusion is not None:
        words = f"the number of guards in FlashInfer {release}"
        yield Fusion, "guards", trait(words, *EDITS), fusion.guards


def _known(value: str) -> str | None:
    return None if value == "unknown" else value


def is_told(odd: Odd, findings: Iterable[Finding]) -> bool:
    """Return whether a finding of the host says already what is odd; an unmet expectation, by the value it saw."""
    return any(
        finding.rule in odd.trait.told
        and finding.venv in (None, odd.trait.venv)
        and (finding.rule != "expectation-unmet" or str(finding.seen) == str(odd.seen))
        for finding in findings
    )


def shown(value: Hashable) -> str:
    """Return a value in words, sums shortened."""
    if isinstance(value, str) and SUM.fullmatch(value):
        return f"sha256 {value[:12]}…"
    return text.listing([str(one) for one in value]) if isinstance(value, tuple) else text.brief(str(value))
