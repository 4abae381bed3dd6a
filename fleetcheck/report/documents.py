"""Run documents, read again: a JSON document or jsonl lines become a run, and several runs become one.

What is read may be of any origin: it is checked against the records, and what is wrong is told in one line each.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ValidationError

from fleetcheck.errors import InputError, Problem
from fleetcheck.report.jsonl import by_host
from fleetcheck.rules.finding import Finding
from fleetcheck.run import SCHEMA, HostResult, Run, RunInfo, summarise

PACKED = b"\x1f\x8b"
"""What a gzip file begins with; no run is one, and evidence is where its name ends in .gz."""
EVIDENCE = "fleetcheck/evidence/"
MAX_BYTES = 512 << 20
"""As much as some 30,000 hosts take. What is read stands in memory, several times as large."""
SHOWN = 5
"""How many things that are wrong with one document are told."""


def read(path: str) -> Run:
    """Return the run that a file holds; ``-`` is standard input. Raises InputError where it holds none.

    Counts are made again from the hosts. A document of a newer version may hold more keys, which are ignored.
    """
    try:
        raw = _raw(path)
        if raw[:2] == PACKED:
            raise _bad(path, f"is not a run; recorded evidence is for: fleetcheck replay {shlex.quote(path)}")
        text = raw.decode("utf-8")
        del raw
        return _run(path, _document(path, text))
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _bad(path, "not a run: not UTF-8 text") from None
    except MemoryError:
        raise _bad(path, "not a run that can be read: it needs more memory than there is") from None


def _raw(path: str) -> bytes:
    with contextlib.ExitStack() as stack:
        if path != "-":
            stream: BinaryIO = stack.enter_context(Path(path).open("rb"))
        elif sys.stdin is None:
            raise _bad(path, "standard input is closed")
        else:
            stream = sys.stdin.buffer
        if os.fstat(stream.fileno()).st_size <= MAX_BYTES:  # what a pipe will hold is not known
            raw = stream.read(MAX_BYTES + 1)
            if len(raw) <= MAX_BYTES:
                return raw
    raise _bad(path, f"larger than {MAX_BYTES >> 20} MB, more than is read of one run")


def _document(path: str, text: str) -> dict[str, Any]:
    first, _, rest = text.partition("\n")
    try:
        lead = json.loads(first)
    except (ValueError, RecursionError):
        lead = None
    if isinstance(lead, dict) and lead.get("type") == "run":
        return _joined(path, lead, rest.removesuffix("\n").split("\n") if rest else ())
    if isinstance(lead, dict) and str(lead.get("schema")).startswith(EVIDENCE):
        raise _bad(path, f"is recorded evidence: run fleetcheck replay {shlex.quote(path)}")
    document = _parsed(path, text, None)
    if "schema" not in document:
        raise _bad(path, f"not a run: it has no schema {SCHEMA}")
    return document


def _parsed(path: str, text: str, line: int | None) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise _bad(path, f"not JSON: {error.msg}", line or error.lineno) from None
    except RecursionError:
        raise _bad(path, "not JSON that can be read: nested too deeply", line) from None
    except ValueError:
        raise _bad(path, "not JSON that can be read: a number with too many digits", line) from None
    if not isinstance(value, dict):
        raise _bad(path, "not a JSON object", line)
    return value


def _joined(path: str, lead: dict[str, Any], lines: Sequence[str]) -> dict[str, Any]:
    """Put lines of jsonl together. Without a summary the run is not complete."""
    hosts: dict[Any, Any] = {}
    found: dict[Any, list[Any]] = {}
    info = {**lead, "finished": None, "complete": False}
    for number, text in enumerate(lines, 2):
        line = _parsed(path, text, number)
        kind, name, host = line.get("type"), line.get("name"), line.get("host")
        if kind == "host" and isinstance(name, str):
            # Of two lines of one host, the later one and the findings after it count.
            hosts[name], found[name] = line, []
        elif kind == "finding" and (host is None or (isinstance(host, str) and host in hosts)):
            found.setdefault(host, []).append(line)
        elif kind == "summary":
            info |= {"finished": line.get("finished"), "complete": line.get("complete")}
        else:
            raise _bad(path, f"not a line of a run (type {kind!r})", number)
    findings = [finding for name in [*hosts, None] for finding in found.get(name, ())]
    return {"schema": lead.get("schema"), "run": info, "hosts": list(hosts.values()), "findings": findings}


def _run(path: str, document: dict[str, Any]) -> Run:
    if document.get("schema") != SCHEMA:
        raise _bad(path, f"its schema is {document.get('schema')!r}; this version reads {SCHEMA}")
    none = {"hosts": 0, "ok": 0, "findings": 0, "not_checked": 0, "by_outcome": {}}
    try:
        run = Run.model_validate({"summary": none, **document})
    except ValidationError as error:
        raise InputError(_told(path, error)) from None
    twice = _twice(run.hosts)
    if twice is not None:
        raise _bad(path, f"host {twice} stands there twice")
    names = {host.name for host in run.hosts}
    strange = next((item.host for item in run.findings if item.host is not None and item.host not in names), None)
    if strange is not None:
        raise _bad(path, f"a finding names the host {strange}, which is not among its hosts")
    return run.model_copy(update={"summary": summarise(run.hosts)})


def _twice(hosts: Sequence[HostResult]) -> str | None:
    seen: set[str] = set()
    for host in hosts:
        if host.name in seen:
            return host.name
        seen.add(host.name)
    return None


def _told(path: str, error: ValidationError) -> list[Problem]:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    problems = [
        Problem(path, None, f"{'.'.join(map(str, item['loc']))}: {item['msg']}") for item in errors[:SHOWN]
    ]
    if len(errors) > SHOWN:
        problems.append(Problem(path, None, f"and {len(errors) - SHOWN} more like these"))
    return problems


def _bad(path: str, message: str, line: int | None = None) -> InputError:
    return InputError([Problem(path, line, message)])


def merge(named: Sequence[tuple[str, Run]]) -> Run:
    """Return several runs as one, hosts in the order in which they come; ``named`` holds at least one.

    A host of two runs is taken once where both say the same of it, times and attempts apart. Where they do not,
    InputError tells each such host with both its files: which of them is right is for the reader to say.
    """
    if len(named) == 1:
        return named[0][1]
    kept: dict[str, tuple[str, HostResult, tuple[Finding, ...]]] = {}
    fleet: list[Finding] = []
    problems = []
    for source, run in named:
        found = by_host(run)
        fleet += [finding for finding in found.get(None, ()) if finding not in fleet]
        for host in run.hosts:
            findings = found.get(host.name, ())
            before = kept.setdefault(host.name, (source, host, findings))
            if (before[1] is not host) and _fixed(before[1:]) != _fixed((host, findings)):
                both = f"{before[0]} and {source} tell different things of the host {host.name}"
                problems.append(Problem("report", None, f"{both}; leave one of them out"))
    if len({(run.run.select, run.run.ignore) for _, run in named}) > 1:
        # One "ok" would then mean two things.
        what = "these runs were judged by different rules (--select, --ignore); show them one by one"
        problems.append(Problem("report", None, what))
    if problems:
        raise InputError(problems)
    hosts = tuple(host for _, host, _ in kept.values())
    findings = tuple(finding for _, _, told in kept.values() for finding in told)
    info = _info([run.run for _, run in named])
    return Run(run=info, summary=summarise(hosts), hosts=hosts, findings=(*findings, *fleet))


def _info(infos: Sequence[RunInfo]) -> RunInfo:
    ends = [info.finished for info in infos if info.finished is not None]
    failing = {info.fail_on for info in infos}
    return RunInfo(
        select=infos[0].select,
        ignore=infos[0].ignore,
        fail_on=infos[0].fail_on if len(failing) == 1 else None,
        id="+".join(dict.fromkeys(info.id for info in infos)),
        started=min(info.started for info in infos),
        finished=max(ends) if len(ends) == len(infos) else None,
        version=", ".join(dict.fromkeys(info.version for info in infos)),
        inventory=", ".join(dict.fromkeys(info.inventory for info in infos)),
        complete=all(info.complete for info in infos),
    )


def _fixed(thing: Any) -> Any:
    """Return a record as plain values, without what changes from look to look."""
    if isinstance(thing, BaseModel):
        fields = type(thing).model_fields.items()
        return {name: _fixed(getattr(thing, name)) for name, field in fields if not _volatile(field)}
    if isinstance(thing, tuple | list):
        return [_fixed(item) for item in thing]
    if isinstance(thing, dict):
        return {key: _fixed(item) for key, item in thing.items()}
    return thing


def _volatile(field: Any) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, dict) and extra.get("fact") == "volatile"


def narrowed(run: Run, name: str) -> Run:
    """Return the run as if this host alone had been selected. Raises KeyError where it is not there."""
    hosts = tuple(host for host in run.hosts if host.name == name)
    if not hosts:
        raise KeyError(name)
    findings = tuple(finding for finding in run.findings if finding.host == name)
    return run.model_copy(update={"summary": summarise(hosts), "hosts": hosts, "findings": findings})
