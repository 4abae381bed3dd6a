"""The selection grammar: what each pattern means, and what is said of those that mean nothing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcheck.errors import InputError
from fleetcheck.inventory.load import parse
from fleetcheck.inventory.selection import select, split
from fleetcheck.inventory.source import Text

INVENTORY = parse(
    "site.yaml",
    [
        Text(
            "site.yaml",
            """
groups:
  site: {children: [rack1, rack2]}
  rack1: {hosts: "gpu[01-04].lab"}
  rack2: {hosts: "gpu[05-08].lab,h200"}
hosts: {cpu1: , bastion: }
""",
        )
    ],
    [],
).inventory
ALL = [target.name for target in INVENTORY.targets]


def names(*patterns: str) -> list[str]:
    return [target.name for target in select(INVENTORY, patterns)]


def gpus(*numbers: int) -> list[str]:
    return [f"gpu{number:02}.lab" for number in numbers]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], ALL),
        (["all"], ALL),
        (["gpu01.lab"], gpus(1)),
        (["gpu03.lab", "gpu01.lab"], gpus(1, 3)),
        (["gpu03.lab,gpu01.lab"], gpus(1, 3)),
        (["gpu03.lab gpu01.lab"], gpus(1, 3)),
        (["gpu[02-04,06].lab"], gpus(2, 3, 4, 6)),
        (["rack1"], gpus(1, 2, 3, 4)),
        (["rack[1-2]"], [*gpus(*range(1, 9)), "h200"]),
        (["site"], [*gpus(*range(1, 9)), "h200"]),
        (["gpu0?.lab"], gpus(*range(1, 9))),
        (["gpu[01-02]*"], gpus(1, 2)),
        (["gpu0[12]*"], gpus(1, 2)),
        (["gpu0[!1-7]*"], gpus(8)),
        (["[a-c]*"], ["cpu1", "bastion"]),
        (["rack*"], [*gpus(*range(1, 9)), "h200"]),
        (["rack2", "!gpu*"], ["h200"]),
        (["!gpu*"], ["h200", "cpu1", "bastion"]),
        (["!gpu*", "!h200,!cpu1"], ["bastion"]),
        (["&rack1", "gpu0[34]*"], gpus(3, 4)),
        (["site,&gpu*,!rack2"], gpus(1, 2, 3, 4)),
        (["&rack1"], gpus(1, 2, 3, 4)),
        (["!rack2", "site"], gpus(1, 2, 3, 4)),
        (["~^gpu0[12]"], gpus(1, 2)),
        (["~lab$"], gpus(*range(1, 9))),
        (["~^(h200|cpu)"], ["h200", "cpu1"]),
        (["~^gpu0{1,1}1"], gpus(1)),
        (["rack1,!~0[12]"], gpus(3, 4)),
        (["cpu1,~^gpu0{1,1}1"], [*gpus(1), "cpu1"]),
        (["site", "&~2"], [*gpus(2), "h200"]),
    ],
)
def test_patterns(patterns: list[str], expected: list[str]) -> None:
    assert names(*patterns) == expected


@pytest.mark.parametrize(
    ("patterns", "lines"),
    [
        (["gpu1.lab"], ["site.yaml: no host or group matches gpu1.lab; nearest: gpu01.lab, gpu08.lab, gpu07.lab"]),
        (["gpu03"], ["site.yaml: no host or group matches gpu03; nearest: gpu03.lab"]),
        (["h200.a.very.long.name.of.another.place"], [
            "site.yaml: no host or group matches h200.a.very.long.name.of.another.place; nearest: h200"]),
        (["Rack1"], ["site.yaml: no host or group matches Rack1; nearest: rack1, rack2"]),
        (["gpu[07-10].lab"], [
            "site.yaml: no host or group matches gpu[09-10].lab; nearest: gpu08.lab, gpu07.lab, gpu06.lab"]),
        (["zzz*"], ["site.yaml: no host or group matches zzz*"]),
        (["!qqq", "all"], ["site.yaml: no host or group matches qqq"]),
        (["x1", "y1,cpu1", "&z1"], [
            "site.yaml: no host or group matches x1",
            "site.yaml: no host or group matches y1",
            "site.yaml: no host or group matches z1",
        ]),
        (["~^nothing"], ["site.yaml: no host matches ~^nothing"]),
        (["~(" ], ["site.yaml: ~( is no regular expression: missing ), unterminated subpattern at position 0"]),
        (["gpu[4-1]"], ["site.yaml: bad range in gpu[4-1]: 4-1 runs backwards"]),
        (["g[1-99999999]"], ["site.yaml: g[1-99999999] stands for 99999999 names; at most 100000 are allowed"]),
        ([""], ["site.yaml: an empty pattern names no host"]),
        (["all", "!all"], ["site.yaml: no host is left of all !all"]),
        (["rack1", "&rack2"], ["site.yaml: no host is left of rack1 &rack2"]),
        (["gpu\x1b[31m"], ["site.yaml: no host or group matches gpu\\x1b[31m"]),
    ],
)  # fmt: skip
def test_patterns_that_mean_nothing(patterns: list[str], lines: list[str]) -> None:
    assert errors(*patterns) == lines


def test_files_of_patterns(tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_bytes(b"\xef\xbb\xbf# all of rack 1\r\nrack1  # but one\r\n!gpu02.lab\r\n\r\ncpu1, h200\r\n")
    assert names(f"@{file}") == [*gpus(1, 3, 4), "h200", "cpu1"]
    assert names(f"@{file},bastion") == [*gpus(1, 3, 4), "h200", "cpu1", "bastion"]
    file.write_text("gpu01.lab\ngpu02.lab\n")
    assert names("rack1", f"!@{file}") == gpus(3, 4)
    assert names("site", f"&@{file}") == gpus(1, 2)


def test_bad_files_of_patterns(tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    assert errors(f"@{file}") == [f"{file}: cannot be read: No such file or directory"]
    assert errors(f"@{tmp_path}") == [f"{tmp_path}: cannot be read: Is a directory"]
    file.write_text("# nobody\n")
    assert errors(f"@{file}") == [f"{file}: the file holds no pattern"]
    file.write_text("cpu1\ncpu2\n@other\n")
    assert errors(f"@{file}") == [
        f"{file}:2: no host or group matches cpu2; nearest: cpu1",
        f"{file}:3: @other: a file of patterns names no other file",
    ]
    file.write_text("!cpu1\n")
    assert errors(f"!@{file}") == [f"{file}:1: !cpu1: !@{file} takes patterns without ! and &"]
    file.write_bytes(b"\xff")
    assert errors(f"@{file}") == [f"{file}:1: not UTF-8 text"]


def test_split() -> None:
    assert split("a,b[1,2] c") == ["a", "b[1,2]", "c"]
    assert split("a,!~x,y z") == ["a", "!~x,y z"]
    assert split("~a,~b") == ["~a,~b"]
    assert split(" , ") == []


@given(st.lists(st.text(alphabet="gpu01.lab[]-,!&~*?@ rck()\\", max_size=12), min_size=1, max_size=3))
def test_any_patterns_give_hosts_in_order_or_lines(patterns: list[str]) -> None:
    try:
        found = names(*patterns)
    except InputError as error:
        assert error.problems
        assert all("\n" not in str(problem) for problem in error.problems)
    else:
        assert found
        assert found == [name for name in ALL if name in found]


def errors(*patterns: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        select(INVENTORY, patterns)
    return [str(problem) for problem in caught.value.problems]
