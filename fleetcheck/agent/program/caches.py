"""FlashInfer's JIT caches: which modules are there, and from which sources and for which GPUs they were built.

Of a folder no more than a bounded number of entries is ever read, so that a cache of a million files costs no more
than one of some thousands. Modules that decide on the all-reduce are looked up by name, before any listing.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Any, Dict, Iterator, List, Optional

from fleetcheck.agent.program.contain import contained
from fleetcheck.agent.program.values import Root, one_line, problem, read_bytes

CACHE_NAMES = ("trtllm_comm", "pcie_ipc_comm", "trtllm_mnnvl_comm", "vllm_comm", "mixed_comm", "comm")
MOST_ENTRIES = 4096
MOST_LISTED = 20000
MOST_FOLDERS = 64
MOST_BUILDS = 300
NINJA_LIMIT = 65536
CACHE_SECONDS = 4.0


class CacheScan:
    """One pass over one cache: ``entries`` counts what was listed, ``cut`` tells that not all of it was."""

    def __init__(self, root: Root, base: str) -> None:
        self.root = root
        self.base = base
        self.until = time.monotonic() + CACHE_SECONDS
        self.entries = 0
        self.cut: "Optional[str]" = None
        self.builds: "List[Dict[str, Any]]" = []
        self.folders: "List[Dict[str, Any]]" = []
        self.locks: "List[Dict[str, Any]]" = []
        self.exists: "Dict[str, bool]" = {}
        self.held = held_inodes(root)

    def listing(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        """Yield the first entries of a folder; a folder that is not there, or may not be read, has none."""
        try:
            with os.scandir(folder) as entries:
                for number, entry in enumerate(entries):
                    if number >= MOST_ENTRIES or time.monotonic() > self.until:
                        self.cut = self.cut or "more than %d entries in one folder" % MOST_ENTRIES
                        return
                    if self.entries >= MOST_LISTED:
                        self.cut = self.cut or "more than %d entries" % MOST_LISTED
                        return
                    self.entries += 1
                    yield entry
        except OSError as error:
            if error.errno not in (2, 20):
                self.cut = self.cut or problem(error)

    def folders_of(self, folder: str) -> "List[str]":
        """Return the folders of a folder, no links, bounded."""
        found = [entry.name for entry in self.listing(folder) if entry.is_dir(follow_symlinks=False)]
        if len(found) > MOST_FOLDERS:
            self.cut = self.cut or "more than %d folders" % MOST_FOLDERS
        return sorted(found)[:MOST_FOLDERS]

    def run(self) -> "Dict[str, Any]":
        """Look at the three depths that a workspace has had: CACHE/V/A, CACHE/A or CACHE/V, CACHE."""
        place = self.root.at(self.base)
        try:
            info = os.lstat(place)
        except OSError as error:
            return {"path": self.base, "exists": False, "error": problem(error)}
        if stat.S_ISLNK(info.st_mode):
            place = os.path.realpath(place)
        self.workspace(place, "", "")
        for one in self.folders_of(place):
            if one in ("cubins", "cached_ops", "generated"):
                continue
            self.workspace(place + "/" + one, one, "")
            for two in self.folders_of(place + "/" + one):
                if two not in ("cached_ops", "generated"):
                    self.workspace(place + "/" + one + "/" + two, one, two)
        return {
            "path": self.base, "exists": True, "uid": info.st_uid, "folders": self.folders[:200],
            "modules": self.builds, "locks": self.locks[:50], "entries": self.entries,
            "truncated": self.cut, "error": None,
        }  # fmt: skip

    def workspace(self, folder: str, first: str, second: str) -> None:
        """Look at one workspace, which has a log or a folder of modules."""
        modules = folder + "/cached_ops"
        log = os.path.lexists(folder + "/flashinfer_jit.log")
        if not os.path.isdir(modules):
            if log:
                self.folders.append({"first": first, "second": second, "modules": 0})
            return
        before = len(self.builds)
        names = [name for name in CACHE_NAMES if os.path.isdir(modules + "/" + name)]
        for name in names:
            self.build(modules, name, first, second)
        for entry in self.listing(modules):
            if entry.name == "tmp" or entry.name in names or not entry.is_dir(follow_symlinks=False):
                continue
            self.build(modules, entry.name, first, second)
        for entry in self.listing(modules + "/tmp"):
            if entry.name.endswith(".lock"):
                self.lock(entry.path, "flock")
        self.folders.append({"first": first, "second": second, "modules": len(self.builds) - before})

    def lock(self, path: str, kind: str) -> None:
        """Keep one lock file, and whether the kernel knows of a holder."""
        if len(self.locks) < 50:
            try:
                info = os.lstat(path)
            except OSError:
                return
            held = None if self.held is None else info.st_ino in self.held
            self.locks.append({"path": self.root.show(path), "kind": kind, "mtime": info.st_mtime, "held": held})

    def build(self, modules: str, name: str, first: str, second: str) -> None:
        """Keep one module: what its build.ninja names, and how old its library is."""
        if len(self.builds) >= MOST_BUILDS or time.monotonic() > self.until:
            self.cut = self.cut or "more than %d modules" % MOST_BUILDS
            return
        folder = modules + "/" + name
        value: "Dict[str, Any]" = {
            "first": first, "second": second, "name": name, "dir": self.root.show(folder), "error": None,
            "ninja": None, "csrc": [], "includes": [], "cuda_home": None, "gencode": [], "library": None,
            "newest": None,
        }  # fmt: skip
        if os.path.lexists(folder + "/lock"):  # the lock of torch up to 0.2.5: that it exists is the lock
            self.lock(folder + "/lock", "file")
        try:
            info = os.lstat(folder + "/" + name + ".so")
            value["library"] = {"size": info.st_size, "mtime": info.st_mtime, "uid": info.st_uid}
        except OSError:
            value["library"] = None  # never built, or its build failed
        try:
            data = read_bytes(folder + "/build.ninja", NINJA_LIMIT)
            value["ninja"] = os.lstat(folder + "/build.ninja").st_mtime
            read_ninja(data.decode("utf-8", "replace"), value)
            self.sources(value)
        except OSError as error:
            value["error"] = problem(error)
        self.builds.append(value)

    def sources(self, value: "Dict[str, Any]") -> None:
        """Tell which of the named folders exist, and which source is the newest."""
        for path in value.pop("sources", [])[:64]:
            try:
                info = os.stat(self.root.at(path))
            except OSError:
                continue
            newest = value["newest"]
            if newest is None or info.st_mtime > newest["mtime"]:
                value["newest"] = {"path": self.root.show(path), "mtime": info.st_mtime}
        for key in ("csrc", "includes"):
            value[key] = [{"path": path, "exists": self.there(path)} for path in value[key][:16]]

    def there(self, path: str) -> bool:
        """Whether a named folder exists; asked once."""
        if path not in self.exists:
            self.exists[path] = os.path.exists(self.root.at(path))
        return self.exists[path]


def held_inodes(root: Root) -> "Optional[set[int]]":
    """Return the inodes that someone holds a lock on, None where the kernel does not tell."""
    try:
        lines = read_bytes(root.at("/proc/locks"), 1 << 20).decode("ascii", "replace").splitlines()
    except OSError:
        return None
    found = set()
    for line in lines:
        for word in line.split():
            if word.count(":") == 2 and word.rpartition(":")[2].isdigit():
                found.add(int(word.rpartition(":")[2]))
    return found


def read_ninja(text: str, value: "Dict[str, Any]") -> None:
    """Take out of a build.ninja the lines that name paths, the toolkit and the GPUs."""
    csrc: "List[str]" = []
    includes: "List[str]" = []
    sources: "List[str]" = []
    gencode: "List[str]" = []
    for line in text.splitlines()[:5000]:
        words = [word.replace("\0", " ").replace("$:", ":") for word in line.replace("$ ", "\0").split()]
        if line.startswith("cuda_home"):
            value["cuda_home"] = one_line(line.partition("=")[2], 1024)
        if len(words) > 2 and words[0] == "build" and words[2] in ("cuda_compile", "compile"):
            for word in words[3:4]:
                sources.append(word)
                at = word.rfind("/csrc/")
                if at >= 0:
                    csrc.append(word[: at + 5])
        for number, word in enumerate(words):
            if (
                word in ("-isystem", "-I")
                and number + 1 < len(words)
                and "/flashinfer/" in words[number + 1] + "/"
            ):
                includes.append(words[number + 1])
            if "arch=compute_" in word and len(gencode) < 64:
                gencode.append(word.partition("arch=compute_")[2].partition(",")[0].strip("'\"")[:16])
    value["csrc"], value["includes"] = list(dict.fromkeys(csrc)), list(dict.fromkeys(includes))
    value["sources"], value["gencode"] = list(dict.fromkeys(sources)), sorted(set(gencode))


def cache_bases(root: Root, env: "Dict[str, str]", processes: "List[Dict[str, Any]]") -> "List[Dict[str, Any]]":
    """Return the caches to look at: the login's, and that of each process that serves."""
    wanted = [{"base": env.get("FLASHINFER_WORKSPACE_BASE") or env.get("HOME"), "user": None, "pid": None}]
    for item in processes:
        launcher = (item.get("launcher") or {}).get("env") or {}
        theirs = dict(launcher, **(item.get("env") or {}))
        base = theirs.get("FLASHINFER_WORKSPACE_BASE") or theirs.get("HOME") or item.get("home")
        apart = item["pid"] if item.get("namespace") == "other" and not root.prefix else None
        wanted.append(
            {"base": base, "user": item.get("user"), "pid": apart, "namespace": item.get("namespace_id")}
        )
    found: "Dict[Any, Dict[str, Any]]" = {}
    for one in wanted:
        if one["base"] and str(one["base"]).startswith("/"):
            key = (one["base"], one.get("namespace") if one["pid"] else None)
            found.setdefault(key, one)
            found[key]["user"] = found[key]["user"] or one["user"]
    return list(found.values())[:16]


def one_cache(root: Root, one: "Dict[str, Any]") -> "Dict[str, Any]":
    """Look at one cache. Of a container's, links lead where they lead in there."""
    path = str(one["base"]).rstrip("/") + "/.cache/flashinfer"
    if one["pid"] is None:
        return CacheScan(root, root.show(path)).run()
    place = root.at("/proc/%d/root" % one["pid"])
    value: "Dict[str, Any]" = contained(place, lambda: CacheScan(Root(""), path).run(), CACHE_SECONDS + 1)
    return value


def gather_caches(root: Root, bases: "List[Dict[str, Any]]") -> "Dict[str, Any]":
    """Return the part ``caches``."""
    items = []
    for one in bases:
        try:
            value = one_cache(root, one)
        except Exception as error:
            value = {"path": str(one["base"]) + "/.cache/flashinfer", "exists": None, "error": problem(error)}
        items.append(dict(value, user=one["user"], pid=one["pid"]))
    return {"items": items}
