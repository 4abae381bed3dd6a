"""Which environments to look at: listed paths, globs, serving processes, usual places. Each find is one job."""

from __future__ import annotations

import errno
import glob
import os
from typing import Any, Dict, Iterator, List

from fleetcheck.agent.program.contain import contained, other_root
from fleetcheck.agent.program.proc import Proc
from fleetcheck.agent.program.values import Root, problem, read_bytes

SERVING = ("flashinfer", "sglang", "vllm")
USUAL = (
    "~/*env*", "~/.*env*", "~/*/.venv", "~/*/venv", "~/.virtualenvs/*", "~/.conda/envs/*",
    "/opt/*env*", "/opt/*/venv", "/opt/*/.venv", "/opt/venvs/*", "/opt/conda", "/opt/conda/envs/*",
    "/srv/*", "/srv/*/venv", "/srv/*/.venv", "/workspace/*env*", "/workspace/.*env*", "/workspace/*/.venv",
    *(home + conda + envs for home in ("~/", "/opt/") for conda in ("miniconda3", "miniforge3", "anaconda3")
      for envs in ("", "/envs/*")),
    "/usr", "/usr/local",
)  # fmt: skip
PACKAGES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib64/python3*/site-packages")
DEBIAN_PACKAGES = ("lib/python3/dist-packages", "local/lib/python3*/dist-packages")
MOST = 256
CONTAINED_FIND = 2.0


def describe(root: Root, path: str, item: str, origin: str) -> Dict[str, Any]:
    """Describe a folder of the host as an environment: its state, how to activate it, its interpreter.

    ``state`` is ``present``, ``missing``, ``unreadable`` or ``not-a-venv``. ``id`` tells equal folders apart.
    """
    place = root.at(path)
    found: Dict[str, Any] = {
        "path": path, "item": item, "origin": origin, "state": "present", "error": None, "kind": "plain",
        "script": None, "python": None, "real": None, "id": None,
    }  # fmt: skip
    try:
        info = os.stat(place)
        os.stat(place + "/bin/.")
        found["id"] = (info.st_dev, info.st_ino)
        found["real"] = root.show(os.path.realpath(place))
    except OSError as error:
        return _unusable(found, place, error)
    if os.path.isdir(place + "/conda-meta"):
        found["kind"] = "conda"
    elif os.path.lexists(place + "/pyvenv.cfg") or os.path.lexists(place + "/bin/activate"):
        found["kind"], found["script"] = "venv", "bin/activate"
    _interpreter(place, found)
    if found["python"] is None and found["kind"] == "plain" and found["error"] != "EACCES":
        found["state"] = "not-a-venv"
    return found


def _unusable(found: Dict[str, Any], place: str, error: OSError) -> Dict[str, Any]:
    found["error"] = problem(error)
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):
        found["state"] = "unreadable"
    else:
        try:
            os.stat(place)
            found["state"], found["error"] = "not-a-venv", "no bin folder"
        except OSError:
            found["state"] = "missing"
            if os.path.islink(place):
                found["error"] = "a link to " + os.readlink(place) + ", which is missing"
    return found


def _interpreter(place: str, found: Dict[str, Any]) -> None:
    for name in ("python", "python3"):
        path = place + "/bin/" + name
        try:
            os.stat(path)
        except OSError as error:
            if os.path.islink(path) and found["error"] is None:
                found["error"] = "bin/" + name + " is a link to " + os.readlink(path) + ": " + problem(error)
            elif error.errno != errno.ENOENT:
                found["error"] = problem(error)
            continue
        if os.path.isfile(path) and os.access(path, os.X_OK):
            found["python"], found["error"] = path, None
            return
        found["error"] = "EACCES" if os.path.isfile(path) else "bin/" + name + " is not a file"
    found["error"] = found["error"] or "no bin/python"


def expand_home(path: str) -> str:
    """Replace a leading ``~`` by the login's home; ``~user`` by that user's, as far as the host knows one."""
    return os.path.normpath(os.path.expanduser(path)) if path.startswith("~") else path


def find_listed(root: Root, item: str) -> "List[Dict[str, Any]]":
    """Return the environments that one entry of the inventory names; an empty list for a glob without a match."""
    path = expand_home(item)
    if os.path.lexists(root.at(path)) or not any(mark in path for mark in "*?["):
        return [describe(root, path.rstrip("/") or "/", item, "listed")]
    places = sorted(_glob(root, path))
    found = [describe(root, place, item, "listed") for place in places]
    return [one for one in found if one["state"] != "not-a-venv"]


def _glob(root: Root, pattern: str) -> "Iterator[str]":
    for number, place in enumerate(glob.iglob(glob.escape(root.prefix) + pattern)):
        if number >= MOST:
            return
        if os.path.isdir(place) or os.path.islink(place):
            yield place[len(root.prefix) :]


def serves(root: Root, path: str) -> bool:
    """Whether an environment holds a package that this audit is about, told by folders alone."""
    patterns = (*PACKAGES, *DEBIAN_PACKAGES) if path in ("/usr", "/usr/local") else PACKAGES
    for pattern in patterns:
        for packages in glob.iglob(glob.escape(root.at(path)) + "/" + pattern):
            if any(os.path.isdir(packages + "/" + name) for name in SERVING):
                return True
    return False


def find_usual(root: Root) -> "List[Dict[str, Any]]":
    """Return the environments in common places that hold FlashInfer, sglang or vLLM."""
    found: List[Dict[str, Any]] = []
    seen: "set[str]" = set()
    for pattern in USUAL:
        for path in sorted(_glob(root, expand_home(pattern))):
            if path in seen:
                continue
            seen.add(path)
            one = describe(root, path, "usual", "usual")
            if one["python"] is not None and serves(root, path):
                found.append(one)
    return found


def find_running(root: Root) -> "List[Dict[str, Any]]":
    """Return the environments that running Python processes come from and that hold one of the packages.

    A process of another container is seen with its own paths; where they do not exist here it is passed by.
    """
    found: List[Dict[str, Any]] = []
    seen: "set[str]" = set()
    for pid in map(str, Proc(root).pids()):
        apart = namespace_apart(root, pid)
        for prefix in prefixes(root, root.at("/proc/" + pid)):
            if (prefix if apart is None else apart + prefix) in seen or len(seen) >= MOST:
                continue
            if apart is not None and not same_folder(root, pid, prefix):
                seen.add(apart + prefix)
                inner = contained_item(root, pid, prefix, apart)
                found += [inner] if inner is not None else []
                continue
            if prefix in seen:
                continue
            seen.add(prefix)
            one = describe(root, prefix, "running", "running")
            if one["python"] is not None and serves(root, prefix):
                found.append(one)
    return found


def namespace_apart(root: Root, pid: str) -> "str | None":
    """Return a process's mount namespace where it is not the agent's; None also where it may not be read."""
    try:
        theirs, ours = (os.readlink(root.at("/proc/" + one + "/ns/mnt")) for one in (pid, "self"))
    except OSError:
        return None
    return None if theirs == ours else theirs


def same_folder(root: Root, pid: str, prefix: str) -> bool:
    """Whether a process of another mount namespace means the folder that has this path here."""
    if other_root(root.at("/proc/" + pid)):
        return False
    try:
        return os.path.samefile(root.at("/proc/" + pid + "/root" + prefix), root.at(prefix))
    except OSError:
        return False


def contained_item(root: Root, pid: str, prefix: str, namespace: str) -> "Dict[str, Any] | None":
    """Return the item of an environment of a container, which is read through /proc/PID/root and not executed."""
    place = "/proc/" + pid + "/root" + prefix
    try:
        inner = contained(
            root.at("/proc/" + pid + "/root"),
            lambda: (serves(Root(""), prefix), os.path.realpath(prefix)), CONTAINED_FIND,
        )  # fmt: skip
    except OSError:
        inner = (serves(root, place), prefix)  # no right to look inside
    if not inner[0]:
        return None
    return {
        "path": place, "item": "running", "origin": "running", "state": "present", "error": None,
        "kind": "container", "script": None, "python": None, "real": None, "id": None, "pid": int(pid),
        "inside": prefix, "inside_real": inner[1], "namespace": namespace,
    }  # fmt: skip


def prefixes(root: Root, process: str) -> "Iterator[str]":
    """Yield the prefixes that a process names: of its interpreter's path, and of VIRTUAL_ENV or CONDA_PREFIX."""
    try:
        words = read_bytes(process + "/cmdline", 4096).split(b"\0")
    except OSError:
        return  # it ended meanwhile, or is hidden under hidepid
    paths = [os.fsdecode(word) for word in words[:2]]
    try:
        paths.append(os.readlink(process + "/exe"))
    except OSError:
        pass  # a process of another user: its command line has to do
    if not any(os.path.basename(path).startswith(("python", "vllm", "sglang")) for path in paths):
        return
    for path in paths:
        if path.startswith("/") and os.path.basename(os.path.dirname(path)) == "bin":
            yield root.show(os.path.dirname(os.path.dirname(path)))
    try:
        environ = read_bytes(process + "/environ", 1 << 18).split(b"\0")
    except OSError:
        return  # a process of another user
    for word in environ:
        name, _, value = word.partition(b"=")
        if name in (b"VIRTUAL_ENV", b"CONDA_PREFIX") and value.startswith(b"/"):
            yield root.show(os.fsdecode(value)).rstrip("/")


def merge(finds: "List[List[Dict[str, Any]]]") -> "List[Dict[str, Any]]":
    """Join the finds in order. A folder found twice is one item, except where two entries name it plainly."""
    items: List[Dict[str, Any]] = []
    paths, ids = set(), set()
    for found in finds:
        for one in found:
            plain = one["origin"] == "listed" and expand_home(one["item"]).rstrip("/") == one["path"]
            if one["path"] in paths or (one["id"] in ids and not plain):
                continue
            paths.add(one["path"])
            if one["id"] is not None:
                ids.add(one["id"])
            items.append(dict(one, index=len(items)))
    return items
