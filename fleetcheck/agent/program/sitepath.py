"""Where an environment's packages are looked for: what Python's module ``site`` would have set up, had it run.

The interpreter is started with ``-S``, since ``site`` executes lines of ``.pth`` files and ``sitecustomize``. So
what it does is done here over data, by the rules of the Python that runs this:
https://docs.python.org/3/library/site.html.
``sys.path`` itself stays the standard library's alone: what this program imports late comes from nowhere else.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from fleetcheck.agent.program.startcode import StartCode
from fleetcheck.agent.program.startnames import module_files
from fleetcheck.agent.program.values import problem, read_bytes

PTH_LIMIT = 1 << 20
PTH_CODE = 65536
MOST_PTH = 200
MOST_PATHS = 2000
# Releases that pass over .pth files whose name begins with a dot (gh-113659), a micro version for each minor one.
HIDDEN_SINCE = {8: 19, 9: 19, 10: 14, 11: 8, 12: 2}
# A name that leads to no regular file is passed over by every Python; another error may be this user's alone.
NO_FILE = ("ENOENT", "ENOTDIR", "ELOOP", "EINVAL", "EISDIR", "ENXIO")


class Site:
    """An environment's prefix and search path. ``system``: it has the packages of the interpreter below, too.

    ``closed``: files of its start that this user may not read, and why. What serves may read them. ``broken``: the
    file that keeps ``site``, and Python with it, from starting.
    """

    def __init__(self, prefix: str, base_prefix: str, path: "List[str]") -> None:
        self.prefix, self.base_prefix, self.path = prefix, base_prefix, path
        self.system = True
        self.closed: "Dict[str, str]" = {}
        self.broken: "Optional[str]" = None
        self.known = set(path)
        self.code = StartCode(self)

    def add_path(self, path: str, at: "Optional[int]" = None) -> None:
        """Put an entry on the path: at its end where it is new, else at a place."""
        if len(self.path) < MOST_PATHS:
            self.path.insert(len(self.path) if at is None else at, path)
            self.known.add(path)

    def replace(self, path: "List[str]") -> None:
        """Let the path hold other entries from here on."""
        self.path[:] = path[:MOST_PATHS]
        self.known.update(self.path)

    def shut(self, file: str, error: OSError) -> None:
        """Keep that a file of the start may not be read."""
        if problem(error) not in NO_FILE and len(self.closed) < 20:
            self.closed[file] = problem(error)

    def add_folder(self, folder: str) -> None:
        """Add a folder of packages and what its ``.pth`` files name, as ``site.addsitedir`` does."""
        folder = os.path.abspath(folder)
        if folder not in self.known:
            self.add_path(folder)
        for file in pth_files(folder):
            self._add_file(folder, file)

    def customize(self, added: "List[str]") -> None:
        """Add what ``sitecustomize`` does, the first one that an import finds (``added`` comes in front)."""
        for file in module_files([*added, *self.path], "sitecustomize")[-1:]:
            self.code.run_file(file, direct=True)

    def _add_file(self, folder: str, file: str) -> None:
        try:
            data = read_bytes(file, PTH_LIMIT)
            lines = pth_lines(data)
        except OSError as error:
            self.shut(file, error)
            return  # site passes over it too, where it runs as this user
        except UnicodeDecodeError:
            self.broken = self.broken or file
            return
        names = None
        room = PTH_CODE
        for number, line in enumerate(lines, 1):
            if line.startswith("#") or not line.strip():
                continue
            if is_code(line):
                room -= len(line)
                if room < 0:
                    self.code.tell(file, number, True)
                    return
                names = names or self.code.names_of_line(folder)
                self.code.read(line, file, number, names)
                continue
            place = os.path.abspath(os.path.join(folder, line.rstrip()))
            if "\0" not in place and place not in self.known and os.path.exists(place):
                self.add_path(place)
        if len(data) >= PTH_LIMIT:
            self.code.tell(file, len(lines), True)


def find_site(added: "List[str]") -> Site:
    """Return the site of this interpreter, which runs without. ``added``: entries of PYTHONPATH in front of it."""
    path: "List[str]" = []
    for entry in map(os.path.abspath, sys.path):
        if entry not in path:
            path.append(entry)
    found = Site(sys.prefix, sys.base_prefix, path)
    rounds = [[sys.prefix, sys.exec_prefix]]
    folder = os.path.dirname(os.path.abspath(sys.executable or "/nonexistent/python"))
    for place in (folder, os.path.dirname(folder)):
        if os.path.isfile(place + "/pyvenv.cfg"):
            found.prefix = os.path.dirname(folder)
            found.system = includes_system(place + "/pyvenv.cfg")
            below = [sys.base_prefix, sys.base_exec_prefix] if found.system else []
            rounds = [[found.prefix], [found.prefix, *below]]  # as site: the lines of its .pth files run twice
            # Debian's getsitepackages asks by them whether this is a venv.
            sys.prefix = sys.exec_prefix = found.prefix
            break
    # With -S the module does nothing by itself. Distributions change which folders it names: Debian, Fedora.
    import site

    for prefixes in rounds:
        for place in site.getsitepackages(prefixes):
            if os.path.isdir(place):
                found.add_folder(place)
    found.customize(added)
    return found


def includes_system(cfg: str) -> bool:
    """Return whether a ``pyvenv.cfg`` lends the packages of the interpreter below; silence does."""
    answer = "true"
    try:
        text = read_bytes(cfg, PTH_LIMIT).decode("utf-8", "replace")
    except OSError:
        return True
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip().lower() == "include-system-site-packages":
            answer = value.strip().lower()
    return answer == "true"


def pth_files(folder: str) -> "List[str]":
    """Return the ``.pth`` files of a folder in the order in which this Python reads them."""
    release: "Tuple[int, ...]" = sys.version_info[:3]
    hides = release[1] > 12 or release[2] >= HIDDEN_SINCE.get(release[1], 0)
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".pth")]
    except OSError:
        return []  # sys.path names folders that need not be there
    shown = sorted(name for name in names if not (hides and name.startswith(".")))
    return [folder + "/" + name for name in shown[:MOST_PTH]]


def pth_lines(data: bytes) -> "List[str]":
    """Return the lines of a ``.pth`` file: since 3.13 UTF-8 first, and by every line break that Unicode knows.

    Raises UnicodeDecodeError where ``site`` does: it decodes strictly, and the interpreter ends by it.
    """
    local = sys.getfilesystemencoding()
    if len(data) >= PTH_LIMIT:
        data = data.rpartition(b"\n")[0]  # cut there, and perhaps within a letter
    if sys.version_info < (3, 13):
        return data.decode(local).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    try:
        return data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        return data.decode(local).splitlines()


def is_code(line: str) -> bool:
    """Return whether a line of a ``.pth`` file is executed."""
    return line.startswith(("import ", "import\t"))


class Editable:
    """The spec of a package that an editable install maps to a folder of its own."""

    def __init__(self, origin: "Optional[str]", locations: "List[str]") -> None:
        self.origin, self.submodule_search_locations = origin, locations
        self.has_location = origin is not None
        self.loader = origin


def mapped(places: "Dict[str, Any]", name: str) -> "Optional[Editable]":
    """Return the spec of a top-level name that an editable install maps to files that are there."""
    place = places.get(name)
    if isinstance(place, list):
        return Editable(None, [str(one) for one in place])
    if not isinstance(place, str):
        return None
    for file in (place if place.endswith(".py") else place + "/__init__.py", place + ".py"):
        if os.path.isfile(file):
            return Editable(file, [os.path.dirname(file)] if file.endswith("/__init__.py") else [])
    return None
