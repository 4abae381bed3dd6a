"""What an environment's own interpreter sees: the packages as it would find them. Nothing of them is imported."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, Dict, List

from fleetcheck.agent.program.absent import add_needed
from fleetcheck.agent.program.constant import named_csrc
from fleetcheck.agent.program.distributions import PACKAGES, PROVIDERS, Record, describe_dist, find_dists
from fleetcheck.agent.program.frameworks import FRAMEWORK_FILES, cubins, framework_files, prebuilt, shadows
from fleetcheck.agent.program.sitepath import Site, find_site, mapped
from fleetcheck.agent.program.sources import RECORDED, describe_csrc, describe_file, flashinfer_files
from fleetcheck.agent.program.startfiles import added_paths, hidden_package, start_rows
from fleetcheck.agent.program.tools import gather_tools
from fleetcheck.agent.program.values import Root, allowed_env, dumps, problem, short


def interpreter(root: Root) -> Dict[str, Any]:
    """Describe this interpreter. site-packages are those that site would add; sysconfig is slow to import."""
    prefix, path = Added.site.prefix, Added.site.path
    library = "/lib/python%d.%d" % sys.version_info[:2]
    guesses = [prefix + library + "/site-packages", prefix + library + "/dist-packages"]
    pure = ([one for one in guesses if one in path] or guesses)[0]
    plat = pure.replace("/lib/", "/lib64/", 1) if prefix + "/lib64" in "".join(path[-4:]) else pure
    looked_at = [one for entry in path for one in (entry, entry + "/flashinfer")]
    return {
        "version": "%d.%d.%d" % sys.version_info[:3],
        "implementation": sys.implementation.name,
        "executable": root.show(sys.executable or ""),
        "real": root.show(os.path.realpath(sys.executable or "")),
        "prefix": root.show(prefix),
        "base_prefix": root.show(Added.site.base_prefix),
        "sys_path": [root.show(one) for one in path][:64],
        "closed": [root.show(one) for one in (*Added.site.closed, *filter(is_closed, looked_at))][:64],
        "purelib": root.show(pure),
        "platlib": root.show(plat),
    }


def is_closed(place: str) -> bool:
    """Return whether a folder may not be listed or entered: to an import it looks like one without the package."""
    try:
        os.stat(place)
    except OSError as error:
        return error.errno == errno.EACCES
    return os.path.isdir(place) and not os.access(place, os.R_OK | os.X_OK)


class Added:
    """Where packages are searched: the entries of PYTHONPATH that the activation put there, then ``site``'s path.

    None of it is ever on ``sys.path``, so that nothing of it is executed.
    """

    paths: "List[str]" = []
    login = ""
    site = Site(sys.prefix, sys.base_prefix, list(sys.path))


def find_spec(name: str) -> Any:
    """Return the spec of a top-level name as ``importlib.util.find_spec`` would in a normal start.

    Python has the entries of PYTHONPATH in front of all others. Finders of editable installs come before or behind
    that of the path. ``sys.meta_path`` holds Python's own finders alone, which execute nothing.
    """
    site = Added.site
    spec: Any = mapped(site.code.front, name)
    for finder in sys.meta_path if spec is None else ():
        find = getattr(finder, "find_spec", None)
        path = [*Added.paths, *site.path] if getattr(finder, "__name__", "") == "PathFinder" else None
        spec = None if find is None else find(name, path, None)
        if spec is not None:
            break
    # A folder without __init__.py is the path finder's answer too: what stands behind it is not asked.
    return spec if spec is not None else mapped(site.code.back, name)


def package(root: Root, name: str, folders: "List[str]") -> Dict[str, Any]:
    """Return the package value of one import name; ``folders`` are the dist-infos that may belong to it."""
    value: Dict[str, Any] = {
        "spec": "none", "origin": None, "root": None, "root_real": None, "locations": [], "error": None,
        "dists": [describe_dist(root, folder) for folder in folders], "files": [], "checked": 0, "csrc": [],
    }  # fmt: skip
    try:
        spec = find_spec(name)
        if spec is None:
            unread = Added.site.code.unread
            if name == "flashinfer" and unread:
                where = "%s:%d" % (root.show(unread[0][0]), unread[0][1])
                value["spec"] = "error"
                value["error"] = (
                    where + " changes the path at every start; it is not run, and cannot be read as data"
                )
            return value
        locations = [str(place) for place in spec.submodule_search_locations or ()]
        origin = spec.origin if spec.has_location or spec.loader is not None else None
    except Exception as error:
        value["spec"], value["error"] = "error", problem(error)
        return value
    value["locations"] = [root.show(place) for place in locations][:16]
    if not isinstance(origin, str) or not os.path.isabs(origin):
        value["spec"] = "namespace"
        return value
    value["spec"], value["origin"] = "file", root.show(origin)
    # A module of that name is no folder: it stands for itself, and nothing of the package lies below it.
    place, real = origin, os.path.realpath(origin)
    if locations:
        place, real = os.path.dirname(place), os.path.dirname(real)
    value["root"], value["root_real"] = root.show(place), root.show(real)
    try:
        _files(root, name, place, folders, value)
    except Exception as error:
        value["error"] = problem(error)
    return value


def _files(root: Root, name: str, place: str, folders: "List[str]", value: Dict[str, Any]) -> None:
    if name == "torch":
        record = Record(value["dists"], folders, place, ("version.py",))
        value["files"] = [describe_file(root, place, "version.py", record)]
        value["checked"] = int(value["files"][0]["record"] in ("match", "mismatch", "missing"))
    elif name == "flashinfer":
        record = Record(value["dists"], folders, place, RECORDED)
        value["gates"] = []
        texts: "Dict[str, bytes]" = {}
        files, value["checked"], errors = flashinfer_files(root, place, record, value["gates"], texts)
        value["files"] = add_needed(root, place, record, files, texts)
        value["error"] = "; ".join(errors)[:300] or None
        value["csrc"] = [describe_csrc(root, place, folder, record) for folder in csrc_folders(place)]
        value["prebuilt"] = prebuilt(root, place + "/data/aot")
        user = user_site()
        value["hidden"] = hidden_package(root, Added.site, name, place, Added.paths)
        value["start_files"] = start_rows(root, Added.site, Added.paths, user, folders)
        # What the activation put in front is what was found: only the login's own entries can still be before it.
        front = value["hidden"] is not None and value["hidden"]["by"] == "activation"
        environ = dict(os.environ, PYTHONPATH=Added.login) if Added.paths else os.environ
        value["shadows"] = shadows(root, environ, None if front else user, name, place)
    elif name in FRAMEWORK_FILES:
        record = Record(value["dists"], folders, place, FRAMEWORK_FILES[name])
        value["files"], value["checked"] = framework_files(root, name, place, record)
    elif name == "flashinfer_cubin":
        value["cubins"] = cubins(place)
    elif name == "flashinfer_jit_cache":
        value["prebuilt"] = prebuilt(root, place + "/jit_cache")


def csrc_folders(place: str) -> "List[str]":
    """Return the folders to look at: ``data/csrc``, a hand-made ``csrc``, and what env.py says instead."""
    found = [place + "/data/csrc"]
    if os.path.lexists(place + "/csrc"):
        found.append(place + "/csrc")
    env = os.path.realpath(place + "/jit/env.py")
    # FlashInfer starts from the real path of env.py itself, which a linked file takes elsewhere.
    own = os.path.dirname(os.path.dirname(env)) + "/data/csrc"
    others = (own, named_csrc(short(env, 65536) or "", env))
    for other in others:
        if other is not None and os.path.realpath(other) not in [os.path.realpath(one) for one in found]:
            found.append(other)
    return found


def user_site() -> "str | None":
    """Return the user's site-packages where an interpreter of here that is not isolated would have it.

    It goes before the environment's own; a venv has it only with the system's packages.
    """
    if os.environ.get("PYTHONNOUSERSITE"):
        return None
    if not Added.site.system:
        return None
    base = os.environ.get("PYTHONUSERBASE") or os.environ.get("HOME", "") + "/.local"
    return "%s/lib/python%d.%d/site-packages" % ((base,) + sys.version_info[:2]) if base[:1] == "/" else None


def headers() -> str:
    """Return the folder of this interpreter's headers; sysconfig, which knows it, is slow to import."""
    version = "%d.%d" % sys.version_info[:2]
    return sys.base_prefix + "/include/python" + version + str(getattr(sys, "abiflags", ""))


def tell(result: int) -> None:
    """Write the two lines of this environment: its variables, and what its interpreter sees."""
    root = Root(sys.argv[1])
    os.write(result, (dumps(allowed_env(os.environ, root)) + "\n").encode())
    if len(sys.argv) > 3:
        Added.login = sys.argv[3]
        Added.paths = added_paths(root, Added.login, dict(os.environ))
    Added.site = find_site(Added.paths)
    if Added.site.broken is not None:
        why = " cannot be decoded as " + sys.getfilesystemencoding() + ", so that this Python does not start"
        os.write(result, (dumps({"broken": root.show(Added.site.broken) + why}) + "\n").encode())
        return
    dists = find_dists([*Added.paths, *Added.site.path])
    packages = {}
    for name, names in PACKAGES.items():
        if name == "flashinfer_jit_cache":
            names += tuple(sorted(one for one in dists if one.startswith(PROVIDERS)))
        packages[name] = package(root, name, [folder for one in names for folder in dists.get(one, [])])
    tools = gather_tools(root, os.environ, headers())
    value = {"interpreter": interpreter(root), "packages": packages, "tools": tools}
    line = dumps(value).encode() + b"\n"
    view = memoryview(line)
    while view:
        view = view[os.write(result, view) :]
