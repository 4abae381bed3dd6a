"""What the index says of hosts, and how it reads files that are missing, closed or no files at all."""

from __future__ import annotations

import base64
import os
import struct
from pathlib import Path

import pytest

from fleetcheck.remote.hostkey_file import MAX_NOTES, hashed_name
from fleetcheck.remote.hostkeys import HostKeyError, HostKeyIndex, fingerprint


def blob(number: int, kind: str = "ssh-ed25519") -> bytes:
    """Return a public key in wire form; ``number`` tells one from another."""
    fields = {"ssh-ed25519": [bytes([number]) * 32], "ssh-rsa": [b"\x01\x00\x01", bytes([number + 1]) * 256]}[kind]
    return b"".join(struct.pack(">I", len(field)) + field for field in (kind.encode(), *fields))


def line(hosts: str, number: int, kind: str = "ssh-ed25519") -> str:
    return f"{hosts} {kind} {base64.b64encode(blob(number, kind)).decode()}\n"


def load(tmp_path: Path, *texts: str) -> HostKeyIndex:
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"known_hosts{number}"
        path.write_text(text)
        paths.append(str(path))
    return HostKeyIndex.load(paths)


@pytest.mark.parametrize(
    ("text", "port", "shown", "verdict"),
    [
        ("", 22, 1, "unknown"),
        (line("gpu1", 1), 22, 1, "known"),
        (line("gpu1", 1), 22, 2, "changed"),
        (line("gpu1", 1) + line("gpu1", 2), 22, 2, "known"),
        (line("gpu1", 1, "ssh-rsa"), 22, 1, "changed"),
        (line("other,gpu1", 1), 22, 1, "known"),
        (line("GPU1", 1), 22, 1, "known"),
        (line("[gpu1]:2222", 1), 2222, 1, "known"),
        (line("[gpu1]:2222", 1), 22, 1, "unknown"),
        (line("gpu1", 1), 2222, 1, "known"),
        (line("gpu1", 1), 2222, 2, "unknown"),
        (line("[gpu1]:2222", 2) + line("gpu1", 1), 2222, 1, "changed"),
        (line("gpu*,!gpu1", 1), 22, 1, "unknown"),
        (line("gpu*,!gpu2", 1), 22, 1, "known"),
        (line(hashed_name("gpu1"), 1), 22, 1, "known"),
        (line(hashed_name("[gpu1]:2222"), 1), 2222, 2, "changed"),
        ("@revoked " + line("*", 1) + line("gpu1", 1), 22, 1, "revoked"),
        ("@revoked " + line("*", 2) + line("gpu1", 1), 22, 1, "known"),
        ("@revoked " + line("gpu1", 1) + line("[gpu1]:2222", 1), 2222, 1, "revoked"),
        ("@revoked\t" + line("gpu1", 1) + line("gpu1", 1), 22, 1, "revoked"),
        ("@cert-authority " + line("*", 1), 22, 1, "unknown"),
        ("@cert-authority " + line("*", 1) + line("gpu1", 2), 22, 1, "changed"),
    ],
)
def test_verdict(tmp_path: Path, text: str, port: int, shown: int, verdict: str) -> None:
    assert load(tmp_path, text).lookup("gpu1", port).verdict(blob(shown)) == verdict


def test_the_alias_takes_the_place_of_host_and_port(tmp_path: Path) -> None:
    index = load(tmp_path, line("rack", 1) + line("[gpu1]:2222", 2) + line("gpu1", 2))
    known = index.lookup("gpu1", 2222, alias="rack")
    assert (known.name, known.verdict(blob(1)), known.verdict(blob(2))) == ("rack", "known", "changed")


def test_several_files_and_types_of_one_host(tmp_path: Path) -> None:
    index = load(tmp_path, line("gpu1", 1), line("gpu1", 1) + line("gpu1", 3, "ssh-rsa"))
    known = index.lookup("gpu1")
    assert known.key_types == ("ssh-ed25519", "ssh-rsa")
    assert [(Path(key.path).name, key.line) for key in known.keys] == [("known_hosts0", 1), ("known_hosts1", 2)]
    standing = known.standing(blob(9, "ssh-rsa"))
    assert standing is not None
    assert standing.fingerprint == fingerprint(blob(3, "ssh-rsa"))


def test_an_authority_is_reported_and_not_used(tmp_path: Path) -> None:
    known = load(tmp_path, "@cert-authority " + line("*.lab", 1)).lookup("gpu1.lab")
    assert [key.blob for key in known.authorities] == [blob(1)]
    assert known.keys == ()


def test_broken_lines_are_named_and_hide_nothing(tmp_path: Path) -> None:
    text = "gpu1 ssh-ed25519 AAAA\n@what gpu1 ssh-ed25519 AAAA\n\xff\xfe\n" + line("gpu1", 1)
    index = load(tmp_path, text)
    path = tmp_path / "known_hosts0"
    assert index.notes[0] == f"{path}:1: skipped: the key is not a whole ssh-ed25519 key"
    assert index.notes[1] == f"{path}:2: skipped: unknown marker '@what'"
    assert index.lookup("gpu1").verdict(blob(1)) == "known"


def test_notes_are_bounded(tmp_path: Path) -> None:
    notes = load(tmp_path, "broken\n" * 500).notes
    assert len(notes) == MAX_NOTES + 1
    assert notes[-1] == f"{500 - MAX_NOTES} more lines were skipped"


def test_files_that_are_not_read(tmp_path: Path) -> None:
    fifo, folder, good = tmp_path / "fifo", tmp_path / "folder", tmp_path / "good"
    os.mkfifo(fifo)
    folder.mkdir()
    good.write_text(line("gpu1", 1))
    paths = [tmp_path / "missing", Path(os.devnull), fifo, folder, good]
    index = HostKeyIndex.load([*map(str, paths), "with\0nul"])
    assert [note.split(":")[0] for note in index.notes] == [str(fifo), str(folder), "with\0nul"]
    assert index.lookup("gpu1").verdict(blob(1)) == "known"


def test_a_file_that_cannot_be_opened_is_noted(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert HostKeyIndex.load([str(loop)]).notes == (f"{loop}: not read: Too many levels of symbolic links",)


def test_revoked_host_keys_file(tmp_path: Path) -> None:
    index = load(tmp_path, line("gpu1", 1) + line("gpu1", 2))
    revoked = tmp_path / "revoked"
    revoked.write_text("# lost on a train\nnonsense\n" + line("", 1).strip() + " comment\n")
    known = index.lookup("gpu1", revoked_file=str(revoked))
    assert [known.verdict(blob(number)) for number in (1, 2)] == ["revoked", "known"]


@pytest.mark.parametrize("content", [None, b"SSHKRL\n\0" + bytes(40)])
def test_revoked_host_keys_that_cannot_be_read_trust_nobody(tmp_path: Path, content: bytes | None) -> None:
    revoked = tmp_path / "revoked"
    if content is not None:
        revoked.write_bytes(content)
    with pytest.raises(HostKeyError, match="no host is trusted"):
        load(tmp_path, line("gpu1", 1)).lookup("gpu1", revoked_file=str(revoked))
