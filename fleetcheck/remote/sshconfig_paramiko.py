"""The ssh config where there is no ssh to ask: Paramiko's parser, with a word on what it does not know.

In: a config file and a host's name. Out: options in the shape of ``ssh -G``, and warnings.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import paramiko

from fleetcheck.remote.settings import NO_CONFIG
from fleetcheck.remote.sshconfig import MAX_CONFIG_BYTES, WANTED, Options, RouteError
from fleetcheck.remote.tokens import TokenError, expand, expand_home, host_tokens, local_tokens, lowered

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "identityfile": tuple(f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk")),
    "userknownhostsfile": ("~/.ssh/known_hosts ~/.ssh/known_hosts2",),
    "globalknownhostsfile": ("/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",),
    "port": ("22",),
}
NO_SSH = "no ssh program was found, so Paramiko's parser reads the ssh config"
NEVER = "Host fleetcheck-never.invalid"
_SETTING = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")
_ALONE, _WITH_VALUE = ("all", "canonical", "final"), ("host", "originalhost", "user", "localuser")


class _Parser(paramiko.SSHConfig):
    """Paramiko's parser, which expands nothing but HostName: the rest is expanded as for ``ssh -G``."""

    TOKENS_BY_CONFIG_KEY = {"hostname": ["%h"]}  # noqa: RUF012  as the base class has it


class ParamikoConfig:
    """Answers as :class:`fleetcheck.remote.sshconfig.SshConfig` does, as far as Paramiko's parser goes."""

    def __init__(self, config: str | None) -> None:
        self.warnings: tuple[str, ...] = ()
        self.source: Literal["ssh", "paramiko", "none"] = "none" if config == NO_CONFIG else "paramiko"
        self._config = config
        self._lock = threading.Lock()
        self._text: str | None = None

    def options(self, name: str, address: str | None, port: int | None, user: str | None) -> Options:
        """Return what the config says of ``name``; the inventory's ``address``, ``port`` and ``user`` win over
        it.

        Raises :class:`RouteError` for a config that cannot be read.
        """
        with self._lock:
            if self._text is None:
                self._text = self._read()
        # The first value counts, so that the inventory's stand before the file's.
        given = {"HostName": address, "Port": port, "User": user}
        head = "".join(f"{keyword} {value}\n" for keyword, value in given.items() if value is not None)
        try:
            found = _Parser.from_text(head + "Host *\n" + self._text).lookup(name)
        except (paramiko.SSHException, ValueError, LookupError) as error:
            raise RouteError(f"{name}: the ssh config cannot be read: {error}") from error
        options = {**DEFAULTS, "user": (local_tokens()["u"],), "host": (name,)}
        for keyword in WANTED & set(found):
            value = found[keyword]
            if value:
                options[keyword] = tuple(value) if isinstance(value, list) else (value.replace('"', ""),)
        port_found, user_found = options["port"][0], options["user"][0]
        if not port_found.isdecimal():
            raise RouteError(f"{name}: the ssh config cannot be read: Port is not a number")
        host = lowered(address or options["hostname"][0])
        alias = options.get("hostkeyalias", (name,))[0]
        # The one value that `ssh -G` prints expanded.
        tokens = host_tokens(name, host, port=port_found, user=user_found, alias=alias, jump="")
        try:
            files = expand(options["userknownhostsfile"][0], tokens, variables=True)
        except TokenError as error:
            raise RouteError(f"{name}: the ssh config cannot be read: {error}") from error
        return {**options, "hostname": (host,), "userknownhostsfile": (files,)}

    def close(self) -> None:
        """Do nothing: no program runs."""

    def _read(self) -> str:
        if self._config == NO_CONFIG:
            return ""
        paths = [self._config] if self._config else [expand_home("~/.ssh/config"), SYSTEM_CONFIG]
        warnings, texts = [NO_SSH], []
        for path in paths:
            try:
                with Path(path).open("rb") as file:
                    lines = file.read(MAX_CONFIG_BYTES).decode("utf-8", "replace").split("\n")
            except FileNotFoundError:
                if self._config:
                    raise RouteError(f"the ssh config {path} does not exist") from None
                continue
            except OSError as error:
                raise RouteError(f"the ssh config {path} cannot be read: {error.strerror}") from error
            for number, line in enumerate(lines, 1):
                instead = _instead(line)
                if instead is not None:
                    warnings.append(f"{path}:{number}: not honoured without ssh: {line.strip()[:80]}")
                    lines[number - 1] = instead
            texts.append("\n".join(lines))
        self.warnings = tuple(warnings) if texts else ()
        return "\nHost *\n".join(texts)


def _instead(line: str) -> str | None:
    """Return what to read in place of a line that Paramiko would misread, None for any other line.

    It passes over Include (paramiko#1609) and over criteria that it does not know, runs ``Match exec`` without
    a limit, and asks the resolver without one under CanonicalizeHostname.
    """
    setting = _SETTING.fullmatch(line.rstrip())
    keyword = "" if setting is None else setting[1].lower()
    if setting is None or keyword not in ("include", "canonicalizehostname", "match"):
        return None
    if keyword != "match":
        return ""
    words = iter(setting[2].lower().split())
    for word in words:
        if word.lstrip("!") in _WITH_VALUE:
            next(words, None)
        elif word.lstrip("!") not in _ALONE:
            return NEVER
    return None
