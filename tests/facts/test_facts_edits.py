"""Whose doing an unsafe all-reduce is."""

from __future__ import annotations

import pytest

from fleetcheck.facts import guards
from fleetcheck.facts.edits import origin
from fleetcheck.facts.records import FileFact, FlashInfer, Fusion

ROOT = "/opt/ml/lib/python3.12/site-packages/flashinfer"


def judged(version: str | None, gate: str, header: str, file: str | None = "jit/comm.py") -> str:
    files = [FileFact(path=f"{ROOT}/{guards.HEADER}", record=header)]
    if file:
        files.append(FileFact(path=f"{ROOT}/{file}", record=gate))
    found = FlashInfer(version=version, root=ROOT, files=tuple(files))
    fusion = Fusion(verdict="unsafe-patch", gate_state="read", gate_file=file, guards=13)
    return origin(found, fusion)


@pytest.mark.parametrize(
    ("version", "gate", "header", "said"),
    [
        ("0.6.2", "mismatch", "match", "gate"),
        ("0.6.2", "mismatch", "mismatch", "gate"),
        ("0.6.2", "no-record", "no-record", "gate"),
        ("0.6.18", "match", "mismatch", "header"),
        ("0.6.18", "mismatch", "mismatch", "header"),
        ("0.6.18", "no-record", "no-record", "header"),
        ("0.2.14", "match", "match", "release"),
        ("0.2.14", "no-record", "no-record", "release"),
        ("0.0.0+unknown", "mismatch", "match", "gate"),
        ("0.0.0+unknown", "match", "mismatch", "header"),
        (None, "no-record", "no-record", "unknown"),
    ],
)
def test_what_was_changed(version: str | None, gate: str, header: str, said: str) -> None:
    assert judged(version, gate, header) == said


def test_a_release_without_a_gate() -> None:
    assert judged("0.2.14", "match", "match", None) == "release"
