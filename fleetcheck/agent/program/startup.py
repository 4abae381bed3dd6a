"""Where a path of CUDA sources may be written down: units, their drop-ins, and start scripts of what serves.

Of a file only the paths that end in a folder ``csrc`` are told, with their line numbers, never the lines.
"""

from __future__ import annotations

import glob
import os
import time
from typing import Any, Dict, Iterator, List, Optional

from fleetcheck.agent.program.find import expand_home
from fleetcheck.agent.program.values import Root, problem, read_bytes, without_secrets

UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
USER_UNITS = ("/.config/systemd/user", "/.local/share/systemd/user")
GLOBAL_USER_UNITS = (
    "/etc/systemd/user",
    "/run/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
)
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash")
STARTUP_LIMIT = 1 << 18
MOST_STARTUP = 200
MOST_NAMED = 50
MOST_SCANNED = 500
MOST_MATCHES = 2000
SCAN_LIMIT = 5.0
PATH_ENDS = frozenset(" \t\r\"'`=:;,()[]{}<>|&\\$")


class Startup:
    """The files that start what serves, each read once."""

    def __init__(self, root: Root, most: int = MOST_STARTUP) -> None:
        self.root = root
        self.most = most
        self.read: "List[str]" = []
        self.named: "List[Dict[str, Any]]" = []
        self.errors: "List[str]" = []
        self.more = 0

    def file(self, path: str, kind: str) -> "Optional[bytes]":
        """Search one file, and return its text; None where it is none, was read already, or may not be read."""
        if path in self.read or len(self.read) >= self.most:
            return None
        try:
            data = read_bytes(self.root.at(path), STARTUP_LIMIT)
        except OSError as error:
            if problem(error) not in ("ENOENT", "ENOTDIR", "EINVAL"):
                self.errors.append(path[:300] + ": " + problem(error))
            return None
        self.read.append(path)
        if b"\0" in data[:4096]:
            return None  # a program, no script
        known: "Dict[str, str]" = {}
        for number, raw in enumerate(data.split(b"\n") if b"csrc" in data else (), 1):
            line = without_comment(raw[:4096].decode("utf-8", "replace"))
            if b"csrc" in raw:
                for found in map(without_secrets, csrc_paths(line, known)):
                    one = {"file": self.root.show(self.root.at(path)), "line": number, "kind": kind, "path": found}
                    if one in self.named:
                        continue
                    if len(self.named) < MOST_NAMED:
                        self.named.append(one)
                    else:
                        self.more += 1
            learn(line, known)
        return data

    def unit(self, name: str, home: "Optional[str]" = None) -> None:
        """Search a unit with its drop-ins, and the scripts and variable files that it names.

        ``home``: it is a unit of the user who has that home folder.
        """
        names = [name]
        if "@" in name:
            names.append(name.partition("@")[0] + "@." + name.rpartition(".")[2])
        own = [] if home is None else [home.rstrip("/") + folder for folder in USER_UNITS]
        for folder in (*own, *(UNIT_FOLDERS if home is None else GLOBAL_USER_UNITS)):
            for one in names:
                place = folder + "/" + one
                self.unit_file(place)
                try:
                    drop_ins = sorted(os.listdir(self.root.at(place + ".d")))[:50]
                except OSError:
                    continue  # a unit without drop-ins has no such folder
                for drop_in in drop_ins:
                    if drop_in.endswith(".conf"):
                        self.unit_file(place + ".d/" + drop_in)

    def unit_file(self, path: str) -> None:
        """Search one file of a unit, and what it names."""
        data = self.file(path, "unit")
        for line in (data or b"").decode("utf-8", "replace").splitlines()[:2000]:
            key, equals, value = line.strip().partition("=")
            if not equals or not key.startswith(("Exec", "EnvironmentFile")):
                continue
            for word in value.split()[:20]:
                word = word.strip("\"'").lstrip("-@:+!")
                if word.startswith("/"):  # a program among them is told by its bytes, and passed over
                    self.file(word, "environment" if key == "EnvironmentFile" else "script")

    def script(self, words: "List[str]", cwd: "Optional[str]") -> None:
        """Search the script that a shell runs, where a command line is one of a shell."""
        if not words or os.path.basename(words[0]).lstrip("-") not in SHELLS:
            return
        for word in words[1:4]:
            if word.startswith("-"):
                if "c" in word:
                    return  # the commands themselves, no file
                continue
            path = word if word.startswith("/") else (cwd or "/nonexistent") + "/" + word
            self.file(os.path.normpath(path), "script")
            return


class PathScan:
    """A search of the files that an inventory names, bounded in count, size and time."""

    def __init__(self, root: Root, patterns: "List[str]") -> None:
        self.root = root
        self.patterns = patterns
        self.files = Startup(root, MOST_SCANNED)
        self.until = time.monotonic() + SCAN_LIMIT
        self.unmatched: "List[str]" = []
        self.cut: "Optional[str]" = None

    def run(self) -> "Dict[str, Any]":
        """Return the part ``scan``."""
        for pattern in self.patterns[:100]:
            matched = False
            for path in self.matches(expand_home(pattern)):
                matched = True
                self.one(path)
            if not matched:
                self.unmatched.append(pattern)
        errors = self.files.errors[:19]
        if self.files.more:
            first = len(self.files.named)
            errors.append("%d more lines name such a path, after the first %d" % (self.files.more, first))
        return {
            "named": self.files.named, "files": len(self.files.read), "unmatched": self.unmatched,
            "errors": errors, "truncated": self.cut,
        }  # fmt: skip

    def matches(self, pattern: str) -> "Iterator[str]":
        """Yield what a pattern names: a file, the files of a folder, or what a glob matches."""
        if os.path.lexists(self.root.at(pattern)) or not any(mark in pattern for mark in "*?["):
            if os.path.lexists(self.root.at(pattern)):
                yield pattern
            return
        for number, place in enumerate(glob.iglob(glob.escape(self.root.prefix) + pattern)):
            if number >= MOST_MATCHES or time.monotonic() > self.until:
                self.cut = self.cut or "more than %d matches or %d s" % (MOST_MATCHES, SCAN_LIMIT)
                return
            yield place[len(self.root.prefix) :]

    def one(self, path: str) -> None:
        """Search one path. Of a folder its own files are searched, and none below."""
        if os.path.isdir(self.root.at(path)):
            try:
                names = sorted(os.listdir(self.root.at(path)))[:MOST_MATCHES]
            except OSError as error:
                self.files.errors.append(path[:300] + ": " + problem(error))
                return
            for name in names:
                if os.path.isfile(self.root.at(path) + "/" + name):
                    self.file(path.rstrip("/") + "/" + name)
            return
        self.file(path)

    def file(self, path: str) -> None:
        """Search one file; tell where it could not be read, or not whole."""
        if len(self.files.read) >= MOST_SCANNED or time.monotonic() > self.until:
            self.cut = self.cut or "more than %d files or %d s" % (MOST_SCANNED, SCAN_LIMIT)
            return
        data = self.files.file(path, "scan")
        if data is not None and len(data) >= STARTUP_LIMIT:
            self.files.errors.append(path[:300] + ": searched to its first %d bytes" % STARTUP_LIMIT)
        elif data is None and path not in self.files.read and os.path.lexists(self.root.at(path)):
            if not any(line.startswith(path[:300] + ": ") for line in self.files.errors):
                self.files.errors.append(path[:300] + ": not a regular file")


def gather_scan(root: Root, patterns: "List[str]") -> "Dict[str, Any]":
    """Return the part ``scan``: the paths of sources that the files of these patterns name."""
    return PathScan(root, patterns).run()


def csrc_paths(line: str, known: "Optional[Dict[str, str]]" = None) -> "Iterator[str]":
    """Yield the paths in a line that lead to, or into, a folder ``csrc`` of FlashInfer.

    ``known`` are variables that were set before; one that is not known stays as ``$NAME``. An address of a server
    is no path of the host, and may hold a token: it is left out here, before anything is told.
    """
    at = line.find("csrc")
    while at >= 0:
        end = at + 4
        start = quoted_begin(line, at)
        if start is None:
            start = at
            while start > 0 and line[start - 1] not in PATH_ENDS:
                start -= 1
        clean = end >= len(line) or line[end] in PATH_ENDS or line[end] == "/"
        address = line[start : start + 2] == "//" and line[:start].endswith(":")
        if clean and not address:
            whole = resolved_path(line[:start], line[start:end], known or {})
            if whole.startswith(("/", "~", "$")) and "flashinfer" in whole and whole.endswith("/csrc"):
                yield whole[:1024]
        at = line.find("csrc", end)


def resolved_path(before: str, path: str, known: "Dict[str, str]") -> str:
    """Return a path behind ``before`` with the variable in front of it, by its value where that is known."""
    opened = before.rstrip("\"'")
    name = ""
    if before.endswith("$"):
        name, slash, rest = path.partition("/")
        path = slash + rest
    elif not path.startswith("/"):
        return path
    elif opened.endswith("}") and "${" in opened:
        name = opened[opened.rindex("${") + 2 : -1].partition(":")[0]
    elif opened.endswith((")", "`")):
        name = "(...)"
    elif opened != before and "$" in opened:
        name = opened[opened.rindex("$") + 1 :]
    if not name or not (name.isidentifier() or name == "(...)"):
        return path
    value = known.get(name)
    return (value.rstrip("/") if value else "$" + name) + path


def quoted_begin(line: str, at: int) -> "Optional[int]":
    """Return where a quoted path with blanks in it begins, None where the place lies in none."""
    for mark in "\"'":
        if line.count(mark, 0, at) % 2:
            begin = line.rindex(mark, 0, at) + 1
            pieces = line[begin:at].split(" ")
            rest = pieces[1:]
            if line[begin : begin + 1] in ("/", "~") and rest and all(one.find("/") > 0 for one in rest):
                return begin
    return None


def learn(line: str, known: "Dict[str, str]") -> None:
    """Keep what a line gives a variable, where that is one plain folder."""
    words = line.split()
    while words and words[0] in ("export", "ENV", "ARG", "local", "readonly", "declare"):
        words = words[1:]
    name, equals, value = (words[0] if words else "").partition("=")
    if equals and name.isidentifier() and len(known) < 200:
        value = value.strip("\"'")
        if value.startswith("/") and not set(value) & set("$`*?;|&()"):
            known[name] = value[:1024]
        else:
            known.pop(name, None)


def without_comment(line: str) -> str:
    """Return a line without its comment: one of its own, or what follows a blank and ``#`` outside of quotes."""
    if line.lstrip().startswith(("#", ";", "//")):
        return ""
    at = line.find(" #")
    while at >= 0:
        if not (line.count('"', 0, at) % 2 or line.count("'", 0, at) % 2):
            return line[:at]
        at = line.find(" #", at + 1)
    return line


def unit_of(cgroup: str) -> "Optional[str]":
    """Return the service that a process belongs to, out of its cgroup."""
    for part in reversed(cgroup.replace("\n", "/").split("/")):
        if part.endswith(".service") and not part.startswith("user@"):
            return part
    return None
