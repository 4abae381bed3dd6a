"""Bad inventories: every error at once, one line each, with file and line."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcheck.errors import InputError
from fleetcheck.inventory.load import load, parse
from fleetcheck.inventory.source import Text, decode

BAD = Path(__file__).parent / "data" / "bad"
"""Inventories, each beside the lines that it gives, with FILE for its path."""


@pytest.mark.parametrize("path", sorted(BAD.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_bad_inventory_gives_all_its_lines(path: Path) -> None:
    assert errors_of(path) == path.with_suffix(".txt").read_text().replace("FILE", str(path)).splitlines()


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines))
    assert errors_of(path) == [f"{path}:5:5: more than 500000 values, aliases included"]


def test_ten_megabytes_of_noise(tmp_path: Path) -> None:
    path = tmp_path / "noise.yaml"
    path.write_bytes(os.urandom(1 << 20) * 10)
    assert errors_of(path) == [f"{path}: larger than 2 MB; this is no inventory"]


def test_an_endless_file() -> None:
    assert errors_of(Path("/dev/zero")) == ["/dev/zero: larger than 2 MB; this is no inventory"]


def test_binary_files(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"a: 1\nb: \xff\xfe\n")
    assert errors_of(path) == [f"{path}:2: not UTF-8 text"]
    path.write_bytes(b"a: 1\n\n\x7fELF\x00")
    assert errors_of(path) == [f"{path}:3: not a text: control character \\x7f"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "absent.yaml"
    assert errors_of(path) == [f"{path}: cannot be read: No such file or directory"]
    path.symlink_to(path)
    assert errors_of(path) == [f"{path}: cannot be read: Too many levels of symbolic links"]


def test_a_file_without_permission() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "closed.yaml"
        path.write_text("hosts: {a: }\n")
        path.chmod(0)
        root = os.geteuid() == 0
        if root:  # root reads every file: look as nobody
            os.seteuid(65534)
        try:
            assert errors_of(path) == [f"{path}: cannot be read: Permission denied"]
        finally:
            if root:
                os.seteuid(0)


def test_folders(tmp_path: Path) -> None:
    assert errors_of(tmp_path) == [f"{tmp_path}: the folder holds no .yaml or .yml file"]
    (tmp_path / "a.yaml").write_text("defaults: {port: 1}\nhosts: {gpu01: }\ngroups: {g: {hosts: gpu02}}\n")
    (tmp_path / "b.yml").write_text("defaults: {port: 2}\nhosts: {gpu01: }\n\ngroups: {g: {hosts: gpu03}}\n")
    (tmp_path / "c.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "d.yaml").write_text("- x\n")
    a, b, c, d = (tmp_path / name for name in ("a.yaml", "b.yml", "c.yaml", "d.yaml"))
    assert errors_of(tmp_path) == [
        f"{c}: cannot be read: a symbolic link to {tmp_path}/nowhere, which is not there",
        f"{b}:1:1: defaults: given twice (first in {a}:1)",
        f"{b}:2:9: hosts.gpu01: gpu01 is defined twice (first in {a}:2)",
        f"{b}:4:10: groups.g: the group is defined twice (first in {a}:3)",
        f"{d}:1:1: a list at the top; an inventory is a mapping of defaults, groups, hosts, waivers, maintenance",
    ]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("/nowhere/site.yaml", "/nowhere/site.yaml: cannot be read: No such file or directory"),
        ("other.yml", "other.yml: cannot be read: No such file or directory"),
        ("g[3-1]", "g[3-1]: neither an inventory file nor host names: bad range in g[3-1]: 3-1 runs backwards"),
        ("./ste.yaml", "ste.yaml: cannot be read: No such file or directory; did you mean site.yaml?"),
        (
            "fleets/site.yaml",
            "fleets/site.yaml: cannot be read: No such file or directory; did you mean fleet/site.yaml?",
        ),
        ("loop", "loop: cannot be read: Too many levels of symbolic links"),
        ("loop/x", "loop/x: cannot be read: Too many levels of symbolic links"),
        ("gone", "gone: cannot be read: a symbolic link to nowhere, which is not there"),
        ("-l", "-l: neither an inventory file nor host names: -l is no host name"),
        ("", "-i: neither an inventory file nor host names: no host is named"),
    ],
)
def test_sources_that_are_nothing(source: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet").mkdir()
    for path in (tmp_path / "site.yaml", tmp_path / "fleet" / "site.yaml"):
        path.write_text("hosts: {a: }\n")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nowhere")
    with pytest.raises(InputError) as caught:
        load(source)
    assert str(caught.value) == line


WORDS = """
defaults groups hosts waivers maintenance expect venvs port user children files gpus rule until reason path a b
gpu[1-3] gpu1 all ~ yes 22 022 - -- --- ... : :: ? , [ ] { } ' " | > & * &a *a ! !!str # % @ ` << = 2027-01-01
0x1 1e3 é
"""
PIECES = st.tuples(
    st.sampled_from(["", " ", "\n", "\n  ", "\n    ", ": ", "- ", ", ", "\t"]), st.sampled_from(WORDS.split())
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40))
def test_any_text_gives_an_inventory_or_lines(pieces: list[tuple[str, str]]) -> None:
    check("".join(gap + word for gap, word in pieces).encode())


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=80).map(str.encode))
def test_any_bytes_give_an_inventory_or_lines(data: bytes) -> None:
    check(data)


KEYS = st.sampled_from(
    ["defaults", "groups", "hosts", "waivers", "expect", "venvs", "port", "children", "files", "a", "gpu[1-3]"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99) | st.floats() | st.text(max_size=6) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_any_tree_gives_an_inventory_or_lines(value: object) -> None:
    import json

    check(json.dumps(value).encode())


def check(data: bytes) -> None:
    problems: list = []
    try:
        loaded = parse("x.yaml", decode("x.yaml", data, problems), problems)
    except InputError as error:
        assert error.problems
        assert all("\n" not in str(problem) and str(problem).startswith("x.yaml") for problem in error.problems)
    else:
        assert loaded.inventory.targets


def test_a_text_is_named_by_its_file() -> None:
    with pytest.raises(InputError, match=r"^here: empty; an inventory holds groups or hosts$"):
        parse("here", [Text("here", "")], [])


def errors_of(path: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(path)
    return [str(problem) for problem in caught.value.problems]
