"""The inventories that people already have: Ansible's, an ssh config, plain names.

In: a path or a text of such a kind. Out: an :class:`Inventory`, the places of its hosts, and a function that
says where a target's values come from. Problems and warnings are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from fleetcheck.errors import Problem
from fleetcheck.inventory import ansible, ansible_run, ansible_where, kinds, nodes, origins, selection, ssh_config
from fleetcheck.inventory.model import Inventory, Target
from fleetcheck.inventory.native import Places
from fleetcheck.inventory.source import MAX_BYTES, SUFFIXES, Text, decode
from fleetcheck.inventory.wording import shown

Result = tuple[Inventory, Places, Callable[[Target], Mapping[str, str]]]
ARGUMENT = "-i"


class Foreign:
    """Reads inventories of other kinds. ``execute``: an executable may be run."""

    def __init__(self, problems: list[Problem], *, execute: bool) -> None:
        self.problems = problems
        self.warnings: list[Problem] = []
        self.children: dict[str, tuple[str, ...]] = {}
        self._execute = execute

    def named(self, source: str) -> Result:
        """Return an inventory of bare names, nodesets, ``@files`` and ClusterShell groups given in one text."""
        return self._of_words(source, [(word, ARGUMENT, None) for word in selection.split(source)])

    def names(self, text: Text) -> Result:
        """Return an inventory of the names in a text: one or more a line, ``#`` begins a comment."""
        lines = enumerate(text.text.splitlines(), 1)
        return self._of_words(
            text.name,
            [(word, text.name, line) for line, one in lines for word in selection.split(_uncommented(one))],
        )

    def listed(self, text: Text, path: Path | None = None) -> Result:
        """Return the inventory that ``ansible-inventory --list`` prints; ``path`` is the one that it read."""

        def vaulted(variable: str) -> bool:
            return path is not None and ansible_where.is_vaulted(path, variable)

        listing = ansible.read(text, self.problems, self.warnings, vaulted=vaulted)
        self.children = listing.children
        if not listing.targets and not self.problems:
            self.problems.append(Problem(text.name, None, "ansible-inventory gives no host; this is no fleet"))
        written = None if path is not None else text.text
        return (
            Inventory(source=text.name, kind="ansible", targets=listing.targets),
            {},
            lambda target: origins.ansible(text.name, listing.variables[target.name], target, path, written),
        )

    def ansible(self, path: Path) -> Result:
        """Return an inventory in any form that Ansible reads, as ``ansible-inventory`` resolves it."""
        text = ansible_run.listing(path, execute=self._execute, problems=self.problems, warnings=self.warnings)
        if text is None:
            return Inventory(source=str(path), kind="ansible", targets=()), {}, lambda _target: {}
        return self.listed(text, path)

    def ssh_config(self, path: Path, text: Text) -> Result:
        """Return the hosts that an ssh config names; the config itself decides how they are reached."""
        reader = ssh_config.Reader(self.problems, self.warnings)
        reader.read(text)
        if not reader.names and not self.problems:
            message = "an ssh config without a Host entry that names a host (patterns are none); this is no fleet"
            self.problems.append(Problem(str(path), None, message))
        config = None if ssh_config.is_users_own(path) else str(path.absolute())
        targets = tuple(Target(name=name, ssh_config=config) for name in reader.names)
        places: Places = {("hosts", name): place for name, place in reader.names.items()}
        inventory = Inventory(source=str(path), kind="ssh_config", targets=targets)
        return inventory, places, partial(_of_config, reader.names, str(path))

    def is_ansible_folder(self, path: Path) -> bool:
        """Return whether ``path`` is a folder that Ansible reads: with variables, or any file of Ansible's.

        A folder that also holds files of the native format is refused.
        """
        try:
            files = sorted(one for one in path.iterdir() if not one.name.startswith(".")) if path.is_dir() else []
        except OSError:
            return False  # read as a native one, which says why not
        found: dict[bool, list[Path]] = {True: [], False: []}
        for file in files:
            if file.is_dir():
                if file.name in ("group_vars", "host_vars"):
                    found[True].append(file)
            elif not file.name.endswith(ansible_run.IGNORED):
                form = _form(file)
                if form != "native" or file.suffix in SUFFIXES:
                    found[form != "native"].append(file)
        if found[True] and found[False]:
            for file in found[False]:
                message = f"a native inventory in a folder of Ansible's ({found[True][0]}); give them one by one"
                self.problems.append(Problem(str(file), None, message))
        return bool(found[True])

    def _of_words(self, source: str, words: Iterable[tuple[str, str, int | None]]) -> Result:
        places: dict[str, tuple[str, int | None]] = {}
        for word, where, line in words:
            try:
                if word.startswith("@") and line is None:
                    self._at(word[1:], places)
                else:
                    places.update(dict.fromkeys(_plain(word), (where, line)) | places)
            except ValueError as error:
                lead = "neither an inventory file nor host names: " if where == ARGUMENT else ""
                self.problems.append(Problem(shown(source) if line is None else where, line, f"{lead}{error}"))
        if not places and not self.problems:
            message = "neither an inventory file nor host names: no host is named"
            self.problems.append(Problem(shown(source).strip() or ARGUMENT, None, message))
        inventory = Inventory(source=source, kind="names", targets=tuple(Target(name=name) for name in places))
        return inventory, {}, lambda target: {"host": _place(*places[target.name])}

    def _at(self, name: str, places: dict[str, tuple[str, int | None]]) -> None:
        """Add the hosts of a file of names; where there is none, of a ClusterShell group."""
        if not selection.is_file(name):
            from fleetcheck.inventory.clustershell import members  # noqa: PLC0415  (few need it)

            found = members(name, execute=self._execute)
            places.update(dict.fromkeys(found, (f"ClusterShell group @{name}", None)) | places)
            return
        for number, word in selection.lines(name, self.problems):
            try:
                places.update(dict.fromkeys(_plain(word), (name, number)) | places)
            except ValueError as error:
                self.problems.append(Problem(name, number, str(error)))


def _plain(word: str) -> list[str]:
    if word.startswith("@"):
        raise ValueError(f"{shown(word)}: a file of names names no other file")
    return nodes.expand(word)


def _uncommented(line: str) -> str:
    head, mark, _ = line.partition("#")
    return head if not mark or not head or head[-1].isspace() else line


def _place(source: str, line: int | None) -> str:
    return source if line is None else f"{source}:{line}"


def _of_config(names: Mapping[str, tuple[str, int]], source: str, target: Target) -> Mapping[str, str]:
    return {"host": _place(*names[target.name]), "ssh_config": source}


def _form(file: Path) -> kinds.Form:
    """Return the form of a file; what cannot be read as a text is left to the reader of the native format."""
    try:
        with file.open("rb") as stream:
            texts = decode(str(file), stream.read(MAX_BYTES + 1), [])
    except OSError:
        return "native"
    return kinds.form_of(texts[0].text) if texts else "native"
