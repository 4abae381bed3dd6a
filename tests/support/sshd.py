"""A real OpenSSH sshd on loopback, for tests and for nothing else.

It listens on addresses of 127.0.0.0/8 alone, admits one fresh key, and runs as root or as an ordinary user (who
can then log in as himself only). Leaving the context ends the daemon, its sessions and all that they started.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

from fleetcheck.inventory.model import Target

READY_SECONDS = 20.0
START_ATTEMPTS = 5


@cache
def find_sshd() -> str | None:
    """Return the absolute path of sshd, None where there is none (sshd insists on an absolute path)."""
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/lib/ssh"))
    found = shutil.which("sshd", path=places)
    return str(Path(found).resolve()) if found and shutil.which("ssh-keygen") else None


SSHD = find_sshd()
NEEDS_SSHD = "needs OpenSSH's sshd and ssh-keygen (package openssh-server)"


def free_port(addresses: Sequence[str] = ("127.0.0.1",)) -> int:
    """Return a TCP port that is free on the first of ``addresses`` at this moment."""
    with socket.socket() as probe:
        probe.bind((addresses[0], 0))
        port: int = probe.getsockname()[1]
        return port


def make_key(path: Path, kind: str = "ed25519", *, passphrase: str = "", bits: int | None = None) -> Path:
    """Create a key pair ``path`` and ``path.pub`` and return ``path``."""
    size = [] if bits is None else ["-b", str(bits)]
    command = ["ssh-keygen", "-q", "-t", kind, *size, "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return path


def descendants(root: int) -> list[int]:
    """Return the ids of all live processes below the process ``root``, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def wait_until(true: Callable[[], bool], seconds: float = READY_SECONDS) -> bool:
    """Wait until ``true()`` holds; return False where it did not within ``seconds``."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Sshd:
    """``with Sshd() as sshd:`` a daemon on ``127.0.0.1`` (and on up to 15 more loopback addresses).

    ``options`` are further lines of sshd_config, before the defaults, so that they win. ``users`` may log in
    besides the current user; their accounts must not be locked. ``host_keys`` are the types of its host keys.
    ``environment`` adds variables to every session.
    """

    def __init__(
        self,
        *,
        addresses: int = 1,
        options: Iterable[str] = (),
        users: Iterable[str] = (),
        host_keys: Sequence[str] = ("ed25519",),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.addresses = tuple(f"127.0.0.{number}" for number in range(1, addresses + 1))
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.port = 0
        self._options, self._host_keys = tuple(options), tuple(host_keys)
        self._users = (self.user, *users)
        self._environment = dict(environment or {})
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if SSHD is None:
            raise RuntimeError(NEEDS_SSHD)
        # Not pytest's tmp_path, which is closed to others: sshd reads the keys as the user who logs in.
        self.folder = Path(tempfile.mkdtemp(prefix="fleetcheck-sshd-"))
        try:
            self.folder.chmod(0o755)
            self.home = self.folder / "home"
            self.home.mkdir()
            self.log = self.folder / "log"
            self.key = make_key(self.folder / "client_key")
            self.host_key_files = [make_key(self.folder / f"host_{kind}", kind) for kind in self._host_keys]
            self.authorized_keys = self.folder / "authorized_keys"
            self.authorized_keys.write_text(Path(f"{self.key}.pub").read_text())
            self.known_hosts = self.folder / "known_hosts"
            if os.geteuid() == 0:
                Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd of root refuses to start without it
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._daemon is not None:
            victims = [self._daemon.pid, *descendants(self._daemon.pid)]
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._daemon.wait()
            self._daemon = None
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def host_key(self) -> Path:
        """The private file of the first host key."""
        return self.host_key_files[0]

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        assert self._daemon is not None
        return self._daemon.pid

    def target(self, name: str, **keys: Any) -> Target:
        """Return a target of this name that reaches this daemon; ``keys`` add to or replace its keys."""
        defaults: dict[str, Any] = {
            "address": self.addresses[0],
            "port": self.port,
            "user": self.user,
            "identity_file": str(self.key),
            "known_hosts": str(self.known_hosts),
        }
        return Target(name=name, **(defaults | keys))

    def known_hosts_lines(self, port: int | None = None) -> str:
        """Return the lines of known_hosts that name this daemon's keys, at ``port`` where it is given."""
        names = ",".join(f"[{address}]:{port or self.port}" for address in self.addresses)
        keys = (Path(f"{key}.pub").read_text().split()[:2] for key in self.host_key_files)
        return "".join(f"{names} {kind} {blob}\n" for kind, blob in keys)

    def sessions(self) -> list[int]:
        """Return the live processes below the daemon: sessions and all that they run."""
        return descendants(self.pid)

    def wait_idle(self, seconds: float = READY_SECONDS) -> bool:
        """Wait until no session and nothing that one started is left; return whether that came true."""
        return wait_until(lambda: not self.sessions(), seconds)

    def _config(self) -> str:
        listen = [f"ListenAddress {address}:{self.port}" for address in self.addresses]
        # The developer's own login files must not run in a test; sshd's SetEnv wins over the account's HOME.
        variables = {"HOME": str(self.home), **self._environment}
        lines = [
            *self._options,
            *listen,
            *(f"HostKey {key}" for key in self.host_key_files),
            f"PidFile {self.folder / 'pid'}",
            f"AuthorizedKeysFile {self.authorized_keys}",
            f"AllowUsers {' '.join(self._users)}",
            "SetEnv " + " ".join(f'"{name}={value}"' for name, value in variables.items()),
            "AuthenticationMethods publickey",
            "PermitRootLogin prohibit-password",
            "StrictModes no",
            "UsePAM no",
            "UseDNS no",
            "PrintMotd no",
            "MaxStartups 1000:30:1000",
            "LogLevel VERBOSE",
        ]
        return "\n".join(lines) + "\n"

    def _start(self) -> None:
        assert SSHD is not None
        config = self.folder / "sshd_config"
        for attempt in range(1, START_ATTEMPTS + 1):
            self.port = free_port(self.addresses)
            config.write_text(self._config())
            # OpenSSH 9.8 and later punish an address for failed logins; older ones do not know the word.
            lenient = [SSHD, "-t", "-f", str(config), "-o", "PerSourcePenalties=no"]
            if subprocess.run(lenient, capture_output=True, check=False, timeout=60).returncode == 0:
                config.write_text(self._config() + "PerSourcePenalties no\n")
            self.log.write_bytes(b"")
            with self.log.open("wb") as log:
                command = [SSHD, "-D", "-e", "-f", str(config)]
                self._daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if self._listening():
                self.known_hosts.write_text(self.known_hosts_lines())
                return
            self._daemon.kill()
            self._daemon.wait()
            if attempt == START_ATTEMPTS or "already in use" not in self.log.read_text(errors="replace"):
                raise RuntimeError(f"sshd did not start: {self.log.read_text(errors='replace')}")

    def _listening(self) -> bool:
        daemon = self._daemon
        assert daemon is not None

        def settled() -> bool:
            text = self.log.read_text(errors="replace")
            return daemon.poll() is not None or text.count("Server listening on") >= len(self.addresses)

        return wait_until(settled) and daemon.poll() is None and "already in use" not in self.log.read_text()
