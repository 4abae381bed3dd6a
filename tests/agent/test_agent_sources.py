"""Sources that are there in name only, and guards that a comment holds."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from pathlib import Path

import pytest

from fleetcheck.agent.program import sources
from fleetcheck.agent.program.cuts import cut_lines, without_blocks
from fleetcheck.agent.program.distributions import Record
from fleetcheck.agent.program.sources import HEADERS, Seen, changed_sources, describe_csrc, describe_file
from fleetcheck.agent.program.values import Root
from fleetcheck.facts.guards import doubt

GUARD = "#if __CUDA_ARCH__ < 1200\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (GUARD, [1]),
        ("/* was:\n" + GUARD + "*/\n" + GUARD, [4]),
        ("/* one */ " + GUARD, [1]),
        ("// see csrc/*.cu\n" + GUARD + "// and include/*/x\n" + GUARD, [2, 4]),
        ("/* never closed\n" + GUARD, [2]),
        (GUARD + "/**/" + GUARD, [1, 2]),
    ],
)
def test_a_guard_in_a_block_comment_is_none(text: str, lines: list[int]) -> None:
    assert len(without_blocks(text).split("\n")) == len(text.split("\n"))
    told = cut_lines(without_blocks(text), "__CUDA_ARCH__").splitlines()
    assert [int(line.split("\t")[0]) for line in told] == lines


def test_an_emptied_source_is_missing(tmp_path: Path) -> None:
    package = tmp_path / "flashinfer"
    csrc = package / "data" / "csrc"
    csrc.mkdir(parents=True)
    for name, text in (("whole.cu", "x"), ("emptied.cu", ""), ("always_empty.cu", ""), ("edited.cu", "xyz")):
        (csrc / name).write_text(text)
    dist = tmp_path / "flashinfer_python-0.6.2.dist-info"
    dist.mkdir()
    rows = {"whole.cu": 1, "emptied.cu": 900, "always_empty.cu": 0, "edited.cu": 2, "gone.cu": 5}
    (dist / "RECORD").write_text(
        "".join(f"flashinfer/data/csrc/{name},sha256=x,{size}\n" for name, size in rows.items())
    )
    record = Record([{"record": "present"}], [str(dist)], str(package))
    told = describe_csrc(Root(""), str(package), str(csrc), record)
    assert (told["missing"], told["missing_count"], told["listed"]) == (["emptied.cu", "gone.cu"], 2, 5)
    assert told["size_differs"] == ["edited.cu", "emptied.cu"]


def test_a_guard_by_a_feature_of_one_generation_is_told(tmp_path: Path) -> None:
    name = HEADERS[0]
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("int a;\n#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\nint b;\n#endif\n")
    told = describe_file(Root(""), str(tmp_path), name, Record([], [], None))
    assert told["text"] == "2\t#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n"
    assert doubt(told["text"]) == "a condition names a feature of one generation"


class Sources:
    """A package of five sources of ten bytes and its RECORD, which was written after them."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "flashinfer"
        csrc = self.package / "data/csrc/deep"
        csrc.mkdir(parents=True)
        rows = []
        for number in range(5):
            text = f"source {number}.\n"
            (csrc / f"{number}.cu").write_text(text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            rows.append(f"flashinfer/data/csrc/deep/{number}.cu,sha256={digest},{len(text)}\n")
        self.dist = folder / "flashinfer_python-0.6.2.dist-info"
        self.dist.mkdir()
        (self.dist / "RECORD").write_text("".join(rows))

    def edit(self, number: int, when: float) -> None:
        """Change a source without its size, at a time by the file's own clock."""
        path = self.package / f"data/csrc/deep/{number}.cu"
        path.write_text("edited ...")
        os.utime(path, (when, when))

    def changed(self) -> tuple[list[str], int]:
        """Return what is told as changed, and how many were hashed."""
        record = Record([{"record": "present"}], [str(self.dist)], str(self.package))
        names, compared = changed_sources(str(self.package), record)
        return [name.rpartition("/")[2] for name in names], compared


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.setattr(Seen, "listings", {})
    monkeypatch.setattr(Seen, "unhashed", [])
    return Sources(tmp_path)


def test_few_sources_are_all_hashed(own: Sources) -> None:
    own.edit(3, 1000.0)
    assert own.changed() == (["3.cu"], 5)
    assert Seen.unhashed == []


def test_of_many_sources_those_that_changed_last_are_hashed(own: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "HASHED_BYTES", 25)
    record = own.dist / "RECORD"
    late = time.time() + 100
    for number in (2, 4):
        own.edit(number, late + number)
    first = own.package / "data/csrc/deep/0.cu"
    while first.stat().st_ctime <= record.stat().st_ctime:  # the clock of files has a tick of some milliseconds
        own.edit(0, 1000.0)  # its date is set back: when its inode changed tells of it
    names, compared = own.changed()
    assert compared == 2
    assert names == ["2.cu", "4.cu"]
    assert [name.rpartition("/")[2] for name in Seen.unhashed] == ["0.cu"]


def test_a_source_of_another_size_needs_no_hash(own: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "HASHED_BYTES", 0)
    (own.package / "data/csrc/deep/1.cu").write_text("longer than it was")
    names, _ = own.changed()
    assert names == ["1.cu"]
