"""RECORD as pip writes it, read in pieces: every row counted and found, wherever a piece ends."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from agent_host import Host, look

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program import distributions
from fleetcheck.agent.program.distributions import RECORD_PIECE, Record, describe_dist, line_lists
from fleetcheck.agent.program.values import Root

SMALL_MIB = 24


def written(folder: Path, text: bytes) -> tuple[Record, list[dict[str, object]]]:
    """Return what is read of a RECORD with this text, of the package ``flashinfer`` beside it."""
    info = folder / "flashinfer_python-0.7.4.dist-info"
    info.mkdir()
    (folder / "flashinfer").mkdir()
    (info / "METADATA").write_text("Name: flashinfer-python\nVersion: 0.7.4\n\n")
    (info / "RECORD").write_bytes(text)
    dists = [describe_dist(Root(""), str(info))]
    return Record(dists, [str(info)], str(folder / "flashinfer"), ("data/csrc/",)), dists


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_a_large_record_is_read_whole(tmp_path: Path, ending: str, last: bool) -> None:
    out = io.StringIO()
    rows = csv.writer(out, lineterminator=ending)
    wanted = {}
    for number in range(18_271):
        folder = "csrc" if number % 4 == 0 else "cutlass"
        comma = "," if number % 1000 == 0 else ""
        name = f"data/{folder}/ä{comma}{'x' * (number % 97)}{number}.cu"
        rows.writerow((f"flashinfer/{name}", f"sha256={number:043}", number))
        if folder == "csrc":
            wanted[name] = (f"{number:043}", number)
    text = out.getvalue().encode()
    assert len(text) > 4 * RECORD_PIECE
    record, dists = written(tmp_path, text if last else text[: -len(ending)])
    assert dists[0]["record_count"] == 18_271
    assert record.known
    assert record.files == wanted


def test_rows_that_turn_out_to_be_wanted(tmp_path: Path) -> None:
    record, _ = written(tmp_path, b"flashinfer/utils.py,sha256=a,1\nflashinfer/utils.pyi,sha256=b,2\n,,\n" * 2)
    assert not record.known  # nothing of what was asked for
    (tmp_path / "flashinfer_python-0.7.4.dist-info/RECORD").write_bytes(
        b"flashinfer/utils.py,sha256=a,1\nflashinfer/utils.pyi,sha256=b,2\nflashinfer/data/csrc/x.cu,sha256=c,3\n"
    )
    dists = [describe_dist(Root(""), str(tmp_path / "flashinfer_python-0.7.4.dist-info"))]
    place = str(tmp_path / "flashinfer_python-0.7.4.dist-info")
    record = Record(dists, [place], str(tmp_path / "flashinfer"), ("data/csrc/",))
    record.add(["utils.py", "gone.py"])
    assert record.files == {"data/csrc/x.cu": ("c", 3), "utils.py": ("a", 1)}


@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\nb", b"a\n\nb\n", b"\xff\n", b"ab\ncd\nef" * 5])
@pytest.mark.parametrize("piece", [1, 2, 3, 7])
def test_pieces_make_the_same_lines_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, piece: int
) -> None:
    monkeypatch.setattr(distributions, "RECORD_PIECE", piece)
    (tmp_path / "RECORD").write_bytes(text)
    found = [line for lines in line_lists(str(tmp_path / "RECORD"), 1 << 20) for line in lines if line]
    assert found == [line for line in text.decode("utf-8", "replace").splitlines() if line]
    least = list(line_lists(str(tmp_path / "RECORD"), 4))
    assert "".join(line for lines in least for line in lines) == text[:4].decode("utf-8", "replace").replace(
        "\n", ""
    )


def test_a_look_stays_within_its_memory(tmp_path: Path) -> None:
    host = Host(tmp_path / "root")
    site = host.venv("/opt/ml")
    record = next(site.glob("*.dist-info")) / "RECORD"
    # As many rows, and as many of them among the sources, as the largest release has.
    folders = ("csrc" if number < 5_200 else "cutlass" for number in range(18_271))
    more = (
        f"flashinfer/data/{folder}/{'x' * 60}{number}.cu,sha256={number:043},{number}"
        for number, folder in enumerate(folders)
    )
    record.write_text(record.read_text() + "\n".join(more) + "\n")
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",)))
    (dist,) = answer.venv()["packages"]["flashinfer"]["dists"]
    assert dist["record_count"] > 18_271
    assert answer.parts["end"]["max_rss_kib"] / 1024 < SMALL_MIB
