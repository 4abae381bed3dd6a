"""The arguments for ssh that an Ansible variable holds: what of them says how to reach the host.

In: the text of ``ansible_ssh_common_args`` or its like. Out: :class:`SshArgs`. Nothing is dropped silently: what
is not used is named in ``unused``, settings of the host key check in ``host_keys``.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"
_SILENT_FLAGS = frozenset("AaCqTtvxXk")
"""What changes nothing of how the host is reached: forwarding, terminals, compression, logging."""
_SILENT = frozenset({
    "batchmode", "compression", "controlmaster", "controlpath", "controlpersist", "escapechar", "forwardagent",
    "forwardx11", "loglevel", "passwordauthentication", "requesttty", "sendenv", "serveralivecountmax",
    "serveraliveinterval", "tcpkeepalive", "kbdinteractiveauthentication", "numberofpasswordprompts",
})  # fmt: skip
HOST_KEYS = frozenset({
    "checkhostip", "globalknownhostsfile", "hostkeyalias", "knownhostscommand", "stricthostkeychecking",
    "updatehostkeys", "userknownhostsfile", "verifyhostkeydns",
})  # fmt: skip
_KEYS = {"proxyjump": "proxy_jump", "proxycommand": "proxy_command", "identityfile": "identity_file",
         "port": "port", "user": "user", "hostname": "address"}  # fmt: skip
_FLAGS = {"J": "proxyjump", "i": "identityfile", "p": "port", "l": "user"}


@dataclass(slots=True)
class SshArgs:
    """What ssh arguments say. ``found`` maps keys of the inventory to their text; the first of each counts."""

    found: dict[str, str] = field(default_factory=dict)
    host_keys: bool = False
    unused: list[str] = field(default_factory=list)


def parse(text: str) -> SshArgs:
    """Return what ``text`` says. Raises ValueError with one sentence where it is no list of arguments."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"cannot be split into arguments: {str(error).lower()}") from error
    result = SshArgs()
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            result.unused.append(word)
            continue
        for place, flag in enumerate(word[1:], 1):
            if flag in _WITH_VALUE:
                value = word[place + 1 :] or (words.pop(0) if words else None)
                if value is None:
                    raise ValueError(f"-{flag} lacks its value")
                _option(result, flag, value)
                break
            if flag not in _SILENT_FLAGS:
                result.unused.append(f"-{flag}")
    return result


def _option(result: SshArgs, flag: str, value: str) -> None:
    if flag == "F":
        result.found.setdefault("ssh_config", "none" if value == "/dev/null" else value)
    elif flag == "o":
        keyword, text = _keyword(value)
        _set(result, keyword, text, f"-o {keyword}")
    elif flag in _FLAGS:
        _set(result, _FLAGS[flag], value, f"-{flag}")
    else:
        result.unused.append(f"-{flag}")


def _keyword(value: str) -> tuple[str, str]:
    keyword, _, text = re.sub(r"^\s*(\w+)\s*(?:=|\s)\s*", r"\1=", value).partition("=")
    return keyword, text.strip()


def _set(result: SshArgs, keyword: str, text: str, written: str) -> None:
    keyword = keyword.lower()
    if keyword in HOST_KEYS:
        result.host_keys = True
    elif keyword == "proxyjump" and "proxy_command" not in result.found:
        result.found.setdefault("proxy_jump", text)
    elif keyword == "proxycommand" and "proxy_jump" not in result.found:
        if text.lower() == "none":
            result.found.setdefault("proxy_jump", "none")
        elif "proxy_command" not in result.found:
            _command(result, text)
    elif keyword in ("proxyjump", "proxycommand"):
        pass  # as for ssh, the first of the two counts
    elif keyword in _KEYS:
        if keyword == "identityfile" and "identity_file" in result.found:
            result.unused.append(f"a second {written}")
        result.found.setdefault(_KEYS[keyword], text)
    elif keyword not in _SILENT:
        result.unused.append(written)


def _command(result: SshArgs, text: str) -> None:
    """Take a ProxyCommand; ``ssh -W %h:%p HOP`` without more is the gateway HOP, which hosts can share.

    A host key setting for the gateway is taken out: ssh would obey it.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if not words or words[0].rpartition("/")[2] != "ssh":
        result.found["proxy_command"] = text
        return
    kept, hop, plain = [words.pop(0)], "", True
    user = port = ""
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            plain = plain and not hop
            hop = hop or word
            kept.append(word)
            continue
        flag = word[1:2]
        if flag not in _WITH_VALUE or len(word) > 2 or not words:
            glued = word[2:] if flag in _WITH_VALUE else ""
            if flag == "o" and _keyword(glued)[0].lower() in HOST_KEYS:
                result.host_keys = True
                continue
            plain = plain and (word == "-W%h:%p" or set(word[1:]) <= _SILENT_FLAGS)
            kept.append(word)
            continue
        value = words.pop(0)
        if flag == "o" and _keyword(value)[0].lower() in HOST_KEYS:
            result.host_keys = True
            continue
        user, port = (value if flag == "l" else user), (value if flag == "p" else port)
        silent = flag == "o" and _keyword(value)[0].lower() in _SILENT
        plain = plain and (flag in "lp" or silent or (flag == "W" and value.strip("[]") in ("%h:%p", "%h]:%p")))
        kept += [word, value]
    forwards = any(word in ("-W", "-W%h:%p") for word in kept)
    if plain and hop and forwards and not (user and "@" in hop):
        hop = f"{user}@{hop}" if user else hop
        result.found["proxy_jump"] = f"{hop}:{port}" if port else hop
    else:
        result.found["proxy_command"] = shlex.join(kept) if result.host_keys else text
