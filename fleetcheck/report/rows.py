"""The rows of the table: what one environment of one host comes to, and how rows fit a width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from fleetcheck.facts.records import Gpus, Venv
from fleetcheck.report.nodes import fold, wrap
from fleetcheck.report.text import Role, cells, clean, paint, tail
from fleetcheck.rules.finding import SEVERITIES, Finding, Severity, rank
from fleetcheck.run import HostResult, Run

GAP = 2
_NAME = 60
_PATH_LEAST = 11


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
    verdict_short: str
    role: Role


class Entry(NamedTuple):
    """Hosts that read the same, and their rows: one an environment, or one where none is known."""

    hosts: tuple[str, ...]
    lines: tuple[Line, ...]


def entries(run: Run, *, wide: bool) -> list[Entry]:
    """Return the entries, worst first. Unless ``wide``, ok hosts whose rows are equal are one entry."""
    worst = _worst(run.findings)
    ranked: list[tuple[int, Entry]] = []
    healthy: dict[tuple[int, tuple[Line, ...]], list[str]] = {}
    for host in run.hosts:
        graded = worst.get(host.name, {})
        lines = tuple(_lines(host, graded))
        order = _order(host, _gravest(graded.values()))
        if host.verdict == "ok" and not wide:
            healthy.setdefault((order, lines), []).append(host.name)
        else:
            ranked.append((order, Entry((host.name,), lines)))
    ranked += [(order, Entry(tuple(names), lines)) for (order, lines), names in healthy.items()]
    ranked.sort(key=lambda item: item[0])
    return [entry for _, entry in ranked]


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


def _lines(host: HostResult, graded: _Graded) -> Iterable[Line]:
    gpus, driver = _gpus(host), _driver(host.gpus)
    shown: tuple[Venv | None, ...] = host.venvs or (None,)
    for venv in shown:
        here = (graded.get(None), graded.get(venv.path)) if venv else tuple(graded.values())
        verdict, short, role = _verdict(host, _gravest(here))
        csrc, path, moved = _csrc(venv)
        fusion, fusion_short = _fusion(venv)
        yield Line(
            gpus, driver, clean(venv.path, 1000) if venv else "-", _flashinfer(venv), csrc, path, moved,
            fusion, fusion_short, verdict, short, role,
        )  # fmt: skip


def _verdict(host: HostResult, severity: Severity | None) -> tuple[str, str, Role]:
    more: str | None
    if host.verdict in ("ok", "findings"):
        more = severity if severity != "info" or host.verdict == "findings" else None
        role: Role = severity or "dim" if host.verdict == "findings" else "warning" if more else "ok"
    else:
        more, role = host.detail or host.stage, "dim" if host.verdict == "skipped" else "warning"
    long = f"{host.verdict} ({clean(more, _NAME)})" if more else host.verdict
    return long, host.verdict, role


def _gpus(host: HostResult) -> str:
    gpus = host.gpus
    kinds = ",".join(clean(kind, _NAME) for kind in gpus.compute_capability[:8])
    counted = f"{gpus.count}× {kinds}".rstrip() if gpus.count else ""
    if gpus.state == "ok":
        return counted or "ok"
    if gpus.state == "unknown" and not counted:
        return "unknown" if host.outcome == "checked" else "-"
    return f"{gpus.state}, {counted}" if counted else gpus.state


def _driver(gpus: Gpus) -> str:
    versions = dict.fromkeys(clean(version, _NAME) for version in (gpus.driver, gpus.driver_userspace) if version)
    return "/".join(versions) or "-"


def _flashinfer(venv: Venv | None) -> str:
    if venv is None:
        return "-"
    if venv.flashinfer and venv.flashinfer.version:
        version = clean(venv.flashinfer.version, _NAME)
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
    return found.csrc_state, clean(found.csrc_dir or "", 1000), moved


def _fusion(venv: Venv | None) -> tuple[str, str]:
    fusion = venv.fusion if venv else None
    if fusion is None:
        return "-", "-"
    if fusion.effective != "unknown" or fusion.verdict == "unknown":
        return fusion.effective, fusion.effective
    return f"unknown ({fusion.verdict})", fusion.verdict


class Level(NamedTuple):
    """How much a table shows; each level asks for less room than the one before it."""

    short: bool
    csrc_path: Literal["all", "moved", "none"]
    left_out: tuple[str, ...]


LEVELS = (
    Level(False, "all", ()),
    Level(True, "all", ()),
    Level(True, "moved", ()),
    Level(True, "moved", ("DRIVER",)),
    Level(True, "none", ("DRIVER",)),
    Level(True, "moved", ("DRIVER", "FLASHINFER")),
    Level(True, "none", ("DRIVER", "FLASHINFER")),
)


class Fitted(NamedTuple):
    """A table that fits, or comes as near as it can: header, rows of cells, the columns that had no room."""

    header: list[str]
    rows: list[list[str]]
    left_out: tuple[str, ...]


def fit(found: Sequence[Entry], width: int, colour: bool) -> Fitted:
    """Return the table in ``width`` columns; 0 means that there is no limit and nothing is shortened."""
    hosts = [_host_cell(entry, width) for entry in found]
    for level in LEVELS:
        rooms = _rooms(found, hosts, level, width)
        if rooms is not None or level is LEVELS[-1]:
            break
    venv_room, csrc_room = rooms or (_PATH_LEAST, _PATH_LEAST)
    rows = []
    for entry, host in zip(found, hosts, strict=True):
        for line in entry.lines:
            row = _cells(line, level)
            row["VENV"] = tail(line.venv, venv_room)
            row["CSRC"] = _csrc_cell(line, level, csrc_room)
            row["VERDICT"] = paint(row["VERDICT"], line.role, colour)
            rows.append(["\n".join(host), *row.values()])
    header = ["HOST", "GPUS", "DRIVER", "VENV", "FLASHINFER", "CSRC", "FUSION", "VERDICT"]
    return Fitted([name for name in header if name not in level.left_out], rows, level.left_out)


def _host_cell(entry: Entry, width: int) -> list[str]:
    count = f" ({len(entry.hosts)})" if len(entry.hosts) > 1 else ""
    folded = fold(entry.hosts) + count
    return wrap(folded, max(16, width // 4)) if width else [folded]


def _cells(line: Line, level: Level) -> dict[str, str]:
    row = {
        "GPUS": line.gpus,
        "DRIVER": line.driver,
        "VENV": line.venv,
        "FLASHINFER": line.flashinfer,
        "CSRC": line.csrc,
        "FUSION": line.fusion_short if level.short else line.fusion,
        "VERDICT": line.verdict_short if level.short else line.verdict,
    }
    return {name: text for name, text in row.items() if name not in level.left_out}


def _csrc_cell(line: Line, level: Level, room: int) -> str:
    if not line.csrc_path or (level.csrc_path != "all" and not line.moved):
        return line.csrc
    if level.csrc_path == "none":
        # Whole sources in the wrong place must not read as all well where the path has no room.
        return "moved" if line.csrc == "complete" else line.csrc
    return f"{line.csrc} {tail(line.csrc_path, max(1, room - len(line.csrc) - 1))}"


def _rooms(
    found: Sequence[Entry], hosts: Sequence[Sequence[str]], level: Level, width: int
) -> tuple[int, int] | None:
    """Return the columns that VENV and CSRC get at this level, None where the rest leaves them too few."""
    lines = {line for entry in found for line in entry.lines}
    venv = max((cells(line.venv) for line in lines), default=0)
    csrc = max((cells(_csrc_cell(line, level, 1 << 30)) for line in lines), default=0)
    if not width:
        return max(venv, 1), max(csrc, 1)
    widths: dict[str, int] = {"HOST": max((cells(part) for host in hosts for part in host), default=4)}
    for line in lines:
        for name, text in _cells(line, level).items():
            widths[name] = max(widths.get(name, len(name)), cells(text))
    state = widths.get("CSRC", 0)
    fixed = sum(size for name, size in widths.items() if name not in ("VENV", "CSRC"))
    room = width - fixed - GAP * (len(widths) - 1)
    venv, csrc = max(venv, len("VENV")), max(csrc, state)
    venv_least = min(venv, _PATH_LEAST)
    csrc_least = min(csrc, state + 1 + _PATH_LEAST)
    if venv + csrc <= room:
        return venv, csrc
    if venv_least + csrc_least > room:
        return None
    spare = room - venv_least - csrc_least
    more = min(venv - venv_least, (spare + 1) // 2)
    more = max(more, spare - (csrc - csrc_least))
    return venv_least + more, room - venv_least - more
