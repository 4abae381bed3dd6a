"""What the tests of this room share."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.sshd import Sshd, wait_until


@pytest.fixture
def nothing_left(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No thread of ours outlives a look, and nothing is printed."""
    before = set(threading.enumerate())
    yield
    assert wait_until(lambda: set(threading.enumerate()) <= before), threading.enumerate()
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    """One daemon for all tests of a module."""
    with Sshd() as daemon:
        yield daemon
