"""One line of a known_hosts file, read as sshd(8) describes it under SSH_KNOWN_HOSTS FILE FORMAT.

In: the text of a line. Out: whom it names, with which key, under which marker; or why it says nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Literal

Marker = Literal["", "@revoked", "@cert-authority"]

# Number of fields behind the type name in a key's blob (RFC 4253 §6.6, RFC 5656 §3.1, RFC 8709 §4,
# PROTOCOL.u2f).
BLOB_FIELDS = {
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ssh-dss": 4,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
KRL_MAGIC = "SSHKRL\n"
ED25519_BYTES = 32
SHA1_BYTES = 20
WILDCARDS = frozenset("*?")

# Blanks are space and tab alone, as for ssh: str.split() would also cut at a no-break space or a form feed.
_LINE = re.compile(r"(?:(@[^ \t]*)[ \t]+)?([^ \t]+)[ \t]+([^ \t]+)[ \t]+([^ \t]+)")


@dataclass(frozen=True, slots=True)
class HostKey:
    """One public key and where it stands. ``blob`` is the key as it goes over the wire, its type included."""

    key_type: str
    blob: bytes
    path: str
    line: int

    @property
    def fingerprint(self) -> str:
        """Return the key's fingerprint as ``ssh-keygen -l`` prints it."""
        return fingerprint(self.blob)


class BrokenLineError(ValueError):
    """A line of known_hosts that says nothing; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that names hosts: ``hosts`` is the raw field, comma-separated patterns or one hashed name."""

    marker: Marker
    hosts: str
    key_type: str
    blob: bytes


def fingerprint(blob: bytes) -> str:
    """Return ``SHA256:…`` for a public key's ``blob``, as ssh and ssh-keygen print it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def parse_line(text: str) -> Entry | None:
    """Return what one line says, None for a comment or an empty line.

    Raises :class:`BrokenLineError` for a line that OpenSSH would skip as well.
    """
    text = text.strip(" \t\r\n")
    if not text or text.startswith("#"):
        return None
    found = _LINE.match(text)
    if found is None:
        raise BrokenLineError("not a host, a key type and a key")
    marker, hosts, key_type, encoded = found.groups(default="")
    if hosts.startswith("@") or marker not in ("", "@revoked", "@cert-authority"):
        raise BrokenLineError(f"unknown marker {(marker or hosts)[:40]!r}")
    if key_type not in BLOB_FIELDS:
        raise BrokenLineError(f"unknown key type {key_type[:40]!r}")
    try:
        blob = binascii.a2b_base64(encoded.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise BrokenLineError("the key is not base64") from None
    if not is_key_blob(key_type, blob):
        raise BrokenLineError(f"the key is not a whole {key_type} key")
    return Entry(marker, hosts, key_type, blob)  # type: ignore[arg-type]  # one of three, tested above


def parse_revoked(text: str, path: str) -> tuple[HostKey, ...]:
    """Return the keys in the text of a RevokedHostKeys file: a public key a line, what is none is skipped as
    ssh does.

    Raises ValueError for a key revocation list, ssh's binary form of it.
    """
    if text.startswith(KRL_MAGIC):
        raise ValueError("it is a binary revocation list (KRL); only a list of public keys can be read")
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            entry = parse_line("* " + line.strip(" \t\r")) if line.strip(" \t\r") else None
        except BrokenLineError:
            continue
        if entry is not None:
            found.append(HostKey(entry.key_type, entry.blob, path, number))
    return tuple(found)


def is_key_blob(key_type: str, blob: bytes) -> bool:
    """Return whether ``blob`` is a whole public key of ``key_type``, by its framing (RFC 4251 §5)."""
    fields, at, end = [], 0, len(blob)
    while at < end:
        start = at + 4
        at = start + int.from_bytes(blob[at:start], "big")
        if at > end:
            return False
        fields.append(blob[start:at])
    if len(fields) != BLOB_FIELDS.get(key_type, -1) + 1 or fields[0] != key_type.encode():
        return False
    return key_type != "ssh-ed25519" or len(fields[1]) == ED25519_BYTES


def parse_hashed(hosts: str) -> tuple[bytes, bytes]:
    """Return salt and digest of a hashed name ``|1|salt|digest``, 20 bytes each (HMAC-SHA1, keyed by the salt)."""
    parts = hosts.split("|")
    try:
        if len(parts) == 4 and parts[:2] == ["", "1"]:
            salt = binascii.a2b_base64(parts[2].encode("ascii"), strict_mode=True)
            digest = binascii.a2b_base64(parts[3].encode("ascii"), strict_mode=True)
            if len(salt) == len(digest) == SHA1_BYTES:
                return salt, digest
    except (binascii.Error, UnicodeEncodeError):
        pass
    raise BrokenLineError("the hashed name is not |1|salt|hash")


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether the list of ``patterns`` names ``name``, both in lower case; one negated match refuses."""
    found = False
    for pattern in patterns:
        if pattern.startswith("!"):
            if matches_one(name, pattern[1:]):
                return False
        elif not found and matches_one(name, pattern):
            found = True
    return found


def matches_one(name: str, pattern: str) -> bool:
    """Return whether ``pattern`` (``*`` any run, ``?`` one character, no brackets) covers all of ``name``.

    In steps bounded by the product of both lengths: a line with many stars cannot stall the run.
    """
    head, star, tail = pattern.partition("*")
    if "?" not in pattern and "*" not in tail:  # nearly all: `*.lab`, `gpu*`, a plain name
        if not star:
            return name == pattern
        return len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail)
    at = place = 0
    last_star, resume = -1, 0
    while at < len(name):
        if place < len(pattern) and pattern[place] == "*":
            last_star, resume, place = place, at, place + 1
        elif place < len(pattern) and pattern[place] in ("?", name[at]):
            at, place = at + 1, place + 1
        elif last_star >= 0:
            resume += 1
            at, place = resume, last_star + 1
        else:
            return False
    return not pattern[place:].strip("*")
