"""Text of a host on a terminal: nothing acts, the room is kept, names fold and unfold."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import unfolded

from fleetcheck.inventory.nodes import expand
from fleetcheck.report.nodes import fold, wrap
from fleetcheck.report.text import cells, clean, paint, tail, value, words

HOSTILE = [
    ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
    ("a\nb\rc\td", "a\\nb\\rc\\td"),
    ("\x00\x7f\x85\x9b", "\\x00\\x7f\\x85\\x9b"),
    ("safe\u202egnp.exe", "safe\\u202egnp.exe"),
    ("\u2066\u2069\u200b\u200d\ufeff\u2028", "\\u2066\\u2069\\u200b\\u200d\\ufeff\\u2028"),
    ("\udcff", "\\udcff"),
    ("\U000e0041", "\\U000e0041"),
    ("e" + "\u0301" * 50, "e\u0301\u0301"),
    ("/opt/模型 é", "/opt/模型 é"),
]


@pytest.mark.parametrize(("raw", "shown"), HOSTILE)
def test_what_acts_is_escaped_and_what_is_text_stays(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@given(st.text(st.characters(), max_size=200), st.integers(0, 100))
def test_clean_text_is_printable_and_bounded(raw: str, limit: int) -> None:
    shown = clean(raw, limit)
    assert shown.isprintable()
    assert len(shown) <= 10 * limit + 1
    assert clean(shown, len(shown)) == shown


def test_a_long_text_is_cut_and_says_so() -> None:
    assert clean("x" * 1_000_000, 10) == "x" * 10 + "…"


@given(st.text("/ab模é.", max_size=40), st.integers(1, 30))
def test_a_tail_takes_its_room_and_is_the_end(path: str, room: int) -> None:
    short = tail(path, room)
    assert cells(short) <= room
    assert short == path or (short.startswith("…") and path.endswith(short[1:]))


@pytest.mark.parametrize(
    ("path", "room", "shown"),
    [
        ("/root/ml-env", 12, "/root/ml-env"),
        ("/root/ml-env", 11, "…/ml-env"),
        ("/root/ml-env", 8, "…/ml-env"),
        ("/root/ml-env", 5, "…-env"),
        ("/模型/环境", 6, "…/环境"),
        ("/a/b/", 4, "…/b/"),
    ],
)
def test_paths_keep_their_tail(path: str, room: int, shown: str) -> None:
    assert tail(path, room) == shown


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        (None, "nothing"), ("", ""), ([9, 10], "9, 10"), ((), "none"), (True, "true"), ({"a": [1]}, '{"a": [1]}'),
        (["\x1b", "b"], "\\x1b, b"), ([1.5], "[1.5]"),
    ],
)  # fmt: skip
def test_values_are_shown_for_a_person(thing: object, shown: str) -> None:
    assert value(thing) == shown


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        ({"gate": [9, 10, 12], "guards": 13}, "gate: 9, 10, 12; guards: 13"), ({"a": None}, "a: nothing"),
        ({"a": {"b": 1}}, '{"a": {"b": 1}}'), ({}, "{}"), ("x", "x"), ({"a\x1b": "b\n"}, "a\\x1b: b\\n"),
        (dict.fromkeys(map(str, range(900)), "y"), "0: y; "),
    ],
)  # fmt: skip
def test_flat_mappings_are_shown_in_words(thing: object, shown: str) -> None:
    assert words(thing).startswith(shown)
    assert len(words(thing)) <= 301


def test_colour_is_a_choice() -> None:
    assert paint("x", "error", False) == "x"
    assert re.fullmatch(r"\x1b\[31mx\x1b\[0m", paint("x", "error", True))


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["gpu01"], "gpu01"),
        (["gpu01.lab", "gpu02.lab", "gpu12.lab"], "gpu[01-02,12].lab"),
        (["b", "gpu2", "a", "gpu1", "b"], "b,gpu[1-2],a"),
        (["r1-n1", "r1-n2", "r2-n1", "r2-n2"], "r[1-2]-n[1-2]"),
        (["r1-n1", "r1-n2", "r2-n1", "r3-n2", "r3-n1"], "r[1-3]-n1,r[1,3]-n2"),
        (["a1-b1-c1", "a1-b2-c1", "a2-b1-c1", "a2-b2-c1", "a3-b1-c2"], "a[1-2]-b[1-2]-c1,a3-b1-c2"),
        (["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.2"], "10.0.[0-1].[1-2]"),
        (["r1-n1", "r2-n1", "r3-n1"], "r[1-3]-n1"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["a\x1b1", "a\x1b2"], "a\\x1b[1-2]"),
        (["n" + "9" * 5000, "n1"], "n" + "9" * 399 + "…,n1"),
    ],
)
def test_names_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@given(st.lists(st.from_regex(r"\A(r|s)[0-2]-n0?[0-3]\.[1-2]\Z"), max_size=60))
def test_racks_unfold_to_the_same_hosts(names: list[str]) -> None:
    pieces = expand(fold(names)) if names else []
    assert sorted(pieces) == sorted(set(names))


@given(st.lists(st.from_regex(r"\A[a-z]{1,3}[0-9]{1,4}(-n[0-9]{1,3})?(\.lab)?\Z"), max_size=40))
def test_folded_names_unfold_to_the_same_hosts(names: list[str]) -> None:
    folded = fold(names)
    assert unfolded(folded) == set(names)
    for room, first in ((20, None), (20, 7), (1, None)):
        lines = wrap(folded, room, first)
        assert unfolded("".join(lines)) == set(names)
        # Each line can be pasted alone.
        parts = [unfolded(line.removesuffix(",")) for line in lines]
        assert sum(map(len, parts)) == len(set(names))
        assert set().union(*parts) == set(names)


@pytest.mark.parametrize(
    ("folded", "room", "first", "lines"),
    [
        ("gpu[015-016].rack02.lab", 16, None, ["gpu015.rack02.lab,", "gpu016.rack02.lab"]),
        ("gpu[015-017].rack02.lab", 16, None, ["gpu[015-017].rack02.lab"]),
        (
            "gpu[025-030,032-048].rack02.lab,a",
            30,
            None,
            ["gpu[025-030].rack02.lab,", "gpu[032-048].rack02.lab,a"],
        ),
        (
            "r[1,3]-gpu[01-08,10-12,14]",
            18,
            None,
            ["r[1,3]-gpu[01-08],", "r[1,3]-gpu[10-12],", "r[1,3]-gpu14"],
        ),
        ("r[1,3]-gpu[01-08]", 12, None, ["r1-gpu[01-08],", "r3-gpu[01-08]"]),
        (
            "gpu[01,03,05,07,09,11].lab",
            21,
            15,
            ["gpu[01,03].lab,", "gpu[05,07,09,11].lab"],
        ),
        ("gpu[015-016].rack02.lab", 23, None, ["gpu[015-016].rack02.lab"]),
        (
            "gpu[01,03,05].rack02.lab,a",
            16,
            None,
            ["gpu01.rack02.lab,", "gpu03.rack02.lab,", "gpu05.rack02.lab,", "a"],
        ),
        ("one-name-that-stays-whole.rack02.lab", 16, None, ["one-name-that-stays-whole.rack02.lab"]),
        ("aa,bb,cc,dd", 9, 3, ["aa,", "bb,cc,dd"]),
    ],
)
def test_a_node_set_breaks_where_no_name_does(folded: str, room: int, first: int | None, lines: list[str]) -> None:
    assert wrap(folded, room, first) == lines
