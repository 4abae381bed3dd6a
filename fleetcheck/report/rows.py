"""The rows of the table: what one environment of one host comes to."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fleetcheck.facts.records import Fusion, Gpus, Venv
from fleetcheck.report.gpu_cells import NAME, counted, drivers, linked
from fleetcheck.report.text import Role, clean
from fleetcheck.rules.finding import SEVERITIES, Finding, Severity, rank, weight
from fleetcheck.run import HostResult, Run

MOVED = "MOVED"
OPEN = "use?"
"""What ends a short word on the fusion where it is not known whether the server uses it."""
ABOUT = (
    ("gpu-", "GPUS"), ("smi-", "GPUS"), ("compute-capability", "GPUS"), ("ecc-uncorrected", "GPUS"),
    ("p2p-", "LINK"), ("driver-", "DRIVER"), ("flashinfer-", "FLASHINFER"), ("fusion-", "FUSION"),
)  # fmt: skip
"""Which column tells of what a rule found, by how its name begins."""


class Line(NamedTuple):
    """One row without its host, clean; equal lines of healthy hosts fold. Short forms are for narrow screens."""

    gpus: str
    driver: str
    venv: str
    flashinfer: str
    csrc: str
    csrc_path: str
    moved: bool
    fusion: str
    fusion_short: str
    verdict: str
    verdict_middle: str
    role: Role
    more: tuple[str, ...] = ()
    """The cells of the columns that are shown only when they are asked for, in their order."""
    link: str = ""
    link_short: str = ""
    gpus_short: str = ""


class Entry(NamedTuple):
    """Hosts that read the same, and their rows: one an environment, or one where none is known."""

    hosts: tuple[str, ...]
    lines: tuple[Line, ...]
    seen: bool = True
    """Whether these hosts were checked; those that were not are named a second time, with the reason."""


USUAL = ("HOST", "GPUS", "LINK", "DRIVER", "VENV", "FLASHINFER", "CSRC", "FUSION", "VERDICT")
_MORE: Mapping[str, Callable[[HostResult, Venv | None], str | None]] = {
    "ADDRESS": lambda host, _: host.address,
    "GROUPS": lambda host, _: ",".join(host.groups),
    "OUTCOME": lambda host, _: host.outcome,
    "GPU-NAME": lambda host, _: ", ".join(host.gpus.names[:8]),
    "KERNEL": lambda host, _: host.system.kernel if host.system else None,
    "SECONDS": lambda host, _: f"{host.seconds:.1f}",
    "PYTHON": lambda _, venv: venv.python if venv else None,
    "TORCH": lambda _, venv: venv.torch.version if venv and venv.torch else None,
    "CUDA": lambda _, venv: venv.torch.cuda if venv and venv.torch else None,
    "NVCC": lambda _, venv: venv.toolchain.nvcc if venv and venv.toolchain else None,
}
MORE = tuple(_MORE)


def chosen(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to show: the usual ones, or those asked for with HOST and VERDICT always among them.

    Raises KeyError with a name that is no column.
    """
    names = list(dict.fromkeys(column.upper() for column in columns))
    for name in names:
        if name not in USUAL and name not in MORE:
            raise KeyError(name)
    if not names:
        return USUAL
    # A row that does not say how its host ended could read as a pass.
    return tuple(["HOST"] * ("HOST" not in names) + names + ["VERDICT"] * ("VERDICT" not in names))


def entries(run: Run, *, wide: bool, columns: Sequence[str] = USUAL) -> list[Entry]:
    """Return the entries, worst first. Unless ``wide``, hosts that read the same are one entry.

    Those with findings also have the same ones, though perhaps of other GPUs. ``columns`` are those that
    :func:`chosen` returned.
    """
    more = [name for name in columns if name in MORE]
    worst = _worst(run.findings)
    found: dict[str, list[Finding]] = {}
    for finding in run.findings:
        if finding.host is not None and not finding.waived:
            found.setdefault(finding.host, []).append(finding)
    alike: dict[Hashable, list[str]] = {}
    ranked: dict[Hashable, tuple[tuple[int, int], Entry]] = {}
    for host in run.hosts:
        graded = worst.get(host.name, {})
        # What is not shown keeps no two rows apart.
        lines = tuple(
            dict.fromkeys(_shown(line, columns) for line in _lines(host, graded, more, found.get(host.name, ())))
        )
        order = _order(host, _gravest(graded.values()))
        costs = _costs(found.get(host.name, ())) if host.verdict in ("ok", "findings") else 0
        live = () if host.verdict == "ok" else found.get(host.name, ())
        same = frozenset((one.rule, one.severity, one.venv) for one in live)
        key = host.name if wide else (order, lines, same)
        alike.setdefault(key, []).append(host.name)
        entry = Entry((), lines, host.verdict in ("ok", "findings"))
        place, entry = ranked.setdefault(key, ((order, costs), entry))
        ranked[key] = min(place, (order, costs)), entry
    placed = [(place, entry._replace(hosts=tuple(alike[key]))) for key, (place, entry) in ranked.items()]
    return [entry for _, entry in sorted(placed, key=lambda item: item[0])]


def fired(findings: Iterable[Finding]) -> frozenset[str]:
    """Return the columns that tell of a live fault: of a warning or worse that no other finding explains."""
    rules = {one.rule for one in findings if not one.waived and one.cause is None and one.severity != "info"}
    return frozenset(column for start, column in ABOUT if any(rule.startswith(start) for rule in rules))


_HELD: dict[str, dict[str, Any]] = {
    "GPUS": {"gpus": "", "gpus_short": ""},
    "LINK": {"link": "", "link_short": ""},
    "DRIVER": {"driver": ""},
    "VENV": {"venv": ""},
    "FLASHINFER": {"flashinfer": ""},
    "CSRC": {"csrc": "", "csrc_path": "", "moved": False},
    "FUSION": {"fusion": "", "fusion_short": ""},
}


def _shown(line: Line, columns: Sequence[str]) -> Line:
    for name, held in _HELD.items():
        if name not in columns:
            line = line._replace(**held)
    return line


_Graded = dict[str | None, Severity]


def _worst(findings: Iterable[Finding]) -> dict[str, _Graded]:
    """Return the gravest severity of each host by environment; None is what concerns the whole host."""
    worst: dict[str, _Graded] = {}
    for finding in findings:
        if finding.host is not None and not finding.waived:
            graded = worst.setdefault(finding.host, {})
            known = graded.get(finding.venv, finding.severity)
            graded[finding.venv] = max(known, finding.severity, key=rank)
    return worst


def _costs(found: Sequence[Finding]) -> int:
    """Return the :func:`weight` of a host's gravest rule: what the host costs among those of its severity."""
    return weight(_first(found).rule) if found else 0


def _first(found: Sequence[Finding]) -> Finding:
    """Return the finding to be named of several: of the gravest that no other explains, the costliest."""
    worst = max(rank(one.severity) for one in found)
    grave = [one for one in found if rank(one.severity) == worst]
    return min(grave, key=lambda one: (one.cause is not None, weight(one.rule)))


def _gravest(severities: Iterable[Severity | None]) -> Severity | None:
    return max((severity for severity in severities if severity), key=rank, default=None)


def _order(host: HostResult, severity: Severity | None) -> int:
    """Return where a host stands: findings by severity, then what was not seen, then the rest."""
    steps = len(SEVERITIES)
    grave = steps - 1 - rank(severity) if severity else steps
    if host.verdict == "findings":
        return grave
    if host.verdict != "ok":
        return 2 * steps if host.verdict != "skipped" else 2 * steps + 1
    return 3 * steps + grave


def _named(found: Sequence[Finding], venv: Venv | None) -> tuple[str, str]:
    """Return the gravest rule of a row, and how many others there are that no rule explains: ``" +2"``."""
    here = [one for one in found if venv is None or one.venv in (None, venv.path)]
    first = _first(here)
    others = {one.rule for one in here if one.severity != "info" and one.cause is None} - {first.rule}
    return clean(first.rule, NAME), f" +{len(others)}" if others else ""


def _lines(host: HostResult, graded: _Graded, more: Sequence[str], found: Sequence[Finding]) -> Iterable[Line]:
    (gpus, gpus_short), driver, (link, link_short) = counted(host), drivers(host.gpus), linked(host.gpus)
    shown: tuple[Venv | None, ...] = host.venvs or (None,)
    for venv in shown:
        here = (graded.get(None), graded.get(venv.path)) if venv else tuple(graded.values())
        worst = _gravest(here)
        verdict, short, role = _verdict(host, worst)
        if host.verdict == "findings" and worst:
            named = _named(found, venv)
            verdict, middle = f"{named[0]} ({worst}){named[1]}", "".join(named)
        else:
            middle = short
        csrc, path, moved = _csrc(venv)
        fusion, fusion_short = _fusion(venv, host.gpus)
        yield Line(
            gpus, driver, clean(venv.path, 1000) if venv else "-", _flashinfer(venv), csrc, path, moved,
            fusion, fusion_short, verdict, middle, role, tuple(_more(name, host, venv) for name in more),
            link, link_short, gpus_short,
        )  # fmt: skip


def _verdict(host: HostResult, severity: Severity | None) -> tuple[str, str, Role]:
    more: str | None
    if host.verdict in ("ok", "findings"):
        more = severity if severity != "info" or host.verdict == "findings" else None
        role: Role = severity or "dim" if host.verdict == "findings" else "warning" if more else "ok"
    else:
        more, role = host.detail or host.stage, "dim" if host.verdict == "skipped" else "warning"
    long = f"{host.verdict} ({clean(more, NAME)})" if more else host.verdict
    # An "ok" alone would hide at one width what another tells.
    return long, long if host.verdict == "ok" else host.verdict, role


def _more(name: str, host: HostResult, venv: Venv | None) -> str:
    return clean(_MORE[name](host, venv) or "-", NAME)


def _flashinfer(venv: Venv | None) -> str:
    if venv is None:
        return "-"
    if venv.flashinfer and venv.flashinfer.version:
        version = clean(venv.flashinfer.version, NAME)
        return version if venv.state == "ok" else f"{version}, {venv.state}"
    return {
        "ok": "unknown", "no-flashinfer": "none", "remnant": "remnant",
        "missing": "venv missing", "unreadable": "venv unreadable", "broken": "venv broken",
    }[venv.state]  # fmt: skip


def _csrc(venv: Venv | None) -> tuple[str, str, bool]:
    """Return the state, the path, and whether that is not where every release keeps its sources."""
    found = venv.flashinfer if venv else None
    if found is None:
        return "-", "", False
    moved = None not in (found.csrc_dir, found.csrc_default) and found.csrc_dir != found.csrc_default
    state: str = found.csrc_state
    if moved:
        # Whole sources in the wrong place must read as wrong at every width.
        state = MOVED if state == "complete" else f"{MOVED}, {state}"
    return state, clean(found.csrc_dir or "", 1000), moved


def _fusion(venv: Venv | None, gpus: Gpus) -> tuple[str, str]:
    fusion = venv.fusion if venv else None
    return ("-", "-") if fusion is None else (in_words(fusion, gpus), in_words(fusion, gpus, short=True))


def in_words(fusion: Fusion, gpus: Gpus, *, short: bool = False) -> str:
    """Return what is in force of the fusion, and what FlashInfer allows here where that does not follow.

    What rests on GPUs that nvidia-smi did not give is told with an ``if``: ``supported if 12.0, use?``.
    """
    allowed = f"{fusion.verdict}{_if(gpus)}" if fusion.verdict in _OF_GPUS else fusion.verdict
    if fusion.effective == "unknown":
        unused = f", {OPEN}" if short else " (in use: not known)"
        return allowed + unused if fusion.verdict != "unknown" else "unknown"
    if fusion.effective == "would-crash":
        return f"would-crash{_if(gpus)}"
    if fusion.verdict in _EDITED:
        return f"{'off' if fusion.effective == 'off' else 'on'}, {allowed}"
    if fusion.effective == "off":
        return f"off ({allowed})" if fusion.verdict in ("absent", "refused") else "off"
    return f"{fusion.effective}, {allowed}" if _if(gpus) else fusion.effective


_EDITED = ("unsafe-patch", "patched")
_OF_GPUS = ("refused", "supported", *_EDITED)
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}")


def _if(gpus: Gpus) -> str:
    """Return on what GPUs a verdict rests that nvidia-smi did not give; nothing where it gave them."""
    if gpus.compute_capability:
        return ""
    seen = dict.fromkeys(device.compute_capability or "" for device in gpus.devices)
    # A record may be anyone's, and a word of the table stands without marks in Markdown.
    kinds = [kind for kind in seen if _CAPABILITY.fullmatch(kind)]
    return f" if {','.join(kinds[:4]) or 'as expected'}"
