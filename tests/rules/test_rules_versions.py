"""Ranges of versions: what they admit, and what cannot be compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcheck.rules.versions import admits, below, is_prefix


@pytest.mark.parametrize(
    ("expected", "seen", "admitted"),
    [
        (">=0.6.17", "0.6.17", True),
        (">=0.6.17", "0.6.16.post4", False),
        (">=0.6.17", "0.6.18rc7", True),
        (">=0.6.17", "0.6.17rc1", False),
        (">=0.6.17", "0.7.0.dev20260801", True),
        (">=0.6.17", "0.6.17+cu130", True),
        ("==0.6.18", "0.6.18+cu130", True),
        ("==0.6.18+cu130", "0.6.18+cu129", False),
        ("0.6.18", "0.6.18", True),
        ("0.6.18", "0.6.18.post1", False),
        ("0.6.18rc1", "0.6.18rc1", True),
        ("==0.6.*", "0.6.18rc1", True),
        (">=0.6,<0.7,!=0.6.9", "0.6.9", False),
        ("~=3.12", "3.13.1", True),
        (">=580.95.05", "580.95.05", True),
        (">=580.95.05", "580.95", False),
        (">=580.95.05", "580.105.08", True),
        (">=580.95.05", "610.43.02", True),
        ("580.95.05", "580.95.5", True),
        (">=12.9", "V12.9.86", True),
        (">=0.6", "0.0.0+unknown", None),
        (">=0.6", "main", None),
        (">=0.6", "", None),
        ("newest", "0.6.18", None),
        ("=>0.6", "0.6.18", None),
        ("===main", "main", None),
    ],
)
def test_admits(expected: str, seen: str, admitted: bool | None) -> None:
    assert admits(expected, seen) is admitted


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_answered(expected: str, seen: str) -> None:
    assert admits(expected, seen) in (True, False, None)
    assert below(seen, "0.6.17") in (True, False)
    assert is_prefix(expected, seen) in (True, False)


def test_below() -> None:
    assert below("0.6.16.post4", "0.6.17")
    assert not below("0.6.17", "0.6.17")
    assert not below(None, "0.6.17")
    assert not below("main", "0.6.17")


def test_a_bare_version_that_names_a_line_of_releases() -> None:
    assert is_prefix("3.12", "3.12.3")
    assert not is_prefix("3.1", "3.12.3")
    assert not is_prefix("==3.12", "3.12.3")
    assert not is_prefix("3.12+local", "3.12.3")
