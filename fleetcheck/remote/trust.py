"""Whether the server is who it should be: the policy that Paramiko asks between key exchange and authentication.

A stranger, and a host whose key changed, get no further byte of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import paramiko
import platformdirs

from fleetcheck.remote.failures import LookError, Place
from fleetcheck.remote.hostkey_advice import remove_command, scan_command
from fleetcheck.remote.hostkey_file import HostKeyError, read_text
from fleetcheck.remote.hostkeys import HostKeyIndex, Known, fingerprint

RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")


class HostRoute(Protocol):
    """What trust needs of a route: under which name known_hosts lists the host, and in which files."""

    @property
    def host_key_alias(self) -> str | None: ...
    @property
    def known_hosts_files(self) -> tuple[str, ...]: ...
    @property
    def hash_known_hosts(self) -> bool: ...
    @property
    def revoked_host_keys(self) -> str | None: ...


class KnownHostPolicy(paramiko.MissingHostKeyPolicy):
    """Refuses each key that is not known for one host.

    It takes the place of Paramiko's own check, which knows one key of a type and no revoked ones. ``accepted`` is
    called before authentication begins.
    """

    def __init__(
        self, index: HostKeyIndex, route: HostRoute, place: Place, *,
        accept_new: bool, accepted: Callable[[], None], gateway: str | None = None, proxied: bool = False,
    ) -> None:  # fmt: skip
        self.known: Known = index.lookup(place.host, place.port, route.host_key_alias)
        self._index, self._route, self._place = index, route, place
        self._accept_new, self._accepted, self._gateway, self._proxied = accept_new, accepted, gateway, proxied

    def preferred(self, possible: Sequence[str]) -> tuple[str, ...]:
        """Return the host key algorithms ``possible``, those of known keys first.

        Without it a server with several keys shows one that we do not know.
        """
        first = [
            name for kind in self.known.key_types for name in (RSA_SIGNATURES if kind == "ssh-rsa" else (kind,))
        ]
        wanted = [name for name in first if name in possible]
        return tuple(dict.fromkeys((*wanted, *possible)))

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
        """Return for a key that is known; raises LookError for any other. ``hostname`` is Paramiko's own idea."""
        blob = key.asbytes()
        verdict = "revoked" if self._is_listed(key) else self.known.verdict(blob)
        if verdict == "unknown" and self._accept_new and not self.known.authorities:
            self._record(key.get_name(), blob)
        elif verdict != "known":
            raise self._refusal(verdict, key.get_name(), blob)
        self._accepted()

    def _record(self, kind: str, blob: bytes) -> None:
        place, route = self._place, self._route
        try:
            self._index.record(
                self._file(writable=True), place.host, place.port, kind, blob,
                alias=route.host_key_alias, hashed=route.hash_known_hosts,
            )  # fmt: skip
        except HostKeyError as error:
            message = f"the new host key of {place} could not be recorded: {error}"
            raise LookError("host-key-unknown", "kex", "not-recorded", message) from error

    def _is_listed(self, key: paramiko.PKey) -> bool:
        """Return whether RevokedHostKeys lists ``key``. As for ssh, an unreadable list refuses every key."""
        if self._route.revoked_host_keys is None:
            return False
        path = Path(self._route.revoked_host_keys).expanduser()
        text, _, note = read_text(str(path))
        if note is not None or not path.exists() or text.startswith("SSHKRL"):
            why = note or (f"{path} is a KRL" if text else f"{path} does not exist")
            message = f"whether the host key of {self._place} is revoked cannot be told: RevokedHostKeys: {why}"
            raise LookError("host-key-unknown", "kex", "revocation-list", message)
        return any(key.get_base64() in line.split() for line in text.splitlines())

    def _file(self, *, writable: bool = False) -> str:
        """Return the file that holds this host's keys, or should; our own where the config names /dev/null."""
        named = [path for path in self._route.known_hosts_files if path != "/dev/null"]
        if not named or (writable and self._route.known_hosts_files[0] == "/dev/null"):
            return recorded_hosts()
        return named[0]

    def _refusal(self, verdict: str, kind: str, blob: bytes) -> LookError:
        place, alias, shown = self._place, self._route.host_key_alias, f"{kind} {fingerprint(blob)}"
        scan = scan_command(place.host, place.port, self._file(), alias, self._gateway)
        record, mend = f"record it: {scan}", "&& " + scan
        if self._proxied:
            # ssh-keyscan knows no ProxyCommand, and would record the key of whoever answers without it.
            record = "record it: run the audit of this host with --accept-new, which passes its ProxyCommand"
            mend = "and then run the audit of this host with --accept-new, which passes its ProxyCommand"
        if verdict == "revoked":
            message = f"{place} shows the host key {shown}, which is marked @revoked; it must be given a new one"
            return LookError("host-key-changed", "kex", "revoked", message)
        if verdict == "changed":
            known = self.known.standing(blob)
            file = self._file() if known is None else known.path
            was = f" ({known.key_type} {known.fingerprint}, {known.path}:{known.line})" if known else ""
            remove = remove_command(place.host, place.port, file, alias)
            message = (
                f"{place} shows the host key {shown}, not the one that is known{was}: it was reinstalled, or an "
                f"impostor answers; if the new key is right: {remove} {mend}"
            )
            return LookError("host-key-changed", "kex", "changed", message)
        if self.known.authorities:
            message = (
                f"{place} is known by @cert-authority alone, which cannot be checked here; it shows the host key "
                f"{shown}; compare it, then {record}"
            )
            return LookError("host-key-unknown", "kex", "cert-authority", message)
        message = f"{place} shows the host key {shown}, which is not known; compare it, then {record}"
        return LookError("host-key-unknown", "kex", "unknown", message)


def recorded_hosts() -> str:
    """Return our own known_hosts file, in the state folder: for configs that keep none."""
    return str(Path(platformdirs.user_state_dir("fleetcheck")) / "known_hosts")
