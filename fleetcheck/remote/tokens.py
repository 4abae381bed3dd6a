"""What ssh expands in its config's values: tokens (``%h``), variables (``${NAME}``) and ``~``; and what it
refuses.

In: a text and the values of its tokens. Out: the text as ssh would use it. ``ssh -G`` prints some values
unexpanded.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

# The characters that OpenSSH refuses in names that reach a shell through ProxyCommand (ssh.c: valid_hostname,
# valid_ruser).
_HOST_REFUSED = re.compile(r"""^-|['`"$\\;&<>|(){},\s\x00-\x1f\x7f]""")
_USER_REFUSED = re.compile(r"""^-|\s-|['`"$;&<>|(){}\x00-\x1f\x7f]|\\$""")
_MARK = re.compile(r"%(.?)|\$\{([^}]*)(\}?)", re.DOTALL)


class TokenError(ValueError):
    """A value that cannot be expanded; the text says why."""


def is_host(text: str) -> bool:
    """Return whether ssh would take ``text`` as a host's name or address; an option is neither."""
    return bool(text) and _HOST_REFUSED.search(text) is None


def is_user(text: str) -> bool:
    """Return whether ssh would take ``text`` as a user name."""
    return bool(text) and _USER_REFUSED.search(text) is None


@cache
def local_tokens() -> Mapping[str, str]:
    """Return the tokens of this machine and user: ``d`` home, ``i`` uid, ``u`` user, ``L`` and ``l`` host name."""
    try:
        entry = pwd.getpwuid(os.getuid())
        home, user = entry.pw_dir, entry.pw_name
    except KeyError:  # a container's user without an entry in /etc/passwd
        home, user = str(Path("~").expanduser()), str(os.getuid())
    host = socket.gethostname()
    return {"d": home, "i": str(os.getuid()), "u": user, "l": host, "L": host.partition(".")[0]}


def lowered(host: str) -> str:
    """Return a host's name in lower case, an IPv6 address unchanged, as ssh does (its ``%zone`` has a case)."""
    return host if ":" in host or "%" in host else host.lower()


def host_tokens(name: str, host: str, *, port: str, user: str, alias: str, jump: str) -> dict[str, str]:
    """Return all tokens for one host: ``n`` as asked for, ``h`` as connected to, ``k`` as in known_hosts."""
    return {**local_tokens(), "n": name, "h": host, "p": port, "r": user, "k": alias, "j": jump}


def expand(text: str, tokens: Mapping[str, str], *, variables: bool = False) -> str:
    """Return ``text`` with ``%x`` replaced from ``tokens`` and, where asked, ``${NAME}`` from the environment.

    Raises :class:`TokenError` for a token or variable that has no value, where ssh would give up as well.
    """

    def value(found: re.Match[str]) -> str:
        token, name, closed = found.groups()
        if token is not None:
            if token == "%":  # noqa: S105  a percent sign, not a password
                return "%"
            if token not in tokens:
                raise TokenError(f"unknown token %{token} in {text!r}")
            return tokens[token]
        if not variables:
            return found[0]
        if not closed or name not in os.environ:
            raise TokenError(f"no value for the variable in {text!r}")
        return os.environ[name]

    return _MARK.sub(value, text)


def expand_home(text: str) -> str:
    """Return ``text`` with a leading ``~`` or ``~user`` replaced; as for ssh, passwd counts, not ``$HOME``."""
    if not text.startswith("~"):
        return text
    user, slash, rest = text[1:].partition("/")
    if not user:
        return local_tokens()["d"] + slash + rest
    try:
        return pwd.getpwnam(user).pw_dir + slash + rest
    except KeyError:
        raise TokenError(f"no user {user!r} for {text!r}") from None


def expand_path(text: str, tokens: Mapping[str, str]) -> str:
    """Return a path of the ssh config with ``~``, tokens and variables replaced."""
    return expand(expand_home(text), tokens, variables=True)
