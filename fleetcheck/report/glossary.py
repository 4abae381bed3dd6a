"""The badges and the words of the page, each with its meaning: those that stand in it, and no others.

In: a run and the rows of its matrix. Out: pairs of texts of ours. A word is looked for where the page shows it: in
the cells of the matrix, in the findings, and in the facts of the hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleetcheck.facts.records import FlashInfer, Venv
from fleetcheck.report.matrix import Row
from fleetcheck.report.rows import MOVED, OPEN
from fleetcheck.rules.finding import SEVERITIES
from fleetcheck.run import HostResult, Run

EXPLAINED = "explained"
_WORST = tuple(reversed(SEVERITIES))
LEGEND = (
    *((severity, severity) for severity in _WORST), (EXPLAINED, "explained by another finding of the host"),
    ("waived", "waived"), ("ok", "nothing found"), ("unseen", "not checked"),
    ("alarm", "not checked: the host key changed"), ("resting", "in maintenance"),
)  # fmt: skip
"""The badges: class and meaning; a finding that is explained has its severity before it."""

_VERDICTS = {
    "absent": "This release of FlashInfer has no such module.",
    "refused": "FlashInfer's gate leaves these GPUs out: off is correct.",
    "supported": "FlashInfer's gate admits these GPUs, and its sources hold kernels for them.",
    "unsafe-patch": "An edit of the gate admits these GPUs, and kernels behind it are empty: they run and do "
    "nothing, and no one is told.",
    "patched": "An edit of the gate admits these GPUs, no kernel behind it is empty, and nobody validated it.",
}
_EFFECTIVE = {
    "off": "The server does not use the fusion, or FlashInfer refuses it here. This is correct.",
    "on": "The server uses the fusion, and FlashInfer supports it on these GPUs.",
    "on-unvalidated": "The server uses the fusion, and nobody validated it in this release on these GPUs.",
    "would-crash": "The framework switches the fusion on, and FlashInfer refuses it: the server dies.",
}
_CSRC = {
    "complete": "All sources that this release needs are there.",
    "incomplete": "Sources that this release needs are not there.",
    "empty": "The folder is there, and holds no sources.",
    "missing": "The folder is not there.",
    "unreadable": "The audit's user may not read the folder.",
}
_VENVS = {
    "missing": ("venv missing", "An environment that the inventory names is not on the host."),
    "unreadable": ("venv unreadable", "An environment that the audit's user may not look into."),
    "broken": ("venv broken", "An environment whose interpreter is absent, fails or hangs."),
    "no-flashinfer": ("none (FlashInfer)", "An environment in which it is not installed."),
    "remnant": ("remnant", "Folders of a removed FlashInfer, which Python still takes for the package."),
}
_GPUS = {
    "hung": ("hung", "nvidia-smi did not come back."),
    "driver-mismatch": ("driver-mismatch", "The loaded driver and its libraries are of different versions."),
    "driver-unloaded": ("driver-unloaded", "The GPU driver is not loaded."),
    "smi-missing": ("smi-missing", "nvidia-smi is not on the host."),
    "no-gpu": ("no-gpu", "The host has no GPU."),
    "no-permission": ("no-permission", "The audit's user may not ask the GPUs."),
    "nvml-error": ("nvml-error", "nvidia-smi failed."),
    "fault": ("faulty", "A GPU that nvidia-smi itself names as bad."),
    "missing": ("missing (GPUs)", "A GPU that PCI lists and nvidia-smi does not."),
}
_LINKS = {
    "PIX": "Two GPUs below one PCIe switch.",
    "PSB": "Two GPUs on one board.",
    "PXB": "Several PCIe switches lie between two GPUs, and no host bridge.",
    "PHB": "The way between two GPUs leads through one PCIe host bridge, at the processor.",
    "NODE": "The way between two GPUs leads from one host bridge to another, within one NUMA node.",
    "SOC": "The way between two GPUs leads from one processor socket to another.",
    "SYS": "The way between two GPUs leads from one NUMA node to another: the longest there is.",
}
_OUTCOMES = {
    "unreachable": "No SSH server answered there.",
    "timeout": "The look at the host took longer than its limit.",
    "auth-failed": "The host did not let the audit's user in.",
    "host-key-unknown": "The host's key is not among those known, so that nothing was sent to it.",
    "host-key-changed": "The host shows another key than the known one.",
    "gateway-failed": "The host behind which it lies (proxy_jump) could not be passed.",
    "probe-error": "The host let the audit in, and the look at it failed.",
    "skipped": "The inventory says to leave the host alone.",
}
_BASIS = {
    "resolved": "found as Python itself finds it",
    "running": "in a process that runs",
    "recorded": "in metadata alone",
    "imported": "by a real import",
    "guessed": "by what is usual",
}
_NVLINK = re.compile(r"NV\d+")


def glossary(run: Run, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return each word that the page shows, with its meaning."""
    venvs = [venv for host in run.hosts for venv in host.venvs]
    packages = [venv.flashinfer for venv in venvs if venv.flashinfer]
    return [
        *_of_marks(run, rows),
        *_of_sources(packages, run),
        *((word, said) for state, (word, said) in _VENVS.items() if any(venv.state == state for venv in venvs)),
        *_of_fusion(venvs, rows),
        *_of_gpus(run.hosts),
        *_of_bases(packages, run),
        *_known(_OUTCOMES, {host.outcome for host in run.hosts}),
        *_of_gaps(venvs, rows),
    ]


def legend(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield the badges that stand in the matrix, with their meanings."""
    shown = {word for row in rows for word in (row.mark, *row.cells)}
    found = (f"{severity} {EXPLAINED}" for severity in _WORST)
    explained = next((word for word in found if word in shown), None)
    for mark, meaning in LEGEND:
        if mark == EXPLAINED and explained:
            yield explained, meaning
        elif mark in shown:
            yield mark, meaning


def _known(words: Mapping[str, str], shown: Iterable[str]) -> Iterator[tuple[str, str]]:
    found = set(shown)
    return ((word, said) for word, said in words.items() if word in found)


def _of_marks(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    if any(counted(row) for row in rows):
        yield (
            "+1",
            ("One more rule found a fault on this host. What another finding explains, and info, is not counted."),
        )
    if any(finding.cause and not finding.waived for finding in run.findings):
        yield "explained", "Another finding on the same host is the cause: mend that one, and this one goes."
    if any(finding.waived for finding in run.findings):
        yield "waived", "Someone accepted the finding in the inventory, for a reason and until a day."


def counted(row: Row) -> bool:
    """Return whether a row's verdict counts further rules, as in ``env-edited +1``."""
    return bool(re.search(r" \+\d+$", row.said))


def _of_sources(packages: Sequence[FlashInfer], run: Run) -> Iterator[tuple[str, str]]:
    if packages:
        yield (
            "csrc",
            (
                "The folder of CUDA sources that FlashInfer compiles its kernels from, in every release data/csrc "
                "below the package."
            ),
        )
    if any(_moved(found) for found in packages):
        yield MOVED, "csrc is another folder than the package's own, which is a fault however whole it is."
    states: set[str] = {found.csrc_state for found in packages}
    yield from ((f"{word} (csrc)", said) for word, said in _known(_CSRC, states))
    if any(finding.rule == "csrc-decoy" for finding in run.findings):
        yield (
            "decoy",
            "A folder flashinfer/csrc that someone made by hand. No release reads it: edits there have no effect.",
        )


def _moved(found: FlashInfer) -> bool:
    return None not in (found.csrc_dir, found.csrc_default) and found.csrc_dir != found.csrc_default


def _of_fusion(venvs: Sequence[Venv], rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    found = [venv.fusion for venv in venvs if venv.fusion]
    if not found:
        return
    yield "fusion", "Whether the server's all-reduce is fused with what follows it."
    yield from _known(_EFFECTIVE, {one.effective for one in found})
    verdicts: set[str] = {one.verdict for one in found}
    yield from _known(_VERDICTS, verdicts)
    if "unreadable" in verdicts:
        yield "unreadable (Fusion)", "FlashInfer's gate could not be read, so that it is not known what it allows."
    if any(OPEN in row.fusion for row in rows):
        yield OPEN, "Whether the server uses the fusion is not known."
    if any(" if " in row.fusion for row in rows):
        yield "if", "It holds if the host has these GPUs; nvidia-smi did not give them."
    if any(one.gate for one in found):
        yield (
            "gate",
            (
                "The list of GPU generations (the 12 of compute capability 12.0) that FlashInfer compiles a "
                "module for."
            ),
        )
    if any(one.guards is not None for one in found):
        yield "guards", "Conditions in a header that leave the bodies of kernels out for newer GPUs."


def _of_gpus(hosts: Sequence[HostResult]) -> Iterator[tuple[str, str]]:
    states: set[str] = {host.gpus.state for host in hosts} | {
        device.state for host in hosts for device in host.gpus.devices
    }
    yield from (told for state, told in _GPUS.items() if state in states)
    links = {word for host in hosts for word in (*host.gpus.links.values(), host.gpus.link) if word}
    numbered = sorted((word for word in links if _NVLINK.fullmatch(word)), key=lambda word: int(word[2:]))
    if numbered:
        yield ", ".join(numbered[:8]), "NVLink joins two GPUs; the number is how many links they have."
    yield from _known(_LINKS, links)


def _of_bases(packages: Sequence[FlashInfer], run: Run) -> Iterator[tuple[str, str]]:
    bases: set[str] = {found.basis for found in packages} | {one.basis for one in run.findings if one.basis}
    told = "; ".join(f"{word}: {said}" for word, said in _known(_BASIS, bases))
    if told:
        yield "basis", f"How a value became known; {told}."


def _of_gaps(venvs: Sequence[Venv], rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    shown = {
        word for row in rows for word in (row.gpus, row.link, row.driver, row.flashinfer, row.csrc, row.fusion)
    }
    words = {word for cell in shown for word in cell.split(", ")}
    fusion = {word for venv in venvs if venv.fusion for word in (venv.fusion.effective, venv.fusion.verdict)}
    if "unknown" in words | fusion:
        yield "unknown", "It could not be found out."
    if "-" in words:
        yield "-", "Nothing is known of it: there is none, or the look did not come so far."
