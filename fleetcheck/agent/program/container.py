"""An environment of a container: its files are read under its own root folder, and nothing of it is executed."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Optional

from fleetcheck.agent.program.activate import no_python3
from fleetcheck.agent.program.contain import contained
from fleetcheck.agent.program.values import Root, dumps, problem, read_bytes, text_value


class FoundPackage:
    """What a spec of importlib tells of a package that lies in a folder."""

    def __init__(self, place: str) -> None:
        self.submodule_search_locations = [place]
        regular = os.path.isfile(place + "/__init__.py")
        self.origin: "Optional[str]" = place + "/__init__.py" if regular else None
        self.has_location = regular
        self.loader: "Optional[str]" = "file" if regular else None


class PackageFolders:
    """A finder over folders of packages alone, without hooks, which would be executed."""

    def __init__(self, folders: "List[str]") -> None:
        self.folders = folders

    def find_spec(self, name: str, *_: Any) -> "Optional[FoundPackage]":
        """Return where a package lies; a regular one is preferred to a folder without ``__init__.py``."""
        places = [folder + "/" + name for folder in self.folders if os.path.isdir(folder + "/" + name)]
        places.sort(key=lambda place: not os.path.isfile(place + "/__init__.py"))
        return FoundPackage(places[0]) if places else None


def look_contained(root: Root, item: "Dict[str, Any]", source: bytes, limit: float) -> str:
    """Return the part ``venv/N`` of an environment of a container."""
    value: "Dict[str, Any]" = {
        "index": item["index"], "path": item["path"], "real": None, "item": item["item"],
        "origin": item["origin"], "state": "ran", "error": None, "rc": None, "stderr": "", "cfg": None,
        "activation": None,
    }  # fmt: skip
    place = root.at("/proc/%d/root" % item["pid"])
    space = program_of(source)
    environ = {}
    try:
        for word in read_bytes(root.at("/proc/%d/environ" % item["pid"]), 1 << 18).split(b"\0"):
            name, equals, text = os.fsdecode(word).partition("=")
            if equals:
                environ[name] = text
    except OSError as error:
        value["stderr"] = "environment: " + problem(error)
    try:
        told = contained(place, lambda: read_inside(space, item, environ), limit)
    except OSError as error:
        value["state"], value["error"] = "unreadable", "in a container: " + problem(error)
        return dumps(value)
    value["cfg"] = told["cfg"]
    value["activation"] = {
        "kind": "container", "script": None, "status": "ok", "rc": None, "stderr": "",
        "python3": no_python3(None), "env": told["env"],
    }  # fmt: skip
    return dumps(value)[:-1] + ", " + str(told["line"])[1:]


def program_of(source: bytes) -> "Dict[str, Any]":
    """Return the names of the program for an environment's interpreter, which here runs in the agent's."""
    space: "Dict[str, Any]" = {"__name__": "fleetcheck"}
    exec(compile(source.rpartition(b"tell(4)")[0], "fleetcheck", "exec"), space)
    import ast  # noqa: F401  # what is needed later must be loaded before the root folder changes
    import csv  # noqa: F401

    return space


def read_inside(space: "Dict[str, Any]", item: "Dict[str, Any]", environ: "Dict[str, str]") -> "Dict[str, Any]":
    """Run the program over the environment's folders, under the container's root folder."""
    prefix = item["inside"]
    os.environ.clear()
    os.environ.update(environ)
    cfg = text_value(Root(""), prefix + "/pyvenv.cfg")
    sys.prefix = prefix
    folders, version = package_folders(prefix)
    site = site_inside(space, prefix, folders, version, cfg.get("text"))
    sys.path[:] = site.path
    finder: Any = PackageFolders(site.path)
    sys.meta_path[:] = [finder]
    interpreter = {
        "version": version, "implementation": "cpython", "executable": prefix + "/bin/python", "real": None,
        "prefix": prefix, "base_prefix": None, "sys_path": site.path[:64], "closed": list(site.closed),
        "purelib": folders[0] if folders else None, "platlib": None,
    }  # fmt: skip
    space["find_site"] = lambda _: site
    space["interpreter"] = lambda _: interpreter
    space["headers"] = lambda: None
    sys.argv = ["-", ""]
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(told)
            space["tell"](tell)
        finally:
            os._exit(0)
    os.close(tell)
    chunks = []
    while True:
        chunk = os.read(told, 1 << 16)
        if not chunk:
            break
        chunks.append(chunk)
    os.waitpid(pid, 0)
    lines = b"".join(chunks).decode("ascii", "replace").split("\n")
    if len(lines) < 3:
        raise OSError("the look at its packages gave no answer")
    return {"cfg": cfg, "env": space["allowed_env"](environ, Root("")), "line": lines[1]}


def site_inside(
    space: "Dict[str, Any]", prefix: str, folders: "List[str]", version: "Optional[str]", cfg: "Optional[str]"
) -> Any:
    """Return the site of an environment: its folders with what their ``.pth`` files and ``sitecustomize`` add.

    They are read as data, as on the host; so are those of the interpreter below, where ``cfg`` (the text of
    ``pyvenv.cfg``) lends its packages.
    """
    lines = [line.partition("=") for line in (cfg or "").splitlines()]
    homes = [value.strip() for key, _, value in lines if key.strip().lower() == "home"]
    base = os.path.dirname(homes[0]) if homes else prefix
    library = base + "/lib/python" + (version or "3")
    site = space["Site"](prefix, None, [library] if os.path.isdir(library) else [])
    site.system = cfg is not None and space["includes_system"](prefix + "/pyvenv.cfg")
    for folder in [*folders, *(package_folders(base)[0] if site.system and base != prefix else [])]:
        site.add_folder(folder)
    site.customize([])
    return site


def package_folders(prefix: str) -> "tuple[List[str], Optional[str]]":
    """Return the folders of packages of an environment, and the version of Python that they are for."""
    found: "List[str]" = []
    version = None
    for library in ("/lib", "/lib64", "/local/lib"):
        try:
            names = sorted(name for name in os.listdir(prefix + library) if name.startswith("python3"))
        except OSError:
            continue
        for name in names:
            for packages in ("/site-packages", "/dist-packages"):
                place = prefix + library + "/" + name + packages
                if os.path.isdir(place) and os.path.realpath(place) not in map(os.path.realpath, found):
                    found.append(place)
                    version = version or (name[6:] if "." in name else None)
    return found, version
