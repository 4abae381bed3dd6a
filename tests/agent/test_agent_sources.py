"""Sources that are there in name only, and guards that a comment holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetcheck.agent.program.distributions import Record
from fleetcheck.agent.program.sources import cut_lines, describe_csrc, without_blocks
from fleetcheck.agent.program.values import Root

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
