"""Broken input of every kind, in real installs: each gives a value or a finding, and no host is lost.

Files that an ordinary user may not read, caches and processes are in the agent's own tests.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from layouts import Layout, Told, entering, fired, said, stock
from support.workshop import HEADER, Built, Workshop

from fleetcheck.demo.tree import Environment

LAYOUTS: dict[str, Layout] = {}
layout = entering(LAYOUTS)
DIST = "flashinfer_python-0.6.2.dist-info"
LARGE = 50 << 20
NESTED = {
    "brackets": "x = " + "(" * 9000 + ")" * 9000 + "\n",
    "signs": "x = " + "-" * 25000 + "1\n",
    "attributes": "x = a" + ".b" * 12000 + "\n",
    "blocks": "".join(" " * depth + "if x:\n" for depth in range(150)) + " " * 150 + "x\n",
}


def put(path: Path, content: bytes) -> None:
    """Put other content in the place of a file, in this environment alone."""
    path.unlink()
    path.write_bytes(content)


def sparse(path: Path) -> None:
    """Put 50 MB in the place of a file."""
    path.unlink()
    with path.open("wb") as file:
        file.truncate(LARGE)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/at/all")


WAYS: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: put(path, b""),
    "binary": lambda path: put(path, bytes(range(256)) * 64),
    "of 50 MB": sparse,
    "with a syntax error": lambda path: put(path, path.read_bytes() + b"\ndef (:\n"),
    "a folder": folder,
    "a pipe": pipe,
    "a loop of links": loop,
    "a link to nothing": nowhere,
    **{f"nested, {name}": lambda path, text=text: put(path, text.encode()) for name, text in NESTED.items()},
}
UNREAD = ("a folder", "a pipe", "a loop of links")


def enter(name: str, file: str, way: str, *rules: str, **expected: object) -> None:
    """Enter an install of which one file is broken in one way."""

    def make(shop: Workshop, built: Built, path: str) -> Environment:
        made = stock(shop, built, path)
        WAYS[way](made.site / file)
        return made

    make.__name__ = f"{name} {way}".replace(" ", "_").replace(",", "")
    layout(*rules, **expected)(make)


for way in WAYS:
    if way in UNREAD:
        enter("env", "flashinfer/jit/env.py", way, "csrc-unreadable", "expectation-unchecked", "fusion-refused",
              csrc_dir=None, csrc_state="unreadable", env_record="unreadable")  # fmt: skip
        enter("comm", "flashinfer/jit/comm.py", way, "fusion-gate-unreadable",
              csrc_state="complete", verdict="unreadable")  # fmt: skip
        enter("header", f"flashinfer/{HEADER}", way, "csrc-unreadable", "fusion-refused",
              guards=None, csrc_state="complete")  # fmt: skip
    else:
        gone = way == "a link to nothing"
        enter("env", "flashinfer/jit/env.py", way, "env-edited", "expectation-unchecked", "fusion-refused",
              csrc_dir=None, csrc_state="unknown", env_record="missing" if gone else "mismatch")  # fmt: skip
        enter("comm", "flashinfer/jit/comm.py", way, "fusion-gate-unreadable", "package-modified",
              csrc_state="complete", verdict="unreadable")  # fmt: skip
        enter("header", f"flashinfer/{HEADER}", way, "fusion-refused",
              "csrc-incomplete" if gone else "package-modified",
              csrc_state="incomplete" if gone else "complete")  # fmt: skip
    same = way in UNREAD
    enter("version", "flashinfer/_build_meta.py", way, "fusion-refused", *([] if same else ["package-modified"]),
          version="0.6.2", csrc_state="complete")  # fmt: skip
    # A line too many does no harm to a RECORD: all others of it still speak.
    speaks = way == "with a syntax error"
    enter("record", f"{DIST}/RECORD", way, "fusion-refused", *([] if speaks else ["expectation-unchecked"]),
          version="0.6.2", csrc_state="complete" if speaks else "unknown")  # fmt: skip
    enter("metadata", f"{DIST}/METADATA", way, "fusion-refused", version="0.6.2", csrc_state="complete")


@layout(
    "csrc-incomplete", "env-edited", "fusion-gate-unreadable", "package-modified",
    version="0.6.2", csrc_state="incomplete", csrc_missing=("never.cu",),
)  # fmt: skip
def a_record_that_lies(shop: Workshop, built: Built, path: str) -> Environment:
    """Every hash is another, sizes are no numbers or beyond all, files are listed that never were."""
    made = stock(shop, built, path)
    record = made.site / DIST / "RECORD"
    wrong = base64.urlsafe_b64encode(bytes(32)).decode().rstrip("=")
    rows = []
    for number, line in enumerate(record.read_text().splitlines()):
        name = line.split(",")[0]
        size = ("", "-1", "9" * 30, "x", "0", "²", "9" * 9000)[number % 7]
        rows.append(f"{name},sha256={wrong if number % 3 else 'ü!'},{size}")
    rows += [
        "flashinfer/data/csrc/never.cu,sha256=x,5",
        "../../../../etc/passwd,sha256=x,1",
        ",,,",
        '"',
        "flashinfer/,,",
        '"' + "x" * 200_000 + '",sha256=x,1',
        '"flashinfer/a\0b.py",sha256=x,1',
        '"flashinfer/b.py"x,"1"2,3"',
    ]
    put(record, "\n".join(rows).encode())
    return made


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_said_of_it(told: Told, name: str) -> None:
    said(told, name, LAYOUTS[name])


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_fires_on_it(told: Told, name: str) -> None:
    fired(told, name, LAYOUTS[name])


def test_none_was_left_out(told: Told) -> None:
    assert len(told.venvs) == len(LAYOUTS)
    assert all(len(venv.model_dump_json()) < 100_000 for venv in told.venvs.values())
    assert told.executed == []
