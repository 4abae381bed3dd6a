"""One host for a reader: a sentence, the findings, everything that is known, and what was not examined.

The facts are walked as the records hold them, so that a fact that is new there is shown here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel
from tabulate import tabulate

from fleetcheck.facts.records import Gpus, Venv
from fleetcheck.report.findings import groups, lines, sentence, waived
from fleetcheck.report.gpu_cells import unusable
from fleetcheck.report.rows import in_words
from fleetcheck.report.text import clean, paint, value
from fleetcheck.rules.finding import SEVERITIES, Finding
from fleetcheck.run import HostResult, Run

ITEMS = 200
"""How many items of one list are shown."""
_TEXT = 2000
_DEEP = 20
"""Columns of indent from which on what is nested is told on one line."""
OF_THE_LOOK = ("address", "groups", "outcome", "stage", "detail", "message", "verdict", "attempts", "seconds")
"""Members of a host that tell of the look itself; the page shows the same parts under the same names."""
SAID = {"ecc": "ecc", "ecc_pending": "ecc after reset", "mig": "mig", "mig_pending": "mig after reset"}
"""Switches of a GPU: "pending: yes" would read as an alarm."""
SECTIONS = {
    "system": "System",
    "gpus": "GPUs",
    "toolkits": "CUDA toolkits",
    "venvs": "Environments",
    "caches": "Caches",
    "processes": "Processes",
}


def render(run: Run, *, width: int, colour: bool) -> str:
    """Return what is known of the hosts of a run, which is narrowed to those to show."""
    told = [_host(host, run, width, colour) for host in run.hosts]
    return "\n\n".join("\n".join(lines) for lines in told) + "\n"


def _host(host: HostResult, run: Run, width: int, colour: bool) -> Sequence[str]:
    findings = [finding for finding in run.findings if finding.host == host.name]
    blocks = [[paint(line, "title", colour) for line in sentence(summary(host, findings), width, "")]]
    blocks += [list(lines(group, width, wide=True, colour=colour)) for group in groups(findings)]
    accepted = list(waived(findings, width))
    blocks += [[paint("Waived", "title", colour), *accepted]] if accepted else []
    look = {name: getattr(host, name) for name in OF_THE_LOOK}
    about = {"run": run.run.id, "started": run.run.started, "inventory": run.run.inventory}
    about |= {"judged by": ", ".join(run.run.select), "judged without": ", ".join(run.run.ignore)}
    blocks.append([paint("Look", "title", colour), *_pairs({**look, **about}, "  ")])
    others = [name for name in type(host).model_fields if name not in (*OF_THE_LOOK, *SECTIONS, "name")]
    for name in (*SECTIONS, *others):
        body = list(_section(getattr(host, name)))
        if body:
            blocks.append([paint(SECTIONS.get(name, _label(name)), "title", colour), *body])
    missing = list(unexamined(host))
    if missing:
        blocks.append([paint("Not examined", "title", colour), *(f"  {line}" for line in missing)])
    return [line for number, block in enumerate(blocks) for line in ([""] if number else []) + block]


def summary(host: HostResult, findings: Sequence[Finding]) -> str:
    """Return one sentence: how the host stands, what it has, and what decides about its FlashInfer."""
    if host.verdict not in ("ok", "findings"):
        where = f" at the stage {host.stage}" if host.stage else ""
        why = f": {clean(host.message, _TEXT)}" if host.message else ""
        return f"{clean(host.name)} was not checked, {host.outcome}{where}{why}"
    places = "; ".join(_place(venv, host.gpus) for venv in host.venvs[:4]) or "no Python environment is known"
    more = f"; and {len(host.venvs) - 4} more environments" if len(host.venvs) > 4 else ""
    return f"{clean(host.name)} {_standing(host, findings)}: {_gpus(host.gpus)}; {places}{more}."


def _gpus(gpus: Gpus) -> str:
    kinds = "/".join(clean(kind, 20) for kind in gpus.compute_capability[:8])
    kind = f" of compute capability {kinds}" if kinds else ""
    count = gpus.count or 0
    number = "1 GPU" if count == 1 else f"{count} GPUs"
    bad = unusable(gpus)
    if bad:
        parts = re.fullmatch(r"(\d+) of (\d+) (.*)", bad)
        told = f"{parts[1]} of {parts[2]} GPUs {'is' if parts[1] == '1' else 'are'} {parts[3]}" if parts else bad
        return f"{told}, nvidia-smi lists {number if count else 'none'}{kind if count else ''}"
    if gpus.state == "ok":
        return f"{number}{kind}, ok" if gpus.count is not None else "GPUs ok"
    listed = f", having listed {number}{kind}" if count else ""
    return f"{_SAID[gpus.state]}{listed}"


_SAID: dict[str, str] = {
    "hung": "nvidia-smi hung",
    "driver-mismatch": "the loaded driver and its libraries are of different versions",
    "driver-unloaded": "the driver is not loaded",
    "smi-missing": "nvidia-smi is not there",
    "no-gpu": "no GPU",
    "no-permission": "the GPUs may not be asked by the audit's user",
    "nvml-error": "nvidia-smi failed",
    "unknown": "the GPUs are not known in full",
}


def _standing(host: HostResult, findings: Sequence[Finding]) -> str:
    live = [finding for finding in findings if not finding.waived]
    if not live:
        return "is ok" if host.verdict == "ok" else "has findings"
    number = "one finding" if len(live) == 1 else f"{len(live)} findings, the worst"
    root = groups(live)[0]  # what is named is what is to be mended first, not what follows from it
    told = f"{number} {clean(root.rule)} ({SEVERITIES[root.worst]})"
    return f"is ok with {told}" if host.verdict == "ok" else f"has {told}"


def _place(venv: Venv, gpus: Gpus) -> str:
    flash = venv.flashinfer
    path = clean(venv.path, 200)
    if flash is None or flash.version is None:
        return f"{path} is {venv.state}" if venv.state != "ok" else f"{path} has no FlashInfer that is known"
    csrc = f"sources {flash.csrc_state}"
    if flash.csrc_dir and flash.csrc_default and flash.csrc_dir != flash.csrc_default:
        csrc = f"{csrc} at {clean(flash.csrc_dir, 300)}, not where the package keeps them"
    fusion = f", allreduce fusion {in_words(venv.fusion, gpus)}" if venv.fusion else ""
    return f"{path} has FlashInfer {clean(flash.version, 60)}, {csrc}{fusion}"


def unexamined(host: HostResult) -> Iterator[str]:
    """Yield what is not known of a host because nothing looked at it, or the look did not come so far."""
    if host.verdict == "skipped":
        yield "everything: the host was left alone"
    elif host.outcome != "checked":
        yield f"whatever comes after the stage {host.stage or 'that is not known'}, where the look ended"
    yield from (_label(name).lower() for name in ("system", "caches", "processes") if getattr(host, name) is None)
    for venv in host.venvs:
        parts = [name for name in ("flashinfer", "fusion", "torch", "toolchain") if getattr(venv, name) is None]
        if venv.activation_matches is None:
            parts.append("activation")
        if parts:
            yield f"{clean(venv.path, 300)}: {', '.join(parts)}"
        flash = venv.flashinfer
        if flash is not None and flash.imported_state not in (None, "answered"):
            why = clean(flash.imported_error or "no reason given", 300)
            yield f"{clean(venv.path, 300)}: the real import that was asked for ({flash.imported_state}: {why})"
    for process in host.processes or ():
        if process.unseen and (process.server or process.uses_gpu):
            what = clean(process.server or "on a GPU", 60)
            yield f"process {process.pid} ({what}): {clean('; '.join(process.unseen), 300)}"
    yield from (f"processes: {clean(line, 300)}" for line in host.processes_unread)
    unknown = [name for name in type(host.gpus).model_fields if getattr(host.gpus, name) is None]
    if unknown:
        yield f"gpus: {', '.join(_label(name).lower() for name in unknown)}"


def _section(thing: Any) -> Iterator[str]:
    if isinstance(thing, BaseModel | Mapping):
        yield from _record(thing, "  ")
    elif isinstance(thing, list | tuple):
        yield from _list(thing, "  ")
    elif thing is not None:
        yield f"  {_scalar('', thing)}"


def _items(thing: Any) -> dict[str, Any]:
    """Return the members of a record by their labels, of a mapping by its own keys."""
    if isinstance(thing, BaseModel):
        return {SAID.get(name, _label(name).lower()): _worded(thing, name) for name in type(thing).model_fields}
    return {clean(str(key), 200): item for key, item in list(thing.items())[:ITEMS]}


def _worded(thing: BaseModel, name: str) -> Any:
    """Return a member of a record; a switch that has a label of its own reads on or off."""
    seen = getattr(thing, name)
    return {True: "on", False: "off"}[seen] if name in SAID and isinstance(seen, bool) else seen


def _nested(thing: Any) -> bool:
    if isinstance(thing, list | tuple):
        return any(isinstance(item, BaseModel | Mapping | list | tuple) for item in thing)
    return isinstance(thing, BaseModel | Mapping)


def _empty(thing: Any) -> bool:
    return thing is None or thing in ("", (), [], {})


def _record(thing: Any, indent: str) -> Iterator[str]:
    yield from _pairs(_items(thing), indent)
    if isinstance(thing, Mapping) and len(thing) > ITEMS:
        yield f"{indent}and {len(thing) - ITEMS} more"


def _pairs(items: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield what is known by its labels: plain values first, then what holds more."""
    known = {name: item for name, item in items.items() if not _empty(item)}
    plain = {name: _scalar(name, item) for name, item in known.items() if not _nested(item)}
    room = max(map(len, plain), default=0)
    yield from (f"{indent}{label:<{room}}  {text}" for label, text in plain.items())
    for name, item in known.items():
        if name in plain:
            continue
        if len(indent) > _DEEP:
            inside = iter([f"{indent}  {value(item, _TEXT)}"])
        else:
            inside = (_list if isinstance(item, list | tuple) else _record)(item, indent + "  ")
        first = next(inside, None)
        yield f"{indent}{name}" if first is not None else f"{indent}{name}  nothing that is known"
        if first is not None:
            yield first
            yield from inside


def _list(things: Sequence[Any], indent: str) -> Iterator[str]:
    shown = [_items(thing) if isinstance(thing, BaseModel | Mapping) else thing for thing in things[:ITEMS]]
    if shown and all(isinstance(item, dict) and not any(map(_nested, item.values())) for item in shown):
        yield from _table(shown, indent)
    else:
        for item in shown:
            if isinstance(item, dict):
                title = next((name for name in ("path", "name", "pid") if not _empty(item.get(name))), None)
                yield f"{indent}{_scalar('', item.pop(title)) if title else '-'}"
                yield from _pairs(item, indent + "  ")
            else:
                yield f"{indent}{value(item, _TEXT)}"
    if len(things) > ITEMS:
        yield f"{indent}and {len(things) - ITEMS} more"


def _table(rows: Sequence[dict[str, Any]], indent: str) -> Iterator[str]:
    """Yield rows as a table; what is the same in each of several stands once, before it."""
    cells = {
        name: ["-" if _empty(row.get(name)) else _scalar(name, row[name]) for row in rows]
        for name in dict.fromkeys(name for row in rows for name in row)
    }
    alike = {name: column[0] for name, column in cells.items() if len(rows) > 1 and len(set(column)) == 1}
    told = {f"each {name}": text for name, text in alike.items() if text != "-"}
    yield from _pairs(told, indent)
    columns = {name: column for name, column in cells.items() if name not in alike and set(column) != {"-"}}
    if columns:
        body = [[name.upper() for name in columns], *zip(*columns.values(), strict=True)]
        text = tabulate(body, tablefmt="plain", disable_numparse=True, stralign="left")
        yield from (f"{indent}{line.rstrip()}" for line in text.splitlines())
    elif not told:
        yield f"{indent}{len(rows)} of which nothing is known"


def _scalar(name: str, thing: Any) -> str:
    if name.endswith((" at", " time", "_at", "_time")) and isinstance(thing, int | float) and 0 < thing < 1e11:
        return datetime.fromtimestamp(thing, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if isinstance(thing, bool):
        return "yes" if thing else "no"
    return value(thing, _TEXT)


def _label(name: str) -> str:
    label = clean(name, 100).replace("_", " ")
    return label[:1].upper() + label[1:]
