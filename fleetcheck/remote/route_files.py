"""The local files that a route names: keys, certificates, known_hosts, the agent's socket.

In: values as ``ssh -G`` prints them, and the inventory's own. Out: paths, expanded, and a word on those that
are missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from platformdirs import user_state_path

from fleetcheck.remote.tokens import expand_home, expand_path

SOCKET_VARIABLE = "SSH_AUTH_SOCK"
_DEFAULT_KINDS = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "mldsa_44_ed25519", "xmss", "dsa")
DEFAULT_IDENTITIES = frozenset(f"~/.ssh/id_{kind}" for kind in _DEFAULT_KINDS)
CERTIFICATE_SUFFIX = "-cert.pub"


def is_none(value: str) -> bool:
    """Return whether a value is ssh's word for "not at all"."""
    return value.lower() == "none"


def identities(values: Iterable[str], tokens: Mapping[str, str], warnings: list[str]) -> tuple[str, ...]:
    """Return the private keys that ``IdentityFile`` names, each once, in order, those that are not there left
    out.

    A key whose private half is missing but whose ``.pub`` is there stays: the agent may hold it. What the user
    named and is missing goes to ``warnings``.
    """
    found = []
    for value in values:
        if is_none(value):
            continue
        path = expand_path(value, tokens)
        if _exists(path) or _exists(path + ".pub"):
            found.append(path)
        elif value not in DEFAULT_IDENTITIES:
            warnings.append(f"the identity file {path} does not exist")
    return tuple(dict.fromkeys(found))


def certificates(
    values: Iterable[str], keys: Iterable[str], tokens: Mapping[str, str], warnings: list[str]
) -> tuple[str, ...]:
    """Return the certificates that ``CertificateFile`` names, then those beside ``keys``."""
    found = []
    for value in values:
        if is_none(value):
            continue
        path = expand_path(value, tokens)
        if _exists(path):
            found.append(path)
        else:
            warnings.append(f"the certificate file {path} does not exist")
    found += [path for path in (key + CERTIFICATE_SUFFIX for key in keys) if _exists(path)]
    return tuple(dict.fromkeys(found))


def agent_socket(value: str | None, tokens: Mapping[str, str]) -> str | None:
    """Return the agent's socket for ``IdentityAgent``; None for no agent. A ``value`` of None is not set."""
    if value is None or value == SOCKET_VARIABLE:
        return os.environ.get(SOCKET_VARIABLE) or None
    if is_none(value):
        return None
    if value.startswith("$") and not value.startswith("${"):
        return os.environ.get(value[1:]) or None
    return expand_path(value, tokens)


def trusted_files(chosen: Sequence[str] | None, user: str, system: str) -> tuple[str, ...]:
    """Return the known_hosts files to read; a new key is recorded in the first.

    ``chosen`` by the inventory or the command line are the only ones that are read. Else they are those of the
    values ``user`` and ``system`` of the ssh config. Where the first would be /dev/null, a file in fleetcheck's
    state folder takes its place.
    """
    if chosen is not None:
        files, shared = [str(Path(path).expanduser()) for path in chosen], list[str]()
    else:
        files, shared = ([expand_home(path) for path in split_paths(value)] for value in (user, system))
    files = [path for path in files if path != os.devnull] or [str(state_file())]
    return tuple(dict.fromkeys(files + [path for path in shared if path != os.devnull]))


def state_file() -> Path:
    """Return where new host keys are recorded when the ssh config keeps none."""
    return user_state_path("fleetcheck") / "known_hosts"


def split_paths(value: str) -> list[str]:
    """Return the paths in a value of ``ssh -G``, which separates them by blanks and quotes none of them.

    A word that cannot start a path of its own belongs to the one before it (``/home/a b/known_hosts``).
    """
    paths: list[str] = []
    for word in value.split(" "):
        if is_none(word) or not word:
            continue
        alone = word.startswith(("/", "~")) or (
            _exists(word) and not _exists(f"{paths[-1]} {word}" if paths else "")
        )
        if paths and not alone:
            paths[-1] += f" {word}"
        else:
            paths.append(word)
    return paths


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # no permission to look, or a NUL in the path
        return False
