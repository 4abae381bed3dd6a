"""Processes that serve: found in /proc, each with what it runs, what it mapped and what it was started with.

Arguments and environment are told by allowlist only. Nothing is traced, stopped or signalled.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from fleetcheck.agent.program.commands import TITLES, flags_of, safe_word, server_of, users
from fleetcheck.agent.program.contain import contained, other_root
from fleetcheck.agent.program.disk import disk_view
from fleetcheck.agent.program.proc import Proc, of_interest, packages_root, read_maps
from fleetcheck.agent.program.startup import Startup, unit_of
from fleetcheck.agent.program.values import Root, allowed_env, one_line, problem, read_bytes

MOST_SERVING = 64
MOST_LIBRARIES = 48
LARGE_PAGES = 65536
CONTAINED_SECONDS = 2.0


class Scan(Proc):
    """One pass over /proc. Everything that cannot be read is counted, never left out silently."""

    def __init__(self, root: Root) -> None:
        super().__init__(root)
        self.users = users(root)
        self.unread: "List[Dict[str, Any]]" = []
        self.files: "Dict[Tuple[str, str], Dict[str, Any]]" = {}
        try:
            self.own_ns: "Optional[str]" = os.readlink(self.proc + "/self/ns/mnt")
        except OSError:
            self.own_ns = None

    def candidate(self, pid: int, words: "List[str]") -> bool:
        """Whether a process may be a Python that serves: by name, by interpreter, or by its size."""
        if not words:
            return False
        for word in words[:2]:
            if os.path.basename(word).startswith(("python", "sglang", "vllm", "VLLM")):
                return True
        try:
            if os.path.basename(os.readlink("%s/%d/exe" % (self.proc, pid))).startswith("python"):
                return True
            return int(read_bytes("%s/%d/statm" % (self.proc, pid), 200).split()[1]) >= LARGE_PAGES
        except (OSError, IndexError, ValueError):
            return False

    def look(self, pid: int, words: "List[str]") -> "Optional[Dict[str, Any]]":
        """Return one process, None where it does not serve or is gone."""
        place = "%s/%d" % (self.proc, pid)
        server = server_of(words)
        maps: "Dict[str, str]" = {}
        maps_error: "Optional[str]" = None
        try:
            maps, whole = read_maps(place + "/maps", self.top(place))
            maps_error = None if whole else "too large"
        except OSError as error:
            maps_error = problem(error)
        gpu = any(path.startswith("/dev/nvidia") for path in maps)
        libraries = [path for path in maps if of_interest(path)]
        try:
            uid: "Optional[int]" = os.stat(place).st_uid
        except OSError:
            return None
        if not (server or gpu or libraries):
            if maps_error is not None and maps_error not in ("ENOENT", "ESRCH"):
                self.unread.append(
                    {"pid": pid, "user": self.users.get(uid or 0, (None, ""))[0], "error": maps_error}
                )
            return None
        parent, started, state = self.stat(pid)
        if state in "ZX":
            return None
        value: "Dict[str, Any]" = {
            "pid": pid, "ppid": parent, "uid": uid, "user": self.users.get(uid or 0, (None, ""))[0],
            "home": self.users.get(uid or 0, (None, None))[1], "started": started, "server": server,
            "title": safe_word(words[0]) if words[0].startswith(TITLES) else None, "flags": flags_of(words),
            "gpu": gpu, "launcher": None, "maps_error": maps_error,
        }  # fmt: skip
        self.place(value, place)
        self.origin(value, place, words)
        value["mapped"] = self.mapped(maps)
        value["libraries"] = self.libraries(value, maps, libraries)
        return value

    def top(self, place: str) -> str:
        """Return the root folder of a process, as far as it is not the whole of its mounts."""
        try:
            top = os.readlink(place + "/root").rstrip("/")
        except OSError:
            return "/"
        return "/" if self.root.prefix else top or "/"

    def place(self, value: "Dict[str, Any]", place: str) -> None:
        """Tell where a process lives: whether it has the agent's mounts and root folder, and its container."""
        try:
            namespace: "Optional[str]" = os.readlink(place + "/ns/mnt")
        except OSError as error:
            namespace, value["namespace_error"] = None, problem(error)
        value["namespace"] = (
            None if namespace is None or self.own_ns is None else "same" if namespace == self.own_ns else "other"
        )
        value["namespace_id"] = namespace
        value["other_root"] = other_root(place)
        value["container"] = value["unit"] = value["user_unit"] = None
        try:
            text = read_bytes(place + "/cgroup", 8192).decode("utf-8", "replace")
        except OSError:
            return
        value["unit"], value["user_unit"] = unit_of(text), "user@" in text
        for name in ("docker", "libpod", "cri-containerd", "crio", "kubepods", "lxc", "machine"):
            if name + "-" in text or name + "/" in text:
                value["container"] = name
                return

    def origin(self, value: "Dict[str, Any]", place: str, words: "List[str]") -> None:
        """Tell what a process was started from: interpreter, environment, folder."""
        for name, link in (("exe", "/exe"), ("cwd", "/cwd")):
            try:
                value[name] = self.root.show(os.readlink(place + link))
            except OSError:
                value[name] = None
        value["argv_prefix"] = value["argv_real"] = None
        for word in words[:2]:
            if word.startswith("/") and os.path.basename(os.path.dirname(word)) == "bin":
                prefix = value["argv_prefix"] = self.root.show(os.path.dirname(os.path.dirname(word)))
                if value["namespace"] != "other":
                    value["argv_real"] = self.root.show(os.path.realpath(self.root.at(prefix)))
                break
        try:
            data = read_bytes(place + "/environ", 1 << 18)
        except OSError as error:
            value["env"], value["env_error"] = None, problem(error)
            return
        environ: "Dict[str, str]" = {}
        for entry in data.split(b"\0"):
            name, equals, text = os.fsdecode(entry).partition("=")
            if equals:
                environ.setdefault(name, text)
        value["env"], value["env_error"] = allowed_env(environ, self.root), None

    def mapped(self, maps: "Dict[str, str]") -> "List[Dict[str, Any]]":
        """Return the folders of packages that mapped files lie in, the one with most files first."""
        counts: "Dict[str, int]" = {}
        for path in maps:
            folder = packages_root(path)
            if folder is not None:
                counts[folder] = counts.get(folder, 0) + 1
        order = sorted(counts, key=lambda folder: -counts[folder])
        return [{"path": self.root.show(folder), "files": counts[folder]} for folder in order[:8]]

    def libraries(
        self, value: "Dict[str, Any]", maps: "Dict[str, str]", paths: "List[str]"
    ) -> "List[Dict[str, Any]]":
        """Return the mapped files that tell of FlashInfer, and whether each is still what lies on the disk."""
        found = []
        order = sorted(paths, key=lambda path: ("trtllm_comm" not in path and "pcie_ipc_comm" not in path, path))
        for path in order[:MOST_LIBRARIES]:
            deleted = path.endswith(" (deleted)")
            name = path[: -len(" (deleted)")] if deleted else path
            one: "Dict[str, Any]" = {
                "path": self.root.show(name),
                "deleted": deleted,
                "replaced": None,
                "mtime": None,
            }
            try:
                info = os.lstat("%s/%d/root%s" % (self.proc, value["pid"], name))
                one["mtime"] = info.st_mtime
                one["replaced"] = deleted or (maps[path].isdigit() and int(maps[path]) != info.st_ino)
            except OSError as error:
                one["error"] = problem(error)
            found.append(one)
        return found

    def launch(self, items: "List[Dict[str, Any]]") -> None:
        """Give renamed children the arguments of the process that started them: theirs are gone."""
        known = {item["pid"]: item for item in items}
        for item in items:
            parent = item["ppid"]
            for _ in range(8):
                if parent <= 1:
                    break
                line = self.words(parent)
                if server_of(line) and not line[0].startswith(TITLES):
                    item["launcher"] = {"pid": parent, "flags": flags_of(line), "server": server_of(line)}
                    if parent in known:
                        item["launcher"]["argv_prefix"] = known[parent]["argv_prefix"]
                        item["launcher"]["argv_real"] = known[parent]["argv_real"]
                        item["launcher"]["env"] = known[parent]["env"]
                parent = self.stat(parent)[0]

    def startup(self, items: "List[Dict[str, Any]]") -> "Startup":
        """Search the units and scripts that started the processes of the host itself."""
        found = Startup(self.root)
        for item in items:
            if item["other_root"]:
                continue
            if item["unit"]:
                found.unit(item["unit"], home_of(item) if item["user_unit"] else None)
            parent = item["ppid"]
            for _ in range(8):
                if parent <= 1:
                    break
                try:
                    cwd: "Optional[str]" = os.readlink("%s/%d/cwd" % (self.proc, parent))
                except OSError:
                    cwd = None
                found.script(self.words(parent), cwd)
                parent = self.stat(parent)[0]
        return found

    def on_disk(self, item: "Dict[str, Any]") -> "Dict[str, Any]":
        """Return FlashInfer's deciding files as they lie on the disk of a process, and its compilers."""
        launcher = item["launcher"] or {}
        env = dict(launcher.get("env") or {}, **(item["env"] or {}))
        sites = [one["path"] for one in item["mapped"]]
        prefixes = [
            env.get("VIRTUAL_ENV"),
            item["argv_prefix"],
            launcher.get("argv_prefix"),
            env.get("CONDA_PREFIX"),
        ]
        first = [one for one in env.get("PYTHONPATH", "").split(":") if one.startswith("/")]
        names = [*first, *sites, *(prefix for prefix in prefixes if prefix)]
        apart = item["namespace"] == "other"
        key = (str(item["namespace_id"]) if apart else "", "\0".join([*names, env.get("PATH", "")]))
        if key not in self.files:
            try:
                if apart and not self.root.prefix:
                    place = "%s/%d/root" % (self.proc, item["pid"])
                    value = contained(
                        place, lambda: disk_view(Root(""), first, sites, prefixes, env), CONTAINED_SECONDS
                    )
                else:
                    value = disk_view(self.root, first, sites, prefixes, env)
            except Exception as error:
                value = {"root": None, "files": [], "tools": None, "error": problem(error)}
            self.files[key] = value
        return self.files[key]


def home_of(item: "Dict[str, Any]") -> str:
    """Return the home folder of a process's user; empty where /etc/passwd does not tell it."""
    return str(item["home"] or ("/root" if item["uid"] == 0 else ""))


def hidden_processes(root: Root) -> "Optional[str]":
    """Return why processes of other users are not to be seen (``hidepid``), None where they are.

    The first process of a namespace is always there, and belongs to another user where somebody has to ask.
    """
    if root.prefix:
        return None
    try:
        read_bytes("/proc/1/stat", 64)
    except OSError as error:
        return problem(error)
    return None


def gather_processes(root: Root) -> "Dict[str, Any]":
    """Return the part ``processes``."""
    scan = Scan(root)
    items: "List[Dict[str, Any]]" = []
    try:
        for pid in scan.pids():
            words = scan.words(pid)
            if scan.candidate(pid, words):
                item = scan.look(pid, words)
                if item is not None and len(items) < MOST_SERVING:
                    items.append(item)
                elif item is not None:
                    scan.error = "more than %d" % MOST_SERVING
    except OSError as error:
        scan.error = problem(error)
    scan.unread += scan.stuck
    scan.launch(items)
    views: "List[Dict[str, Any]]" = []
    for item in items:
        view = scan.on_disk(item)
        if view not in views:
            views.append(view)
        item["view"] = views.index(view)
    started = scan.startup(items)
    return {
        "named": started.named, "startup": started.read, "startup_errors": started.errors[:20],
        "items": items, "views": views, "seen": scan.seen, "unread": scan.unread[:20],
        "unread_count": len(scan.unread), "hidden": hidden_processes(root),
        "error": None if scan.error is None else one_line(scan.error),
    }  # fmt: skip
