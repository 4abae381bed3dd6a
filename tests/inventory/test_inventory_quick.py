"""Names without a YAML parser: what is answered equals what loading gives, and all else is left to loading."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcheck.errors import InputError, Problem
from fleetcheck.inventory import nodes, quick, quick_tree
from fleetcheck.inventory.load import load, parse
from fleetcheck.inventory.model import Inventory
from fleetcheck.inventory.source import decode

PLAIN = """\
---
# the fleet
defaults: {user: audit, expect: {compute_capability: "12.0"}}   # all
groups:
  site:
    children: [rtx, "h200"]
    expect:
      driver: ">=580"
      files:
        /etc/fleet-release: 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03
  rtx: # ours
    hosts: gpu[01-03,08].lab, r[1-2]-n[08-11]
    venvs: ["/root/ml-env", "/opt/venvs/*", running]
    rules: {"csrc-*": ignore}
  h200:
    venvs:
    - running
    - path: /opt/venvs/sglang
      expect: {flashinfer: "0.6.18", sglang: ">=0.5,<0.6"}
    hosts:
    - h1
    - 'h2'
    - "h[3-4]"
  few:
    hosts: [f1, "f[2-3]"]
hosts:
  gpu17.lab: {address: 192.0.2.17, port: 2222}
  x[1-2]:
    user: root
  gpu01.lab:
waivers:
  - rule: pcie-width
    hosts: ["rtx", "!gpu01.lab"]
    reason: it's slot wired x8
    until: 2127-03-01
"""


def names_of(inventory: Inventory) -> tuple[list[str], list[str]]:
    groups = {group for target in inventory.targets for group in target.groups}
    return [target.name for target in inventory.targets], sorted(groups)


def loaded(text: str) -> tuple[list[str], list[str]] | None:
    problems: list[Problem] = []
    try:
        inventory = parse("site.yaml", decode("site.yaml", text.encode(), problems), problems).inventory
    except InputError:
        return None
    return names_of(inventory)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_plain_inventory(end: str) -> None:
    text = PLAIN.replace("\n", end)
    found = quick.of_texts([text])
    assert found is not None
    assert "r2-n09" in found[0]
    assert found == loaded(text)


@pytest.mark.parametrize(
    "text",
    [
        "groups: {a: {hosts: g1}}\n",
        "groups:\n  a: {hosts: g1}\n",
        "groups:\n  a: &a\n    hosts: g1\n  b: *a\n",
        "groups:\n  a:\n    hosts: &h g1\n",
        "groups:\n  a:\n    hosts: >\n      g1\n      g2\n",
        "groups:\n  a:\n    hosts: g1,\n      g2\n",
        'groups:\n  a:\n    hosts: "g1,\n      g2"\n',
        "groups:\n  a:\n    hosts: [g1,\n      g2]\n",
        "groups:\n  a:\n    hosts: g1\n      - g2\n",
        "groups:\n  a:\n    hosts:\n      - g1\n        - g2\n",
        "groups:\n  a:\n    hosts:\n      - - g1\n",
        "groups:\n  a:\n    hosts: !!str g1\n",
        "groups:\n  a:\n    hosts: g[0-6/2]\n",
        "groups:\n  a:\n    hosts: g[03,01]\n",
        "groups:\n  a:\n    hosts: g[1-02]\n",
        "groups:\n  a:\n    hosts: g[1\n",
        "groups:\n  a:\n    hosts: g[9-10]7\n",
        "groups:\n  a:\n    hosts: g7[9-10].lab\n",
        "groups:\n  a:\n    hosts: g1[1-2]3[4-5]\n",
        "groups:\n  a:\n    hosts: 'it''s'\n",
        'groups:\n  a:\n    "hosts": "g\\x31"\n',
        "? hosts\n: {g1: {}}\n",
        "hosts:\n  g1:\n...\n",
        "%YAML 1.1\n---\nhosts:\n  g1:\n",
        "hosts:\n  fe80::1:\n",
        "hosts:\n\tg1:\n",
        "all:\n  hosts:\n    g1:\n",
        "[web]\ng1\n",
        "Host g1\n",
        "g1\ng2\n",
        "hosts:\n  g1:\nhosts:\n  g2:\n",
        "hosts:\n  g1: {a: b,\n  c: d}\n  g2:\n",
        "hosts:\n  g1\u2028  g2:\n",
        "",
    ],
)
def test_what_is_out_of_the_plain_is_left_to_loading(text: str) -> None:
    assert quick.of_texts([text]) is None


KEYS = [
    "groups",
    "hosts",
    "defaults",
    "waivers",
    "children",
    "user",
    "venvs",
    "g1",
    "g[01-03]",
    "'q'",
    "port",
    "no",
]
VALUES = [
    "", "", "g1", "g2, g3", "g[01-12].lab", "'g4'", "[g5, 'g[6-7]']", "{user: x}", "audit # who", "22",
    "{a: [b, {c: 1}]}", "it's", '"a b"', "a:b", "*x", "&x g8", "|", "[a", "g9 #", "{a: it's {, b: that's}",
    "'x' y", "~", "a]", "- g10",
]  # fmt: skip


def line(indent: int, dash: str, key: str, value: str) -> str:
    return f"{'  ' * indent}{dash}{key}{': ' if key else ''}{value}".rstrip()


LINE = st.builds(
    line,
    st.integers(0, 3),
    st.sampled_from(["", "", "", "", "- "]),
    st.sampled_from(["", *KEYS]),
    st.sampled_from(VALUES),
)


@settings(max_examples=1000, deadline=None)
@given(st.lists(LINE, min_size=1, max_size=12), st.sampled_from(["", "groups:\n  a:\n", "hosts:\n", PLAIN]))
def test_an_answer_is_what_loading_gives(lines: list[str], lead: str) -> None:
    text = lead + "\n".join(lines) + "\n"
    whole = loaded(text)
    for quickly in (quick.of_texts([text]), quick_tree.of_texts([text])):
        if quickly is not None and whole is not None:
            assert quickly == whole


NODESETS = ["{}n1", "{}n[1-3]", "{}n[08-11].lab", "{}[1-2]n[01-02]", "{}n[9-10,12]"]


@st.composite
def shapely(draw: st.DrawFn) -> str:
    """Return a valid inventory in the plain shape, its sections, indents and spellings drawn."""
    step = " " * draw(st.integers(1, 4))
    user = draw(st.sampled_from(["audit", "'audit'", "x#y  # z"]))
    settings = ["", " {port: 1}", f"\n{step * 2}port: 2", f"\n\n{step * 3}venvs: [usual]"]
    parts = {"groups": "", "hosts": "", "defaults": f"{step}user: {user}\n"}
    for number in range(draw(st.integers(2, 6))):
        nodeset = draw(st.sampled_from(NODESETS)).format(f"r{number}x")
        if number % 2:
            parts["hosts"] += f"{step}{nodeset}:{draw(st.sampled_from(settings))}\n"
            continue
        quoted = draw(st.sampled_from(["{}", "'{}'", '"{}"'])).format(nodeset)
        dashed = draw(st.sampled_from([step * 2, step * 3]))
        form = draw(st.sampled_from([f" {quoted}", f' ["{nodeset}", zz{number}]', f"\n{dashed}- {quoted}"]))
        parts["groups"] += f"{step}group{number}:\n{step * 2}hosts:{form}\n{step * 2}sudo: true\n"
    end = draw(st.sampled_from(["", " ", "  # why"]))
    return "".join(f"{name}:{end}\n{parts[name]}" for name in draw(st.permutations(list(parts))))


@settings(max_examples=200, deadline=None)
@given(shapely())
def test_a_valid_inventory_in_the_plain_shape_needs_no_loading(text: str) -> None:
    assert quick.of_texts([text]) == quick_tree.of_texts([text]) == loaded(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "groups: {b: {hosts: 'g[1-2]', port: 22}, a: {hosts: [g3, 'g[4-5]']}}\nhosts: {h1: , h2: {port: 1}}\n",
        '{"hosts": {"h1": {}}, "groups": {"a": {"hosts": "g[01-12].lab", "rules": {"csrc-*": "ignore"}}}}',
        "groups:\n  a: &a\n    hosts: [g1,\n      g2]\n  b: *a\n",
        "groups:\n  a:\n    hosts: >\n      g1\n      g2\n  b: {children: [a]}\nhosts:\ndefaults: {user: x}\n",
        "%YAML 1.1\n---\nhosts: {g1: {}}\n...\n",
        "? hosts\n: {0123: {}, 7: {}, 12.10: {}}\n",
    ],
)
def test_any_shape_of_yaml_needs_no_judging(text: str) -> None:
    assert quick.of_texts([text]) is None
    assert quick_tree.of_texts([text]) == loaded(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "", "[web]\ng1\n", "Host g1\n", "g1\n", "all: {hosts: {g1: }}\n", "plugin: x\nhosts: {g1: }\n",
        "hosts: {g1: , g1: }\n", "hosts: [g1]\n", "hosts: {'g[0-6/2]': }\n", "hosts: {<<: {a: }}\n",
        "groups: {a: g1}\n", "groups: {a: {hosts: {g1: }}}\n", "groups: {a: {hosts: [22]}}\n", "groups: {a: }\n",
        "hosts: {g1: &a [*a]}\n", "hosts: {g1: " + "[" * 5000 + "}\n", "hosts: {g1: {}}\n---\nhosts: {g2: }\n",
        "#!/bin/sh\nhosts: {g1: }\n", "hosts: {'gn7[9-10]': }\n",
    ],
)  # fmt: skip
def test_what_no_shape_tells_is_left_to_loading(text: str) -> None:
    assert quick_tree.of_texts([text]) is None


RANGE = st.builds(
    lambda low, more, wide: (low, low + more, wide), st.integers(0, 120), st.integers(0, 12), st.integers(0, 4)
)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(["n", "n", "n7", "7", "-0"]),
    st.lists(st.lists(RANGE, min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from(["", ".lab", "-x", "7"]),
)
def test_nodesets_are_what_clustershell_makes_of_them(
    head: str, brackets: list[list[tuple[int, int, int]]], tail: str
) -> None:
    text = "g"
    for ranges in brackets:
        text += f"{head}[{','.join(f'{low:0{wide}}-{high:0{wide}}' for low, high, wide in ranges)}]"
    text = f"{text}{tail}"
    quickly = quick.of_texts([f"hosts:\n  {text}:\n"])
    if quickly is not None:
        assert quickly[0] == nodes.expand(text)


LONG = 100_000
PIECES = [
    " ",
    "a",
    "a ",
    ":",
    "a:",
    "#",
    "[",
    "[a ",
    "[a], ",
    "{a: b}, ",
    "['a', ",
    "'",
    "''",
    '"',
    "- ",
    "k: ",
    "\\",
]
HOSTILE = """
import sys
from fleetcheck.inventory import quick
long, *pieces = sys.argv[1:]
for lead in ("", "-", "k:", "k: a", "k: 'a'", "k: [", "k: [[a, '", "'", "    - k: "):
    for piece in pieces:
        for end in ("", "&", " x: ", "]", "'"):
            quick.of_texts(["hosts:\\n  " + lead + piece * (int(long) // len(piece)) + end + "\\n"])
            quick.of_texts(["groups:\\n  a:\\n    hosts: [" + piece * (int(long) // len(piece)) + end + "]\\n"])
"""


def test_no_line_keeps_the_reader_for_long() -> None:
    # Where a failure took the square of a line's length, each of many of these lines would take minutes.
    subprocess.run([sys.executable, "-c", HOSTILE, str(LONG), *PIECES], check=True, timeout=300)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("r1: {port: 1}", "{port: 1}"),
        ("r1: {a: [b, {c: 'd]'}], e: \"}\"}  # f", "{a: [b, {c: 'd]'}], e: \"}\"}"),
        ("r1: [[[[a]]]]", "[[[[a]]]]"),
        ("r1: [[[[[a]]]]]", None),
        ("r1: [a", None),
        ("r1: a:b#c   # d", "a:b#c   "),
        ("r1: a : b", None),
        ("r1: 'a' # b", "'a'"),
        ("r1: 'a'# b", None),
        ("r1:    # b", ""),
    ],
)
def test_one_line(line: str, value: str | None) -> None:
    # CPython up to 3.11.4 misses some of these where a repeat does not give back (cpython#106052).
    found = quick._LINE.findall(line)
    assert found == ([] if value is None else [("", "", "r1", value)])


def test_a_folder_of_yaml(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(PLAIN)
    (tmp_path / "a.yml").write_text("hosts:\n  a[1-2]:\n")
    (tmp_path / ".hidden").write_text("?")
    assert quick.names(tmp_path) == names_of(load(tmp_path))
    (tmp_path / "production").write_text("[web]\nw1\n")
    assert quick.names(tmp_path) is None


def test_a_broken_setting_does_not_take_the_names() -> None:
    text = "groups:\n  a:\n    hosts: g1\n    port: 99999\n"
    assert loaded(text) is None
    assert quick.of_texts([text]) == (["g1"], ["a"])
