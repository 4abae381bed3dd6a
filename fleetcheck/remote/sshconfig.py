"""What the user's ssh config says of a host, from OpenSSH itself: ``ssh -G`` knows Include, Match and its own
defaults.

In: a config file and a host's name. Out: the options that fleetcheck honours, keyword by keyword, as ``ssh -G``
prints them. Where the config says the same of every host, ssh is asked once.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Literal

from fleetcheck.errors import FleetcheckError
from fleetcheck.remote.bounded import LimitError, Output, Runner
from fleetcheck.remote.settings import NO_CONFIG
from fleetcheck.remote.tokens import lowered

Options = Mapping[str, tuple[str, ...]]

SSH_SECONDS = 5.0
MAX_OUTPUT_BYTES = 256 << 10
MAX_CONFIG_BYTES = 4 << 20
PROBE = "fleetcheck-probe.invalid"
"""The host that is asked for where one answer holds for all; RFC 2606 keeps the name from meaning a real one."""

# fmt: off
WANTED = frozenset({
    "host", "hostname", "port", "user", "identityfile", "certificatefile", "identityagent", "identitiesonly",
    "userknownhostsfile", "globalknownhostsfile", "revokedhostkeys", "knownhostscommand", "hashknownhosts",
    "hostkeyalias", "proxyjump", "proxycommand", "proxyusefdpass", "connecttimeout", "pkcs11provider",
    "addressfamily", "bindaddress", "bindinterface",
})
# A token in these is printed unexpanded, or in a value that is not used. In any other it may make hosts differ.
_TOKENS_HARMLESS = frozenset({
    "hostname", "identityfile", "certificatefile", "proxycommand", "proxyjump", "controlpath", "localcommand",
    "remotecommand", "localforward", "remoteforward", "knownhostscommand",
})
# fmt: on
_SETTING = re.compile(r'"?([A-Za-z0-9]+)"?(?:[ \t]*=[ \t]*|[ \t]+)(.*)')
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*")
_READING = re.compile(r"^debug1: Reading configuration data (.+?)\r?$", re.MULTILINE)
_LOGGED_PATH = 200  # OpenSSH logs no more characters of a path


class RouteError(FleetcheckError):
    """It cannot be said how a host is reached: a bad name, or an ssh config that ssh itself refuses."""


class SshConfig:
    """Asks one ``ssh`` program about one config. Threads ask side by side; no question is asked twice."""

    source: Literal["ssh", "paramiko", "none"] = "ssh"

    def __init__(self, ssh: str, config: str | None) -> None:
        self.warnings: tuple[str, ...] = ()
        self._ssh = ssh
        self._flags = [] if config is None else ["-F", os.devnull if config == NO_CONFIG else config]
        self._runner = Runner(SSH_SECONDS, MAX_OUTPUT_BYTES)
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, ...], Future[Options | None]] = {}

    def options(self, name: str, address: str | None, port: int | None, user: str | None) -> Options:
        """Return what the config says of ``name``; the inventory's ``address``, ``port`` and ``user`` win over
        it.

        They are given to ssh, so that ``Match user`` and the tokens see them. Raises :class:`RouteError` in one
        sentence, with the config's bad line where ssh names one.
        """
        shared = self._once((), self._ask_for_all) if _PLAIN_NAME.fullmatch(name) else None
        # A HostName around an IPv6 address keeps the case that ssh took from the probe.
        if shared is not None and (address or shared["hostname"][0] == PROBE or not {":", "%"} & set(name)):
            host = lowered(address or shared["hostname"][0].replace(PROBE, name))
            given = {"host": name, "hostname": host, "port": port and str(port), "user": user}
            return {**shared, **{keyword: (value,) for keyword, value in given.items() if value}}
        flags = [] if address is None else ["-o", "HostName=" + address.replace("%", "%%")]
        flags += [] if port is None else ["-p", str(port)]
        flags += [] if user is None else ["-l", user]
        answer = self._once((*flags, name), lambda: self._ask_for(name, flags))
        if answer is None:
            raise RouteError(f"{name}: `ssh -G` does not say how to reach it")
        return answer

    def close(self) -> None:
        """End every ssh that still runs, with what its ``Match exec`` started; nothing is asked from now on."""
        self._runner.close()

    def _once(self, question: tuple[str, ...], ask: Callable[[], Options | None]) -> Options | None:
        with self._lock:
            answer = self._answers.get(question)
            mine = answer is None
            if answer is None:
                answer = self._answers[question] = Future()
        if mine:
            try:
                answer.set_result(ask())
            except BaseException as error:  # those who wait for the answer must hear of it, whatever it was
                answer.set_exception(error)
                raise
        return answer.result()

    def _ask_for(self, name: str, flags: list[str]) -> Options | None:
        try:
            output = self._run([*flags, "--", name])
        except (LimitError, OSError) as error:
            raise RouteError(f"{name}: `ssh -G` failed: {error}") from error
        if output.status != 0:
            raise RouteError(f"{name}: ssh cannot resolve it: {_first_line(output.stderr)}")
        return parse(output.stdout)

    def _ask_for_all(self) -> Options | None:
        """Return what holds for every host, None where hosts may differ or ssh would not say (it is then asked
        by name).

        ``-v`` makes ssh name each file that it reads, Include and the system's own included.
        """
        try:
            output = self._run(["-v", "--", PROBE])
        except (LimitError, OSError):
            return None
        if output.status != 0 or not output.complete or not output.stderr.startswith("OpenSSH"):
            return None
        return parse(output.stdout) if same_for_all(_READING.findall(output.stderr)) else None

    def _run(self, arguments: list[str]) -> Output:
        # -T, because ssh remarks on stderr that it has no terminal to give.
        return self._runner.run([self._ssh, "-G", "-T", *self._flags, *arguments])


def parse(text: str) -> Options | None:
    """Return the options in the output of ``ssh -G``, None where it is not such an output."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        keyword, _, value = line.strip().partition(" ")
        if keyword.lower() in WANTED and value:
            found.setdefault(keyword.lower(), []).append(value)
    if not {"hostname", "port", "user"} <= found.keys() or not found["port"][0].isdecimal():
        return None
    return {keyword: tuple(values) for keyword, values in found.items()}


def same_for_all(paths: list[str]) -> bool:
    """Return whether the config files say the same of every host: no Match, no Host but ``*``, no token that
    differs.

    False where that cannot be told.
    """
    for path in dict.fromkeys(paths):
        if len(path) >= _LOGGED_PATH:
            return False
        try:
            if not Path(path).is_file():
                return False
            with Path(path).open("rb") as file:
                text = file.read(MAX_CONFIG_BYTES + 1).decode("utf-8", "replace")
        except OSError:
            return False
        if len(text) > MAX_CONFIG_BYTES or not all(map(_is_same, text.split("\n"))):
            return False
    return True


def _is_same(line: str) -> bool:
    line = line.strip()
    if not line or line.startswith("#"):
        return True
    setting = _SETTING.fullmatch(line)
    if setting is None:
        return False
    keyword, value = setting[1].lower(), setting[2].strip()
    match keyword:
        case "host":
            return value == "*"
        case "match" | "tag":
            return False
        case "canonicalizehostname":
            return value.lower() == "no"
        case _:
            return "%" not in value or keyword in _TOKENS_HARMLESS


def _first_line(stderr: str) -> str:
    lines = ("".join(char for char in line if char.isprintable()).strip() for line in stderr.splitlines())
    return next((line[:300] for line in lines if line), "it gives no reason")
