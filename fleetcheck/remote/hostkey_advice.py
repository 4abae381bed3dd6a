"""The exact commands that mend a host key, quoted for a POSIX shell. Nothing here runs them.

In: a host, a port, a file, a HostKeyAlias. Out: one line to paste.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from fleetcheck.remote.hostkeys import DEFAULT_PORT, lookup_name


def remove_command(host: str, port: int, path: str, alias: str | None = None) -> str:
    """Return the command that forgets the keys of a host: ``ssh-keygen -R '[gpu1]:2222' -f FILE``."""
    return shlex.join(["ssh-keygen", "-R", lookup_name(host, port, alias), "-f", path])


def scan_command(
    host: str,
    port: int,
    path: str,
    alias: str | None = None,
    gateway: str | None = None,
    *,
    more: Sequence[str] = (),
) -> str:
    """Return the command that records the keys that a host shows now: ``ssh-keyscan -p 2222 gpu1 >> FILE``.

    ``alias`` is written in place of the host's name. ``gateway`` (as ``ssh`` takes it) is where the command
    must run for a host that only the gateway can reach. ``more`` are further hosts, at the same port. What it
    records is as trustworthy as the network between.
    """
    command = shlex.join(["ssh-keyscan", *(["-p", str(port)] if port != DEFAULT_PORT else []), host, *more])
    if gateway is not None:
        command = shlex.join(["ssh", gateway, command])
    if alias is not None:
        # ssh-keyscan writes the name that it was given, which known_hosts is not asked for.
        name = re.sub(r"([\\/&])", r"\\\1", alias)
        command += " | sed " + shlex.quote(f"s/^[^# ]*/{name}/")
    return f"{command} >> {shlex.quote(path)}"
