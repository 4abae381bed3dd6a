"""The hosts that an ssh config names: its ``Host`` entries without wildcards, those of included files too.

In: a config file. Out: names with their file and line. What the config says of a name is asked of ``ssh -G``
later.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import shlex
import stat
from pathlib import Path

from fleetcheck.errors import Problem
from fleetcheck.inventory.nodes import check_name
from fleetcheck.inventory.source import MAX_BYTES, Text, decode
from fleetcheck.inventory.wording import NO_SECRETS, holds_password, shown

MAX_DEPTH = 16  # OpenSSH's own: READCONF_MAX_DEPTH
MAX_FILES = 1000
USER_CONFIG = "~/.ssh/config"
_SETTING = re.compile(r'\s*"?([A-Za-z0-9]+)"?(?:\s*=\s*|\s+)(.*)')
_VARIABLE = re.compile(r"\$\{([^}]*)\}")

Place = tuple[str, int]


class Reader:
    """Reads one config and what it includes."""

    def __init__(self, problems: list[Problem], warnings: list[Problem]) -> None:
        self.names: dict[str, Place] = {}
        self._problems = problems
        self._warnings = warnings
        self._files = 0

    def read(self, text: Text, depth: int = 0) -> None:
        """Note the names of one file, and of the files that it includes where it includes them."""
        for number, line in enumerate(text.text.splitlines(), 1):
            match = _SETTING.fullmatch(line)
            if match is None or line.lstrip().startswith("#"):
                continue
            keyword = match[1].lower()
            if holds_password(match[2]):
                self._problems.append(Problem(text.name, number, f"{keyword}: holds a password; {NO_SECRETS}"))
                continue
            if keyword in ("host", "include"):
                words = self._words(text, number, match[2])
                if keyword == "host":
                    self._hosts(text, number, words)
                else:
                    for word in words:
                        self._include(text, number, word, depth)

    def _words(self, text: Text, number: int, value: str) -> list[str]:
        try:
            return shlex.split(value, comments=True)
        except ValueError as error:
            self._problems.append(Problem(text.name, number, f"{shown(value)}: {str(error).lower()}"))
            return []

    def _hosts(self, text: Text, number: int, words: list[str]) -> None:
        for word in words:
            if any(mark in word for mark in "*?!"):
                continue
            try:
                self.names.setdefault(check_name(word), (text.name, number))
            except ValueError as error:
                self._warnings.append(Problem(text.name, number, f"Host {error}"))

    def _include(self, text: Text, number: int, word: str, depth: int) -> None:
        if depth >= MAX_DEPTH:
            self._problems.append(Problem(text.name, number, f"Include goes deeper than {MAX_DEPTH} files"))
            return
        try:
            pattern = _VARIABLE.sub(lambda match: os.environ[match[1]], _home(word))
        except KeyError as error:
            self._problems.append(
                Problem(text.name, number, f"Include {shown(word)}: {shown(str(error.args[0]))} is not known")
            )
            return
        if not pattern.startswith("/"):
            pattern = str(Path(_home("~/.ssh")) / pattern)
        for path in sorted(glob.glob(pattern)):  # noqa: PTH207  Path.glob takes no absolute pattern
            self._files += 1
            if self._files > MAX_FILES:
                self._problems.append(Problem(text.name, number, f"Include reaches more than {MAX_FILES} files"))
                return
            try:
                mode = Path(path).stat().st_mode
                if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # to open a FIFO waits for a writer for ever
                    self._warnings.append(Problem(path, None, "is no regular file, and was not read"))
                    continue
                with Path(path).open("rb") as stream:
                    texts = decode(path, stream.read(MAX_BYTES + 1), self._problems)
            except OSError as error:
                self._warnings.append(Problem(path, None, f"cannot be read: {error.strerror}"))
                continue
            for inner in texts:
                self.read(inner, depth + 1)


def is_users_own(path: Path) -> bool:
    """Return whether ``path`` is the config that ssh reads anyway."""
    try:
        return path.samefile(_home(USER_CONFIG))
    except (OSError, KeyError):  # no such file, or a user without an entry in passwd
        return False


def _home(text: str) -> str:
    """Return ``text`` with a leading ``~`` or ``~user`` replaced; as for ssh, passwd counts and not ``$HOME``."""
    if not text.startswith("~"):
        return text
    user, slash, rest = text[1:].partition("/")
    entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    return entry.pw_dir + slash + rest
