"""The folder that an edited env.py names: only what differs from the stock line is evaluated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetcheck.agent.program.constant import named_csrc
from fleetcheck.agent.program.inside import find_spec

HEAD = """import os
import pathlib
from pathlib import Path
_package_root: pathlib.Path = pathlib.Path(__file__).resolve().parents[1]
FLASHINFER_DATA = _package_root / "data"
"""
STOCK = 'FLASHINFER_CSRC_DIR: pathlib.Path = _package_root / "data" / "csrc"\n'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (STOCK, None),
        ('FLASHINFER_CSRC_DIR = _package_root/"data"/"csrc"  # as ever\n', None),
        ('FLASHINFER_CSRC_DIR = _package_root / "csrc"\n', "/sp/flashinfer/csrc"),
        ('FLASHINFER_CSRC_DIR = FLASHINFER_DATA / "mine"\n', "/sp/flashinfer/data/mine"),
        ('FLASHINFER_CSRC_DIR = Path("/srv") / "a" / "b"\n', "/srv/a/b"),
        ('FLASHINFER_CSRC_DIR = pathlib.Path("/srv/./x/../y")\n', "/srv/y"),
        ('FLASHINFER_CSRC_DIR = Path(os.path.join("/srv", "z"))\n', "/srv/z"),
        ('FLASHINFER_CSRC_DIR = Path(os.environ.get("NO_SUCH_NAME", "/env"))\n', "/env"),
        ('FLASHINFER_CSRC_DIR = Path(__file__).parent.parent / "csrc"\n', "/sp/flashinfer/csrc"),
        ('FLASHINFER_CSRC_DIR = Path.home() / "csrc"\n', str(Path.home() / "csrc")),
        (STOCK + 'FLASHINFER_CSRC_DIR = Path("/last")\n', "/last"),
        ('FLASHINFER_CSRC_DIR = load("x")\n', None),
        ("FLASHINFER_CSRC_DIR = FLASHINFER_CSRC_DIR\n", None),
        ('FLASHINFER_CSRC_DIR = "relative"\n', None),
        ("FLASHINFER_CSRC_DIR = (\n", None),
        ("FLASHINFER_CSRC_DIR = " + "(" * 5000 + "\n", None),
        ("", None),
    ],
)
def test_the_named_folder(line: str, expected: str | None) -> None:
    assert named_csrc(HEAD + line, "/sp/flashinfer/jit/env.py") == expected


def test_find_spec_finds_what_importlib_finds() -> None:
    from importlib.util import find_spec as real

    for name in ("pydantic", "yaml", "tabulate", "no_such_package"):
        ours, theirs = find_spec(name), real(name)
        assert (ours and ours.origin) == (theirs and theirs.origin)
    assert os.sep in str(find_spec("yaml").origin)
