"""Whom we trust: an index over known_hosts files, linear to read, asked once a host.

In: paths of known_hosts files. Out: :class:`Known`, the keys that are known for one host and what they make of
the key that a server shows. Paramiko's own reader compares every line with every other (paramiko#2251).
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from fleetcheck.remote.hostkey_file import MAX_NOTES, HostKeyError, Stamp, append_line, hashed_name, read_text
from fleetcheck.remote.hostkey_line import (
    SHA1_BYTES,
    BrokenLineError,
    Entry,
    HostKey,
    fingerprint,
    is_key_blob,
    matches,
    parse_hashed,
    parse_line,
    parse_revoked,
)

__all__ = [
    "DEFAULT_PORT",
    "HostKey",
    "HostKeyError",
    "HostKeyIndex",
    "Known",
    "Verdict",
    "fingerprint",
    "lookup_name",
]

DEFAULT_PORT = 22
Verdict = Literal["known", "unknown", "changed", "revoked"]

# HMAC-SHA1 spelled out: the padded salts are made once, at load, so that a look-up costs two hashes a line and
# no more.
_INNER = bytes(value ^ 0x36 for value in range(256))
_OUTER = bytes(value ^ 0x5C for value in range(256))
_PADDING = bytes(64 - SHA1_BYTES)


def lookup_name(host: str, port: int = DEFAULT_PORT, alias: str | None = None) -> str:
    """Return the name under which known_hosts lists a host: ``host``, ``[host]:port``, or the alias alone."""
    if alias is not None:
        return alias
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


@dataclass(frozen=True, slots=True)
class Known:
    """What the files say of one host, which they list as ``name``.

    ``keys`` are listed for exactly that name. ``portless`` are listed for the host without its port, and looked
    at only where ``keys`` is empty: as for ssh, a key that is among them is known, any other is unknown, not
    changed. ``revoked`` keys are refused wherever they turn up. ``authorities`` have signed host certificates,
    which Paramiko cannot check: a host that is known by its authority alone is unknown here.
    """

    name: str
    keys: tuple[HostKey, ...] = ()
    portless: tuple[HostKey, ...] = ()
    revoked: tuple[HostKey, ...] = ()
    authorities: tuple[HostKey, ...] = ()

    @property
    def key_types(self) -> tuple[str, ...]:
        """Return the types of the known keys, each once: what a client should ask for first."""
        return tuple(dict.fromkeys(key.key_type for key in self.keys or self.portless))

    def verdict(self, blob: bytes) -> Verdict:
        """Return what is to be made of the public key ``blob`` that a server shows.

        As for ssh, a key of another type than the known ones is ``changed``: who stands in between picks his
        type freely.
        """
        if any(key.blob == blob for key in self.revoked):
            return "revoked"
        if any(key.blob == blob for key in self.keys or self.portless):
            return "known"
        return "changed" if self.keys else "unknown"

    def standing(self, blob: bytes) -> HostKey | None:
        """Return the key that a message about ``blob`` should name: the revoked one, else the one it replaces.

        A key of the same type comes before one of another type. None where nothing is known.
        """
        revoked = [key for key in self.revoked if key.blob == blob]
        start = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")
        same_type = [key for key in self.keys if key.key_type == start]
        return next(iter((*revoked, *same_type, *self.keys)), None)


class _Table:
    """The lines under one marker. A plain name costs one look-up; the other lines are tried one by one."""

    __slots__ = ("exact", "hashed", "patterns")

    def __init__(self) -> None:
        self.exact: dict[str, list[HostKey]] = {}
        self.hashed: list[tuple[bytes, bytes, bytes, HostKey]] = []
        self.patterns: list[tuple[tuple[str, ...], HostKey]] = []

    def add(self, hosts: str, key: HostKey) -> None:
        """Add one line; raises BrokenLineError for a hashed name that is none."""
        if hosts.startswith("|"):
            salt, digest = parse_hashed(hosts)
            padded = salt + _PADDING
            self.hashed.append((padded.translate(_INNER), padded.translate(_OUTER), digest, key))
        elif "*" in hosts or "?" in hosts or "!" in hosts:
            self.patterns.append((tuple(hosts.lower().split(",")), key))
        else:
            for name in hosts.lower().split(","):
                self.exact.setdefault(name, []).append(key)

    def find(self, name: str) -> Iterator[HostKey]:
        """Yield the keys of all lines that name ``name``."""
        lowered = name.lower()
        yield from self.exact.get(lowered, ())
        if self.patterns:
            yield from (key for patterns, key in self.patterns if matches(lowered, patterns))
        if self.hashed:
            sha1 = hashlib.sha1
            # ssh hashes the name in lower case; `ssh-keygen -H` hashes it as it stood in the file.
            for message in dict.fromkeys((lowered.encode(errors="replace"), name.encode(errors="replace"))):
                for inner, outer, digest, key in self.hashed:
                    if sha1(outer + sha1(inner + message).digest()).digest() == digest:
                        yield key


class HostKeyIndex:
    """All keys of some known_hosts files. Threads may look up and record side by side.

    ``notes`` says which lines and files could not be read, at most a score of lines.
    """

    def __init__(self) -> None:
        self._tables = {marker: _Table() for marker in ("", "@revoked", "@cert-authority")}
        self._lock = threading.Lock()
        self._stamps: dict[str, Stamp | None] = {}
        self._revoked: dict[str, tuple[HostKey, ...]] = {}
        self.notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, paths: Iterable[str]) -> HostKeyIndex:
        """Read ``paths`` in order, in time linear in their lines. A missing file is empty; nothing raises."""
        index = cls()
        notes: list[str] = []
        for path in dict.fromkeys(paths):
            text, stamp, note = read_text(path)
            index._stamps[path] = stamp
            notes += [note] if note else []
            for number, line in enumerate(text.split("\n"), 1):
                try:
                    entry = parse_line(line)
                    if entry is not None:
                        index._add(entry, path, number)
                except BrokenLineError as error:
                    notes.append(f"{path}:{number}: skipped: {error}")
        hidden = len(notes) - MAX_NOTES
        index.notes = tuple(notes[:MAX_NOTES] + ([f"{hidden} more lines were skipped"] if hidden > 0 else []))
        return index

    def _add(self, entry: Entry, path: str, number: int) -> None:
        key = HostKey(entry.key_type, entry.blob, path, number)
        self._tables[entry.marker].add(entry.hosts, key)

    def lookup(
        self, host: str, port: int = DEFAULT_PORT, alias: str | None = None, revoked_file: str | None = None
    ) -> Known:
        """Return what is known of ``host`` (a name or an address, as connected to) at ``port``.

        ``alias`` is ssh's HostKeyAlias: it takes the place of host and port. ``revoked_file`` is ssh's
        RevokedHostKeys; where it cannot be read, no host can be trusted, and :class:`HostKeyError` says so.
        Costs about 0.8 ms of CPU a 1,000 hashed lines, since every salt must be tried; next to nothing
        otherwise.
        """
        name = lookup_name(host, port, alias)
        with_port = name != host and alias is None
        keys = self._find("", name)
        # Stricter than ssh, which forgets that a key is revoked for the host where the line names no port.
        names = (name, host) if with_port else (name,)
        revoked = tuple(key for each in names for key in self._find("@revoked", each))
        revoked += () if revoked_file is None else self._revoked_in(revoked_file)
        portless = self._find("", host) if with_port and not keys else ()
        return Known(name, keys, portless, revoked, self._find("@cert-authority", name))

    def _find(self, marker: str, name: str) -> tuple[HostKey, ...]:
        unique: dict[bytes, HostKey] = {}
        for key in self._tables[marker].find(name):
            unique.setdefault(key.blob, key)
        return tuple(unique.values())

    def _revoked_in(self, path: str) -> tuple[HostKey, ...]:
        found = self._revoked.get(path)
        if found is None:
            text, stamp, note = read_text(path)
            if stamp is None:
                raise HostKeyError(
                    f"the RevokedHostKeys file {note or f'{path} does not exist'}; no host is trusted"
                )
            try:
                found = self._revoked[path] = parse_revoked(text, path)
            except ValueError as error:
                raise HostKeyError(f"the RevokedHostKeys file {path}: {error}; no host is trusted") from error
        return found

    def record(
        self,
        path: str,
        host: str,
        port: int,
        key_type: str,
        blob: bytes,
        *,
        alias: str | None = None,
        hashed: bool = False,
    ) -> bool:
        """Append the key of a host that was never seen to the file ``path``; return whether a line was added.

        A known key adds nothing. ``hashed`` writes the name as ssh does under HashKnownHosts. What other
        programs added meanwhile is read again first. Raises :class:`HostKeyError` for a changed or revoked key,
        which is never recorded, for a key that is none, and for a file that cannot be written.
        """
        name = lookup_name(host, port, alias)
        if not is_key_blob(key_type, blob) or not name.isprintable() or any(mark in name for mark in " ,*?!|@#"):
            raise HostKeyError(f"the key of {name!r} cannot be recorded: not a {key_type} key of a plain name")

        def line(stamp: Stamp) -> str | None:
            """Decide under the file's lock; None where there is nothing to add."""
            if self._stamps.get(path) != stamp:
                self._reload(path)
            verdict = self.lookup(host, port, alias).verdict(blob)
            if verdict in ("revoked", "changed"):
                raise HostKeyError(f"the host key of {name} is {verdict}; it is not recorded in {path}")
            if verdict == "known":
                return None
            listed = hashed_name(name.lower()) if hashed else name.lower()
            return f"{listed} {key_type} {base64.b64encode(blob).decode()}"

        with self._lock:
            added, self._stamps[path], number = append_line(path, line)
            if added:
                self._add(Entry("", name.lower(), key_type, blob), path, number)
        return added

    def _reload(self, path: str) -> None:
        """Read all files again, ``path`` included: another program has written to it."""
        fresh = HostKeyIndex.load([*self._stamps, path])
        self._tables, self._stamps, self.notes = fresh._tables, fresh._stamps, fresh.notes
