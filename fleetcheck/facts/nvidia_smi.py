"""What ``nvidia-smi --query-gpu=… --format=csv,noheader,nounits`` printed, typed.

A line is a row by its shape; every other line of stdout and stderr is a message to be classified. Errors stand
before, between and after the rows, on either stream (NordicHPC/sonar#72, utkuozdemir/nvidia_gpu_exporter#65).
The exit code is evidence, not a verdict: rows are valid with rc 14, and a GPU can be lost with rc 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetcheck.facts import shape, smi_forms
from fleetcheck.facts.smi_messages import Kind, Message, message, of_exit_code
from fleetcheck.facts.smi_rows import Row, is_header, plain, row

MAX_LINES = 2000
MAX_ROWS = 256


@dataclass(frozen=True, slots=True)
class Listing:
    """All that one call said. ``answered`` is False where no call was made or none of it came back.

    ``shown`` are the GPUs of a form that was not asked for (:mod:`fleetcheck.facts.smi_forms`), ``shown_driver``
    is the driver that it names: they speak only where there are no rows.
    """

    rows: tuple[Row, ...] = ()
    messages: tuple[Message, ...] = ()
    unsupported: tuple[str, ...] = ()
    answered: bool = False
    hung: bool = False
    missing: bool = False
    truncated: bool = False
    version: str | None = None
    kinds: frozenset[Kind] = field(default_factory=frozenset)
    shown: tuple[Row, ...] = ()
    shown_driver: str | None = None

    @property
    def listed(self) -> tuple[Row, ...]:
        """The rows, or where there are none the GPUs that another form shows."""
        return self.rows or self.shown

    def first(self, kind: Kind) -> Message | None:
        """Return the first message of a kind."""
        return next((message for message in self.messages if message.kind == kind), None)


@dataclass(frozen=True, slots=True)
class _Said:
    """One call: its rows, its other lines, and what a form beside them shows."""

    rows: tuple[Row, ...] = ()
    messages: tuple[Message, ...] = ()
    shown: tuple[Row, ...] = ()
    driver: str | None = None


def read(part: object) -> Listing:
    """Type the ``smi`` part of the evidence: the retry where there was one, else the query."""
    smi = shape.mapping(part)
    query, retry = shape.mapping(smi.get("query")), shape.mapping(smi.get("retry"))
    last = retry if shape.mapping(retry.get("call")) else query
    call = shape.mapping(last.get("call"))
    fields = shape.texts(last.get("fields"))
    said = _lines(fields, call)
    rows, messages = said.rows, said.messages
    others = shape.mapping(smi.get("others"))
    if others:
        # The query ended at a lost GPU before any row; the others were asked for by their bus ids.
        more = _lines(shape.texts(others.get("fields")), shape.mapping(others.get("call")))
        rows, messages = (*rows, *more.rows), (*messages, *more.messages)
    if last is retry:
        first = _lines(shape.texts(query.get("fields")), shape.mapping(query.get("call")))
        messages = (*first.messages, *messages)
    rc = shape.integer(call.get("rc"), -255, 255)
    error = shape.line(call.get("error"))
    if error:
        messages = (*messages, Message(_of_error(error), f"nvidia-smi: {error}"))
    kinds = {found.kind for found in messages}
    faults = any(found.faults for found in rows)
    ended = None if rc is None else of_exit_code(rc, kinds, rows=bool(rows), faults=faults)
    messages = messages if ended is None else (*messages, ended)
    if not rows and not said.shown and not messages and rc is not None:
        messages = (Message("other", f"nvidia-smi printed nothing and ended with exit code {rc}"),)
    hung = any(_hung(shape.mapping(one.get("call"))) for one in (query, retry, others)) or bool(smi.get("skipped"))
    refused = [found.value for found in messages if found.kind == "invalid-field"]
    dropped = set(shape.texts(query.get("fields"))) - set(fields)
    return Listing(
        rows=rows,
        messages=messages,
        unsupported=shape.unique([*refused, *sorted(dropped)]),
        answered=bool(call),
        hung=hung,
        missing=bool(smi) and not call and not hung and "path" in smi and shape.name(smi["path"]) is None,
        truncated=call.get("truncated") is True,
        version=_version(smi.get("version")),
        kinds=frozenset(found.kind for found in messages),
        shown=() if rows else said.shown,
        shown_driver=None if rows else said.driver,
    )


def _of_error(error: str) -> Kind:
    if "ENOENT" in error or "No such file" in error:
        return "not-found"
    return "no-permission" if "EACCES" in error or "Permission denied" in error else "other"


def _hung(call: Mapping[str, Any]) -> bool:
    # 124 and 137 are what timeout(1) leaves where the shell gathered; a device that is stuck prints nothing.
    silent = not shape.name(call.get("stdout"))
    return (
        call.get("timed_out") is True
        or (silent and call.get("rc") in (124, 137))
        or call.get("error") == "timeout"
    )


def _lines(fields: Sequence[str], call: Mapping[str, Any]) -> _Said:
    rows: dict[object, Row] = {}
    rest: list[str] = []
    messages: list[Message] = []
    for raw in _stream(call, "stdout"):
        line = raw.strip()
        if is_header(fields, line):
            continue
        found = row(fields, line) if len(rows) < MAX_ROWS else None
        if found is None:
            rest.append(raw)
            continue
        if not found.whole:
            messages.append(Message("malformed-row", shape.line(line) or "", found.index, found.bus_id))
        rows.setdefault(_key(found, len(rows)), found)
    forms = smi_forms.read(rest, asked=bool(fields))
    shown = tuple(forms.rows)
    if fields:
        words = [smi_forms.WORDS[form] for form in forms.forms]
        messages += [Message("other", f"nvidia-smi printed its {one}, which was not asked for") for one in words]
    if rows or _cut(call):
        # Rows are all that counts, and what was cut off counts nothing; what either calls lost is lost.
        bad = [one for one in shown if one.faults]
        messages += [Message("bad-device", one.faults[0], one.index, one.bus_id) for one in bad]
        shown = ()
    messages += [message(line.strip()) for line in (*forms.others, *_stream(call, "stderr"))]
    return _Said(tuple(rows.values()), tuple(messages), shown, forms.driver)


def _stream(call: Mapping[str, Any], name: str) -> list[str]:
    """Return the lines of a stream that are not blank, plain."""
    lines = (shape.text(call.get(name), shape.SOURCE_LIMIT) or "").splitlines()[:MAX_LINES]
    return [line for raw in lines if (line := plain(raw)).strip()]


def _cut(call: Mapping[str, Any]) -> bool:
    stdout = call.get("stdout")
    return call.get("truncated") is True or (isinstance(stdout, str) and len(stdout) > shape.SOURCE_LIMIT)


def _key(found: Row, place: int) -> object:
    """Return what tells one GPU from another; rows that were asked for without are each their own."""
    number = None if found.index is None else str(found.index)
    return found.uuid or found.bus_id or number or place


def _version(value: object) -> str | None:
    call = shape.mapping(value)
    said = shape.text(call.get("stdout"), shape.TEXT_LIMIT) or ""
    for label in ("NVIDIA-SMI", "NVML"):
        match = re.search(rf"(?im)^\s*{label} version\s*:\s*(\d{{2,4}}(?:\.\d{{1,4}}){{1,3}})\s*$", said)
        if match:
            return match.group(1)
    return None
