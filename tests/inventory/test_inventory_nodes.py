"""Nodesets: fold and expand, bounds, what is no host name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcheck.folding import fold
from fleetcheck.inventory.nodes import MAX_NAMES, expand, is_nodeset, parts, twice

LABEL = st.from_regex(r"[a-z][a-z0-9-]{0,6}[0-9]{0,4}", fullmatch=True).filter(lambda text: text[-1] != "-")
NAME = st.lists(LABEL, min_size=1, max_size=3).map(".".join)

BESIDE = "as digits stand right beside its brackets"


@given(st.lists(NAME, min_size=1, max_size=30, unique=True))
def test_expand_of_fold_gives_the_same_names(names: list[str]) -> None:
    assert sorted(expand(fold(names))) == sorted(names)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 4), st.sampled_from(["", ".lab", "-ib0"]))
def test_a_range_is_its_names_and_folds_back(low: int, more: int, width: int, tail: str) -> None:
    names = [f"gpu{number:0{width}}{tail}" for number in range(low, low + more + 1)]
    assert expand(",".join(names)) == names
    assert sorted(expand(fold(names))) == sorted(names)
    if more:
        assert len(fold(names)) < len(",".join(names))


@given(st.text(alphabet="gpu0123[]-/, .:%@!&^*~\n", max_size=24))
def test_any_text_gives_names_or_one_sentence(text: str) -> None:
    try:
        names = expand(text)
    except ValueError as error:
        assert str(error)
        assert "\n" not in str(error)
    else:
        assert 0 < len(names) <= MAX_NAMES
        assert sorted(expand(fold(names))) == sorted(names)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[01-03].lab", ["gpu01.lab", "gpu02.lab", "gpu03.lab"]),
        ("gpu[1-3]", ["gpu1", "gpu2", "gpu3"]),
        ("b, a  c", ["b", "a", "c"]),
        ("gpu[1,3-4],cpu1", ["gpu1", "gpu3", "gpu4", "cpu1"]),
        ("r[1-2]-n[1-2]", ["r1-n1", "r1-n2", "r2-n1", "r2-n2"]),
        ("n[0-6/2]", ["n0", "n2", "n4", "n6"]),
        ("192.0.2.[9-10]", ["192.0.2.9", "192.0.2.10"]),
        ("gn7[08-10]", ["gn708", "gn709", "gn710"]),
        ("gn1[7-9]", ["gn17", "gn18", "gn19"]),
        ("gn[9-10]0", ["gn90", "gn100"]),
        ("2001:db8::1", ["2001:db8::1"]),
        ("fe80::1%eth0", ["fe80::1%eth0"]),
        ("a,a", ["a"]),
    ],
)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu[16-01]", "bad range in gpu[16-01]: 16-01 runs backwards"),
        ("gpu[a-b]", "bad range in gpu[a-b]: a-b is neither a number nor a range such as 01-16"),
        ("gpu[]", "bad range in gpu[]: nothing is neither a number nor a range such as 01-16"),
        ("gpu[1-016]", "bad range in gpu[1-016]: padding length mismatch"),
        ("gpu[0-3/0]", "bad range in gpu[0-3/0]: 0-3/0 has step 0"),
        (
            "gn7[9-10]",
            f"gn7[9-10] means 2 names to some tools and 632 to others, {BESIDE}; for the 2 write gn[79,710]",
        ),
        (
            "ip1[8,9-10]",
            f"ip1[8,9-10] means 3 names to some tools and 93 to others, {BESIDE}; for the 3 write ip[18-19,110]",
        ),
        ("gpu[1-4", "bad range in gpu[1-4: missing bracket"),
        ("gpu1-4]", "bad range in gpu1-4]: illegal closing bracket"),
        ("g[1-400]x[1-400]", "g[1-400]x[1-400] stands for 160000 names; at most 100000 are allowed"),
        ("g[1-60000],h[1-60000]", "more than 100000 names"),
        ("", "no host is named"),
        (" , ", "no host is named"),
        ("gpu01:22", "gpu01:22 is no host name; a port is given by the key port"),
        ("root@gpu01", "root@gpu01 is no host name; a user is given by the key user"),
        ("-oProxyCommand=x", "-oProxyCommand=x is no host name"),
        ("gpu01;reboot", "gpu01;reboot is no host name"),
        ("fe80::1%a;b", "fe80::1%a;b is no host name; a port is given by the key port"),
        ("a!b", "a!b is no host name"),
        ("x" * 254, "x" * 59 + "… is no host name"),
        ("gp\x1bu", "gp\\x1bu is no host name"),
    ],
)
def test_what_is_no_nodeset(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        expand(text)
    assert str(caught.value) == message


@given(
    before=st.sampled_from(["n", "n7", "n10", "n0"]), low=st.integers(0, 120), more=st.integers(0, 30),
    after=st.sampled_from(["", "x", "3", "-1", "x2[1-2]"]), width=st.integers(0, 4),
)  # fmt: skip
def test_a_range_is_what_stands_there_or_refused(before: str, low: int, more: int, after: str, width: int) -> None:
    """Whatever digits stand beside its brackets: the numbers are put in between the texts, as Slurm does."""
    numbers = [str(number).zfill(width) for number in range(low, low + more + 1)]
    names = [f"{before}{number}{after}" for number in numbers]
    if "[" in after:
        names = [name.replace("[1-2]", last) for name in names for last in "12"]
    try:
        found = expand(f"{before}[{numbers[0]}-{numbers[-1]}]{after}")
    except ValueError as error:
        assert len({len(number) for number in numbers}) > 1 or "padding" in str(error)
    else:
        assert found == names


def test_a_huge_range_is_refused_before_it_is_built() -> None:
    with pytest.raises(ValueError, match="at most 100000"):
        expand("gpu[1-99999999999999999999]")


def test_parts_twice_and_is_nodeset() -> None:
    assert parts("a[1,2],b c[3]-[4, 5]") == ["a[1,2]", "b", "c[3]-[4, 5]"]
    assert twice(["a", "b", "a", "a"]) == ["a"]
    assert is_nodeset("gpu[01-16]")
    assert not is_nodeset("gpu[a-f]")
    assert not is_nodeset("gpu")
