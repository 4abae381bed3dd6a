"""The collector against everything a host may answer: noise, cuts, forgeries, sizes, and JSON made to hurt."""

from __future__ import annotations

import itertools
import json
import subprocess
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetcheck.agent.frame import Collector, TooLarge, parse, posix_cksum

MARKER = "fleetcheck:0123456789abcdef0123456789abcdef"
NAMES = ["agent", "system", "driver", "pci", "toolkits", "venvs", "venv/0", "venv/17", "smi", "end"]


def numbered(name: str, value: Any) -> Any:
    """Return the value as the agent sends it: that of an environment holds its number."""
    return {**value, "index": int(name[5:])} if name.startswith("venv/") else value


def frame(name: str, value: Any, *, marker: str = MARKER) -> bytes:
    payload = value if isinstance(value, bytes) else json.dumps(numbered(name, value)).encode()
    check = zlib.crc32(payload, zlib.crc32(name.encode()))
    return f"\n{marker} {name} {len(payload)} {check:08x}\n".encode() + payload + b"\n"


def collect(data: bytes, cuts: list[int] | None = None, max_bytes: int = 1 << 20) -> Collector:
    collector = Collector(MARKER, max_bytes)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
    for begin, stop in itertools.pairwise(places):
        collector.feed(data[begin:stop])
    return collector


values = st.dictionaries(
    st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(max_size=20), max_size=4
)
parts = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=8)
noise = st.binary(max_size=80) | st.sampled_from(
    [
        b"",
        b"\n",
        MARKER.encode(),
        MARKER[:20].encode(),
        f"{MARKER} smi 5\n".encode(),
        f"{MARKER} end 9 00000000\n".encode(),
    ]
)
cuts = st.lists(st.integers(min_value=0, max_value=1 << 20), max_size=12)


def first_of_each(sent: list[tuple[str, Any]]) -> dict[str, Any]:
    expected: dict[str, Any] = {}
    for name, value in sent:
        expected.setdefault(name, numbered(name, value))
    return expected


@settings(max_examples=4000, deadline=None)
@given(sent=parts, between=st.lists(st.binary(max_size=80), min_size=9, max_size=9), cut=cuts)
def test_noise_anywhere_outside_frames_loses_nothing(sent: Any, between: list[bytes], cut: list[int]) -> None:
    data = between[-1] + b"".join(
        frame(name, value) + extra for (name, value), extra in zip(sent, between, strict=False)
    )
    collector = collect(data, cut)
    assert collector.parts == first_of_each(sent)
    assert collector.ended == ("end" in collector.parts)


@settings(max_examples=2500, deadline=None)
@given(sent=parts, between=st.lists(noise, min_size=9, max_size=9), cut=cuts)
def test_forged_markers_between_frames_lose_nothing_and_add_nothing(
    sent: Any, between: list[bytes], cut: list[int]
) -> None:
    data = (
        between[-1]
        + b"\n"
        + b"".join(frame(name, value) + extra + b"\n" for (name, value), extra in zip(sent, between, strict=False))
    )
    assert collect(data, cut).parts == first_of_each(sent)


@settings(max_examples=2500, deadline=None)
@example(sent=[("venv/17", {})], at=50, length=1, cut=[])  # makes it venv/7
@given(sent=parts, at=st.integers(min_value=0), length=st.integers(min_value=1, max_value=400), cut=cuts)
def test_a_hole_costs_only_the_frames_that_it_touches(sent: Any, at: int, length: int, cut: list[int]) -> None:
    frames = [frame(name, value) for name, value in sent]
    data = b"".join(frames)
    at %= len(data) + 1
    whole = []
    place = 0
    for (name, value), one in zip(sent, frames, strict=True):
        if place + len(one) <= at or place >= at + length:
            whole.append((name, value))
        place += len(one)
    got = collect(data[:at] + data[at + length :], cut).parts
    for name, value in got.items():
        assert value in [numbered(name, other) for other_name, other in sent if other_name == name]
    assert {name for name, _ in whole} <= set(got)


@settings(max_examples=1500, deadline=None)
@given(data=st.lists(noise, max_size=30), cut=cuts)
def test_any_bytes_at_all_are_survived(data: list[bytes], cut: list[int]) -> None:
    collector = collect(b"".join(data), cut)
    assert collector.parts == {}
    assert len(collector.noise) <= 2048


@pytest.mark.parametrize(
    "payload",
    [
        b"[]", b"1", b"null", b'"x"', b"", b"{", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\xc3\xa9"}', b"{}x", b'{"a": ' + b"[" * 200000, b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"a": ' + b'{"a": ' * 500 + b"1" + b"}" * 501, b'{"a": ' + b"9" * 10000 + b"}",
        b'{"a": [' + b"[]," * 150000 + b"[]]}",
    ],
    ids=range(17),
)  # fmt: skip
def test_json_that_is_not_a_part_becomes_a_note(payload: bytes) -> None:
    collector = collect(frame("smi", payload) + frame("end", {"reason": "done"}))
    assert set(collector.parts) == {"end"}
    assert len(collector.notes) == 1
    assert len(collector.notes[0]) < 300


def test_halves_of_surrogate_pairs_are_mended() -> None:
    value = parse(b'{"a\\udc00": ["x\\ud800", {"k": "\\uDFFF"}], "ok": "\\ud83d\\ude00"}')
    assert value == {"a\ufffd": ["x\ufffd", {"k": "\ufffd"}], "ok": "\U0001f600"}
    json.dumps(value, ensure_ascii=False).encode()


def test_unknown_repeated_and_wrong_frames_are_notes() -> None:
    other = frame("smi", {"forged": 1}, marker="fleetcheck:" + "f" * 32)
    wrong = frame("pci", {"a": 1}).replace(b'{"a": 1}', b'{"a": 2}')
    data = (
        frame("smi", {"a": 1})
        + frame("smi", {"a": 2})
        + frame("rules", {})
        + frame("venv/1234", {})
        + other
        + wrong
    )
    collector = collect(data)
    assert collector.parts == {"smi": {"a": 1}}
    assert len(collector.notes) == 4
    assert "forged" in collector.noise


def test_more_than_the_bound_is_an_error_and_keeps_what_came() -> None:
    collector = Collector(MARKER, 5000)
    collector.feed(frame("system", {"a": 1}))
    with pytest.raises(TooLarge, match="5000 bytes"):
        collector.feed(b"x" * 100000)
    with pytest.raises(TooLarge):
        collector.feed(b"x")
    assert collector.parts == {"system": {"a": 1}}


def test_a_frame_that_claims_more_than_there_can_be_does_not_swallow_the_next() -> None:
    data = (
        f"\n{MARKER} smi 900000 00000000\n".encode()
        + frame("end", {})
        + f"{MARKER} pci 999999999 00000000\n".encode()
    )
    collector = collect(data + frame("driver", {}))
    assert set(collector.parts) == {"end", "driver"}


def test_the_frames_of_a_shell_are_checked_by_cksum() -> None:
    for payload in (b'{"a": 1}', b"{}", b'{"x": "' + b"y" * 70000 + b'"}'):
        told = subprocess.run(["cksum"], input=payload, capture_output=True, check=True).stdout.split()
        assert posix_cksum(payload) == int(told[0])
        head = f"\n{MARKER} smi {len(payload)} cksum:{int(told[0])}\n".encode()
        assert collect(head + payload + b"\n").parts == {"smi": json.loads(payload)}
        assert collect(head + payload.replace(b"{", b"[") + b"\n").parts == {}


def hostile(kind: str, size: int) -> bytes:
    head = f"{MARKER} smi {size - 100} 00000000\n".encode()
    unit = {
        "headers": head, "markers": MARKER.encode(), "halves": MARKER[:-1].encode(), "frames": frame("smi", {}),
        "text": b"x" * 100, "nested": head * 3 + b"y" * 50,
    }[kind]  # fmt: skip
    return unit * (size // len(unit))


class Counted(bytearray):
    """A buffer that counts the bytes that are searched and the bytes that are copied out of it."""

    work = 0

    def find(self, *arguments: Any) -> int:
        wanted, start, end = (*arguments, len(self))[:3]
        at = super().find(wanted, start, end)
        self.work += max(0, (min(end, len(self)) if at < 0 else at + len(wanted)) - start)
        return at

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.work += len(found) if isinstance(found, bytearray) else 1
        return found


@pytest.mark.parametrize("chunk", [999, 32768])
@pytest.mark.parametrize("kind", ["headers", "markers", "halves", "frames", "text", "nested"])
def test_work_grows_with_the_size_alone(kind: str, chunk: int) -> None:
    """Each byte is searched and copied a few times at most, however often the rest is looked at."""
    size = 1 << 19
    data = hostile(kind, size)
    collector = Collector(MARKER, size)
    buffer = Counted()
    collector._buffer = buffer
    for at in range(0, len(data), chunk):
        collector.feed(data[at : at + chunk])
    assert size // 2 < buffer.work < 8 * size


def test_memory_is_bounded_by_what_may_come() -> None:
    tracemalloc.start()
    try:
        collector = Collector(MARKER, 1 << 20)
        for _ in range(64):
            try:
                collector.feed(b"noise" * 200000)
            except TooLarge:
                continue
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
