"""Finds the agent's parts in whatever a host answered: untrusted input, taken in linear time and bounded memory.

A frame is ``MARKER name length check``, a line feed, ``length`` bytes of ASCII JSON, a line feed. ``check`` is
the CRC-32 (zlib) of name and payload in hex, or ``cksum:`` and POSIX's CRC in decimal where a shell gathered.
"""

from __future__ import annotations

import json
import re
import zlib
from functools import cache
from typing import Any

from fleetcheck.errors import FleetcheckError

NAME = re.compile(
    r"agent|system|driver|pci|toolkits|kernel|processes|caches|scan|expected|venvs|(?:venv|deep)/\d{1,3}|smi|end"
)
HEADER = re.compile(rb" ([a-z]{1,16}(?:/\d{1,3})?) (\d{1,9}) ([0-9a-f]{8}|cksum:\d{1,10})\n")
HEADER_BYTES = 64
DEEPEST = 24
MOST_CONTAINERS = 100_000
MOST_VALUES = 400_000
MOST_NOTES = 50
MOST_NOISE = 2048
CKSUM_BYTES = 1 << 18
SURROGATE = re.compile("[\ud800-\udfff]")


class TooLarge(FleetcheckError):  # noqa: N818  the name says what happened, as the outcomes do
    """The host answered more than ``max_bytes``."""


class Collector:
    """Takes bytes as they come and keeps every part that arrived whole; the first one of a name wins.

    ``parts`` maps names to JSON objects, ``notes`` tells what was dropped and why, ``noise`` is the first 2 KB
    outside frames, ``ended`` whether the last part came. A byte is looked at a bounded number of times, and at
    most ``max_bytes`` are held.
    """

    def __init__(self, marker: str, max_bytes: int) -> None:
        self.parts: dict[str, Any] = {}
        self.notes: list[str] = []
        self._marker = marker.encode("ascii")
        self._max = max_bytes
        self._total = 0
        self._buffer = bytearray()
        self._searched = 0
        self._header: tuple[str, int, str, int] | None = None
        self._noise = bytearray()

    @property
    def ended(self) -> bool:
        """Whether the part ``end`` arrived whole."""
        return "end" in self.parts

    @property
    def noise(self) -> str:
        """The first 2 KB outside frames, for diagnosis."""
        pending = b"" if self._header else bytes(self._buffer[: MOST_NOISE - len(self._noise)])
        return (bytes(self._noise) + pending).decode("utf-8", "replace").strip()

    def feed(self, data: bytes) -> None:
        """Take more bytes. Raises :class:`TooLarge` beyond ``max_bytes``; what came before stays."""
        room = max(0, self._max - self._total)
        self._total += len(data)
        self._buffer += data[:room]
        while self._step():
            pass
        if len(data) > room:
            raise TooLarge(f"the host answered more than {self._max} bytes")

    def _step(self) -> bool:
        if self._header is None:
            return self._find_header()
        name, length, check, start = self._header
        stop = start + length
        # A payload never holds the marker: where one stands in it, the frame was cut and the next one begins.
        begin = max(start, self._searched - len(self._marker) + 1)
        again = self._buffer.find(self._marker, begin, stop + 1)
        self._searched = min(len(self._buffer), stop + 1)
        if again >= 0:
            self._note(f"{name}: cut after {again - start} of {length} bytes")
            self._drop(again, noise=False)
            return True
        if len(self._buffer) <= stop:
            return False
        whole = self._accept(name, bytes(self._buffer[start:stop]), check, self._buffer[stop : stop + 1] == b"\n")
        # The end of a damaged payload may be the beginning of the next marker.
        self._drop(stop if whole else max(start, stop - len(self._marker) + 1), noise=False)
        return True

    def _find_header(self) -> bool:
        at = self._buffer.find(self._marker, max(0, self._searched - len(self._marker) + 1))
        if at < 0:
            self._searched = len(self._buffer)
            keep = len(self._marker) - 1
            if len(self._buffer) > 65536:
                self._drop(len(self._buffer) - keep, noise=True)
                self._searched = len(self._buffer)
            return False
        if at:
            self._drop(at, noise=True)
        begin = len(self._marker)
        head = bytes(self._buffer[begin : begin + HEADER_BYTES])
        match = HEADER.match(head)
        if match is None:
            if len(head) < HEADER_BYTES and b"\n" not in head:
                self._searched = 0
                return False
            self._note("a marker without a header")
            self._drop(begin, noise=False)
            return True
        name, length, check = (group.decode() for group in match.groups())
        if int(length) > self._max:
            self._note(f"{name}: says it has {length} bytes")
            self._drop(begin + match.end(), noise=False)
            return True
        self._header = (name, int(length), check, begin + match.end())
        self._searched = begin + match.end()
        return True

    def _drop(self, count: int, *, noise: bool) -> None:
        if noise and len(self._noise) < MOST_NOISE:
            self._noise += self._buffer[: min(count, MOST_NOISE - len(self._noise))]
        del self._buffer[:count]
        self._searched = 0
        self._header = None

    def _note(self, line: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(line)

    def _accept(self, name: str, payload: bytes, check: str, closed: bool) -> bool:
        if not NAME.fullmatch(name):
            self._note(f"{name}: not a part that is known")
        elif name in self.parts:
            self._note(f"{name}: came again")
        elif not closed or not _checks(name, payload, check):
            self._note(f"{name}: damaged")
        else:
            try:
                self.parts[name] = _numbered(name, parse(payload))
            except (ValueError, RecursionError, MemoryError) as error:
                self._note(f"{name}: {str(error)[:200] or type(error).__name__}")
            return True
        return False


def _checks(name: str, payload: bytes, check: str) -> bool:
    if check.startswith("cksum:"):
        return len(payload) <= CKSUM_BYTES and posix_cksum(payload) == int(check[6:])
    # Over the name too: bytes lost between two headers would give one part the payload of another.
    return zlib.crc32(payload, zlib.crc32(name.encode())) == int(check, 16)


def _numbered(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the value where it is what its name says: the check is the payload's, and one digit is soon lost."""
    _, _, number = name.partition("/")
    if number and value.get("index", int(number)) != int(number):
        raise ValueError("the part of another environment")
    return value


def parse(payload: bytes) -> dict[str, Any]:
    """Return a payload's JSON object. ValueError for all else: NaN, infinity, depth, bytes beyond ASCII.

    Halves of surrogate pairs become U+FFFD, so that every text can be written as UTF-8.
    """
    containers = payload.count(b"[") + payload.count(b"{")
    if containers > MOST_CONTAINERS or payload.count(b",") > MOST_VALUES:
        raise ValueError("too many values")
    value = _DECODER.decode(payload.decode("ascii"))
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004  one error for all that is not a part
    surrogates = rb"\u" in payload and re.search(rb"\\u[dD][89a-fA-F]", payload) is not None
    if containers <= DEEPEST and not surrogates:
        return value  # so few cannot nest too deeply
    level: list[Any] = [value]
    for _ in range(DEEPEST + 1):
        if surrogates:
            for container in level:
                _mend(container)
        inner = (container.values() if type(container) is dict else container for container in level)
        level = [item for items in inner for item in items if type(item) is dict or type(item) is list]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError("a number without bounds")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def _mend(container: dict[str, Any] | list[Any]) -> None:
    if isinstance(container, list):
        for position, item in enumerate(container):
            if isinstance(item, str):
                container[position] = SURROGATE.sub("\ufffd", item)
        return
    for key, item in list(container.items()):
        mended = SURROGATE.sub("\ufffd", key)
        if mended != key:
            del container[key]
        container[mended] = SURROGATE.sub("\ufffd", item) if isinstance(item, str) else item


def posix_cksum(data: bytes) -> int:
    """Return the CRC of POSIX cksum, which every shell has at hand."""
    table = _cksum_table()
    value = 0
    for byte in data:
        value = (value << 8 & 0xFFFFFFFF) ^ table[value >> 24 ^ byte]
    length = len(data)
    while length:
        value = (value << 8 & 0xFFFFFFFF) ^ table[value >> 24 ^ length & 0xFF]
        length >>= 8
    return value ^ 0xFFFFFFFF


@cache
def _cksum_table() -> tuple[int, ...]:
    table = []
    for index in range(256):
        value = index << 24
        for _ in range(8):
            value = (value << 1 ^ 0x04C11DB7) & 0xFFFFFFFF if value & 0x80000000 else value << 1
        table.append(value)
    return tuple(table)
