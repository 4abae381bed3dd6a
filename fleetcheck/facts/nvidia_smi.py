"""What ``nvidia-smi --query-gpu=… --format=csv,noheader,nounits`` printed, typed.

A line is a row by its shape; every other line of stdout and stderr is a message to be classified. Errors stand
before, between and after the rows, on either stream (NordicHPC/sonar#72, utkuozdemir/nvidia_gpu_exporter#65).
The exit code is evidence, not a verdict: rows are valid with rc 14, and a GPU can be lost with rc 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fleetcheck.facts import shape

Kind = Literal[
    "driver-mismatch", "nvml-version", "driver-unloaded", "no-devices", "no-permission", "bad-device", "inforom",
    "library-missing", "nvml-error", "invalid-field", "not-found", "mixed-binaries", "malformed-row", "other",
]  # fmt: skip
CellState = Literal["value", "na", "fault", "permission"]
MAX_LINES = 2000
MAX_ROWS = 256

_UUID = re.compile(r"(?:GPU-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_BUS_ID = re.compile(
    r"(?<![0-9a-f])(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])(?![0-9a-f])", re.IGNORECASE
)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_UNIT = re.compile(r"\s*(?:MiB|MHz|W|%)$")
_NOT_APPLICABLE = {"", "n/a", "not supported", "not available", "requested functionality has been deprecated"}
_LOST = re.compile(r"GPU is (?:lost|inaccessible)", re.IGNORECASE)
_FAULTS = {"unknown error", "gpu requires reset", "gpu is lost", "gpu is inaccessible", "err!"}

# In this order: the text of a bad device ends in words that other messages hold too (NordicHPC/sonar#87).
_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("invalid-field", r'Field "([^"]{1,80})" is not a valid field to query'),
    ("inforom", r"infoROM is corrupted"),
    (
        "bad-device",
        r"Unable to determine the device handle for|GPU is lost|GPU requires reset|GPU is inaccessible",
    ),
    ("driver-mismatch", r"Driver/library version mismatch"),
    ("nvml-version", r"NVML library version:\s*(\d[\d.]*)"),
    ("mixed-binaries", r"Mismatch in versions between nvidia-smi and NVML"),
    ("driver-unloaded", r"communicate with the NVIDIA driver|NVML: Driver Not Loaded"),
    ("no-devices", r"^No devices were found"),
    ("library-missing", r"find libnvidia-ml\.so|NVML: NVML Shared Library Not Found"),
    (
        "no-permission",
        r"NVML: Insufficient Permissions|^Insufficient Permissions|nvidia-smi: Permission denied",
    ),
    ("nvml-error", r"Failed to (?:initialize|properly shut down) NVML|access blocked by the operating system"),
    ("not-found", r"nvidia-smi: (?:command )?not found|nvidia-smi: No such file"),
)
_MESSAGES = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS)
# Raw NVML codes leak as exit codes (anderskm/gputil#55); they speak only where no text did.
_BY_RC: Mapping[int, Kind] = {
    4: "no-permission", 6: "no-devices", 9: "driver-unloaded", 12: "library-missing", 15: "bad-device",
    17: "nvml-error", 18: "driver-mismatch", 126: "no-permission", 127: "not-found",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One value: ``text`` where ``state`` is ``value``; ``said`` is what was printed."""

    state: CellState
    said: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU as listed. ``bus_id`` is normalised. ``whole`` is False where the columns do not fit the fields."""

    index: int
    uuid: str | None
    bus_id: str | None
    cells: Mapping[str, Cell]
    whole: bool = True

    @property
    def faults(self) -> tuple[str, ...]:
        """What the row says of a fault, each once: ``memory.total: [GPU is lost]``."""
        bad = [(name, cell.said) for name, cell in self.cells.items() if cell.state == "fault"]
        return shape.unique(f"{name}: {said}" for name, said in bad)

    @property
    def lost(self) -> bool:
        """Whether the row is of a GPU that is off the bus; one that needs a reset is still there."""
        return any(_LOST.search(cell.said) for cell in self.cells.values() if cell.state == "fault")

    def value(self, name: str) -> str | None:
        """Return the text of a field, or None where it has no value."""
        cell = self.cells.get(name)
        return cell.text if cell else None


@dataclass(frozen=True, slots=True)
class Message:
    """One line that is not a row. ``index`` and ``bus_id`` name the device that it speaks of."""

    kind: Kind
    line: str
    index: int | None = None
    bus_id: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """All that one call said. ``answered`` is False where no call was made or none of it came back."""

    rows: tuple[Row, ...] = ()
    messages: tuple[Message, ...] = ()
    unsupported: tuple[str, ...] = ()
    answered: bool = False
    hung: bool = False
    missing: bool = False
    truncated: bool = False
    version: str | None = None
    kinds: frozenset[Kind] = field(default_factory=frozenset)

    def first(self, kind: Kind) -> Message | None:
        """Return the first message of a kind."""
        return next((message for message in self.messages if message.kind == kind), None)


def plain(line: str) -> str:
    """Return a line without colour codes and without what a terminal puts at its end."""
    return _ESCAPE.sub("", line).rstrip()


def bus_id(text: str | None) -> str | None:
    """Return ``00000000:05:00.0`` for any spelling of a PCI address (lspci, sysfs, nvidia-smi), or None."""
    match = _BUS_ID.fullmatch(text.strip()) if text else None
    return _normal(match) if match else None


def _normal(match: re.Match[str]) -> str:
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):08X}:{bus.upper()}:{device.upper()}.{function}"


def cell(said: str) -> Cell:
    """Type one value. Missing-value tokens come with and without brackets, in one row (driver 590)."""
    bare = said.strip()
    word = bare.strip("[]").strip().lower()
    if word in _NOT_APPLICABLE:
        return Cell("na", bare)
    if word in _FAULTS or word.startswith("gpu is lost"):
        return Cell("fault", bare)
    if word == "insufficient permissions":
        return Cell("permission", bare)
    return Cell("value", bare, _UNIT.sub("", bare))


def row(fields: Sequence[str], line: str) -> Row | None:
    """Return the row that a line is by its shape, or None.

    A line whose columns do not fit is still a GPU where index, uuid and bus id all stand in their places: the
    CSV has no quoting, so that a comma in a name makes one column more (nvidia_gpu_exporter#477).
    """
    values = [value.strip() for value in line.split(",")]
    if "index" not in fields or not line.isprintable():
        return None
    whole = len(values) == len(fields)
    found = dict(zip(fields, values, strict=False))
    if not re.fullmatch(r"\d{1,4}", found.get("index", "")):
        return None
    uuid = found.get("uuid", found.get("gpu_uuid", ""))
    uuid = uuid if _UUID.fullmatch(uuid) else ""
    address = bus_id(found.get("pci.bus_id", found.get("gpu_bus_id")))
    identifies = {"uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id"} & set(fields)
    if whole and (uuid or address or not identifies):
        return Row(int(found["index"]), uuid or None, address, {name: cell(text) for name, text in found.items()})
    if not whole and uuid and address:
        return Row(int(found["index"]), uuid, address, {}, whole=False)
    return None


def message(line: str) -> Message:
    """Classify one line that is not a row."""
    kind: Kind = "other"
    value = None
    for candidate, pattern in _MESSAGES:
        match = pattern.search(line)
        if match:
            kind, value = candidate, match.group(1) if pattern.groups else None
            break
    address = _BUS_ID.search(re.sub(r"(?i)\bgpu(?=[0-9a-f]{4,8}:)", "gpu ", line))
    rest = line if address is None else line.replace(address.group(0), " ", 1)
    index = re.search(r"(?i)\bgpu\s?(\d{1,3})\b", rest)
    return Message(
        kind,
        shape.line(line) or "",
        int(index.group(1)) if index and kind == "bad-device" else None,
        _normal(address) if address else None,
        value,
    )


def read(part: object) -> Listing:
    """Type the ``smi`` part of the evidence: the retry where there was one, else the query."""
    smi = shape.mapping(part)
    query, retry = shape.mapping(smi.get("query")), shape.mapping(smi.get("retry"))
    last = retry if shape.mapping(retry.get("call")) else query
    call = shape.mapping(last.get("call"))
    fields = shape.texts(last.get("fields"))
    rows, messages = _lines(fields, call)
    others = shape.mapping(smi.get("others"))
    if others:
        # The query ended at a lost GPU before any row; the others were asked for by their bus ids.
        more = _lines(shape.texts(others.get("fields")), shape.mapping(others.get("call")))
        rows, messages = (*rows, *more[0]), (*messages, *more[1])
    if last is retry:
        messages = (*_lines(shape.texts(query.get("fields")), shape.mapping(query.get("call")))[1], *messages)
    rc = shape.integer(call.get("rc"), -255, 255)
    error = shape.line(call.get("error"))
    if error:
        messages = (*messages, Message(_of_error(error), f"nvidia-smi: {error}"))
    known = {found.kind for found in messages} - {"other"}
    if not rows and rc is not None and rc in _BY_RC and not known - {"invalid-field", "inforom", "mixed-binaries"}:
        messages = (*messages, Message(_BY_RC[rc], f"nvidia-smi ended with exit code {rc}"))
    if not rows and not messages and rc is not None:
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


def _lines(fields: Sequence[str], call: Mapping[str, Any]) -> tuple[tuple[Row, ...], tuple[Message, ...]]:
    rows: dict[str, Row] = {}
    messages: list[Message] = []
    for stream in ("stdout", "stderr"):
        lines = (shape.text(call.get(stream), shape.SOURCE_LIMIT) or "").splitlines()[:MAX_LINES]
        for raw in lines:
            line = plain(raw).strip()
            if not line or _is_header(fields, line):
                continue
            found = row(fields, line) if stream == "stdout" and len(rows) < MAX_ROWS else None
            if found is None:
                messages.append(message(line))
                continue
            if not found.whole:
                messages.append(Message("malformed-row", shape.line(line) or "", found.index, found.bus_id))
            rows.setdefault(found.uuid or found.bus_id or str(found.index), found)
    return tuple(rows.values()), tuple(messages)


def _is_header(fields: Sequence[str], line: str) -> bool:
    names = [re.sub(r" \[[^]]*\]$", "", value.strip()) for value in line.split(",")]
    return len(names) > 1 and names[0] == "index" and len(names) == len(fields)


def _version(value: object) -> str | None:
    call = shape.mapping(value)
    said = shape.text(call.get("stdout"), shape.TEXT_LIMIT) or ""
    for label in ("NVIDIA-SMI", "NVML"):
        match = re.search(rf"(?im)^\s*{label} version\s*:\s*(\d{{2,4}}(?:\.\d{{1,4}}){{1,3}})\s*$", said)
        if match:
            return match.group(1)
    return None
