"""The evidence file: what came back from every host, raw, so that tomorrow's rules can judge it again.

JSON lines, gzip-compressed where the name ends in ``.gz``; the shapes stand in ``docs/evidence.md``.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, cast

from pydantic import TypeAdapter, ValidationError

from fleetcheck.agent.evidence import Evidence
from fleetcheck.errors import InputError, OutputError, Problem
from fleetcheck.inventory.model import Target
from fleetcheck.judge import End, Policy, policy_json
from fleetcheck.run import RunInfo

SCHEMA = "fleetcheck/evidence/1"
MAX_LINE = 64 << 20
_evidence: TypeAdapter[Evidence] = TypeAdapter(Evidence)
_targets: TypeAdapter[tuple[Target, ...]] = TypeAdapter(tuple[Target, ...])


class Writer:
    """Writes a recording beside ``path`` and moves it there when it is closed: a file whole, or none."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        self._stream: IO[bytes] | None = None

    def begin(self, info: RunInfo, policy: Policy, targets: Sequence[Target]) -> None:
        """Open the draft and write the first line. Raises OutputError where the folder cannot be written."""
        try:
            raw = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from None
        stream = os.fdopen(raw, "wb")
        self._stream = stream
        if self.path.suffix == ".gz":
            self._stream = cast(IO[bytes], _Gzip(stream))
        self._line(
            {
                "type": "evidence",
                "schema": SCHEMA,
                "run": info.model_dump(mode="json", include={"id", "started", "version", "inventory"}),
                "policy": policy_json.dump_python(policy, mode="json"),
                "targets": [target.model_dump(mode="json", exclude_defaults=True) for target in targets],
            }
        )

    def host(self, look: Evidence) -> None:
        """Write the evidence of one host."""
        self._line({"type": "host", "evidence": {item.name: getattr(look, item.name) for item in fields(look)}})

    def end(self, finished: str, *, complete: bool) -> None:
        """Write the last line and put the file in its place."""
        self._line({"type": "end", "finished": finished, "complete": complete})
        try:
            self._open().close()
            self._draft.replace(self.path)
        except OSError as error:
            self.abandon()
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from None
        self._stream = None

    def abandon(self) -> None:
        """Remove the draft; ``path`` stays as it was. Harmless after :meth:`end`."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            with contextlib.suppress(OSError):  # a full disk again: the draft goes anyway
                stream.close()
            self._draft.unlink(missing_ok=True)

    def _open(self) -> IO[bytes]:
        if self._stream is None:
            raise RuntimeError("begin() comes first, and nothing after end()")
        return self._stream

    def _line(self, value: dict[str, Any]) -> None:
        try:
            self._open().write(json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n")
        except OSError as error:
            self.abandon()
            raise OutputError(f"{self.path}: cannot be written: {error.strerror}") from None


class _Gzip(gzip.GzipFile):
    """A gzip stream without name and time, so that equal evidence gives equal bytes; closes what it writes to."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(filename="", mode="wb", fileobj=stream, mtime=0)
        self._under = stream

    def close(self) -> None:
        super().close()
        self._under.close()


@dataclass(slots=True)
class Recording:
    """A recording that was opened. ``end`` is filled when :meth:`looks` has been read to its end."""

    path: str
    info: RunInfo
    policy: Policy
    targets: tuple[Target, ...]
    lines: Iterator[tuple[int, dict[str, Any]]]
    end: End = field(default_factory=lambda: End(complete=False))

    def looks(self) -> Iterator[tuple[Target, Evidence]]:
        """Yield every host's evidence, in the order in which the looks ended. Raises InputError on a bad line."""
        targets = {target.name: target for target in self.targets}
        for number, line in self.lines:
            try:
                if line.get("type") == "end":
                    self.end.finished, self.end.complete = str(line["finished"]), line["complete"] is True
                    return
                look = _evidence.validate_python(line["evidence"])
                if look.host not in targets:
                    raise _bad(self.path, number, f"evidence of {look.host!r}, which is none of its targets")
                target = targets[look.host]
            except (KeyError, ValidationError) as error:
                raise _bad(self.path, number, f"not a line of a recording ({_brief(error)})") from None
            yield target, look


def read(path: str | Path) -> Recording:
    """Open a recording. Raises InputError where it is not one."""
    lines = _lines(str(path))
    first = next(lines, None)
    if first is None or first[1].get("schema") != SCHEMA:
        raise _bad(str(path), 1, f"not a recording of evidence (its first line holds no schema {SCHEMA})")
    head = first[1]
    try:
        info = RunInfo(**head["run"], finished=None, complete=False)
        datetime.fromisoformat(info.started)  # maintenance and waivers end by it
        policy = policy_json.validate_python(head["policy"])
        targets = _targets.validate_python(head["targets"])
    except (KeyError, TypeError, ValueError) as error:
        raise _bad(str(path), 1, f"a damaged first line ({_brief(error)})") from None
    return Recording(str(path), info, policy, targets, lines)


def _lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with Path(path).open("rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            stream: gzip.GzipFile | BufferedReader = gzip.GzipFile(fileobj=raw) if packed else raw
            # An answer is bounded on the way here; a longer line is no recording, and would fill the memory.
            for number, text in enumerate(iter(lambda: stream.readline(MAX_LINE), b""), 1):
                if len(text) == MAX_LINE:
                    raise _bad(path, number, f"a line of more than {MAX_LINE >> 20} MiB")
                yield number, _object(path, number, text)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise _bad(path, None, "the compressed file is cut or damaged") from None
    except OSError as error:
        raise _bad(path, None, f"cannot be read: {error.strerror or error}") from None


def _object(path: str, number: int, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _bad(path, number, "not a line of JSON that holds an object; is the file cut?")
    return value


def _bad(path: str, line: int | None, message: str) -> InputError:
    return InputError([Problem(path, line, message)])


def _brief(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(error).__name__}: {error}"
