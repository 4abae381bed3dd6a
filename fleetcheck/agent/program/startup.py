"""Where a path of CUDA sources may be written down: units, their drop-ins, and start scripts of what serves.

Of a file only the paths that end in a folder ``csrc`` are told, with their line numbers, never the lines.
"""

from __future__ import annotations

import glob
import os
import time
from typing import Any, Dict, Iterator, List, Optional

from fleetcheck.agent.program.find import expand_home
from fleetcheck.agent.program.values import Root, problem, read_bytes

UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash")
STARTUP_LIMIT = 1 << 18
MOST_STARTUP = 200
MOST_NAMED = 50
MOST_SCANNED = 500
MOST_MATCHES = 2000
SCAN_LIMIT = 5.0
PATH_ENDS = frozenset(" \t\"'`=:;,()[]{}<>|&\\$")


class Startup:
    """The files that start what serves, each read once."""

    def __init__(self, root: Root, most: int = MOST_STARTUP) -> None:
        self.root = root
        self.most = most
        self.read: "List[str]" = []
        self.named: "List[Dict[str, Any]]" = []
        self.errors: "List[str]" = []

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
        for number, line in enumerate(data.split(b"\n"), 1):
            if b"csrc" in line and len(self.named) < MOST_NAMED:
                for found in csrc_paths(line.decode("utf-8", "replace")[:4096]):
                    one = {"file": self.root.show(self.root.at(path)), "line": number, "kind": kind, "path": found}
                    if one not in self.named:
                        self.named.append(one)
        return data

    def unit(self, name: str) -> None:
        """Search a unit with its drop-ins, and the scripts and variable files that it names."""
        names = [name]
        if "@" in name:
            names.append(name.partition("@")[0] + "@." + name.rpartition(".")[2])
        for folder in UNIT_FOLDERS:
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
                if word.startswith("/") and "/bin/" not in word.replace("/usr/local/bin/", "/"):
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
        return {
            "named": self.files.named, "files": len(self.files.read), "unmatched": self.unmatched,
            "errors": self.files.errors[:20], "truncated": self.cut,
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


def csrc_paths(line: str) -> "Iterator[str]":
    """Yield the paths in a line that lead to, or into, a folder ``csrc`` of FlashInfer."""
    at = line.find("csrc")
    while at >= 0:
        end = at + 4
        start = at
        while start > 0 and line[start - 1] not in PATH_ENDS:
            start -= 1
        whole = line[start:end]
        clean = end >= len(line) or line[end] in PATH_ENDS or line[end] == "/"
        if clean and whole.startswith(("/", "~")) and "flashinfer" in whole and whole.endswith("/csrc"):
            yield whole[:1024]
        at = line.find("csrc", end)


def unit_of(cgroup: str) -> "Optional[str]":
    """Return the service that a process belongs to, out of its cgroup."""
    for part in reversed(cgroup.replace("\n", "/").split("/")):
        if part.endswith(".service") and not part.startswith("user@"):
            return part
    return None
