"""An inventory from whatever the user named: a file, a folder, standard input, or host names.

In: the text behind ``-i``. Out: a resolved :class:`Inventory`, or :class:`InputError` with every problem. What
kind of inventory it is, is told by its content.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from fleetcheck.errors import InputError, Problem
from fleetcheck.inventory import kinds, native
from fleetcheck.inventory.foreign import ARGUMENT, Foreign
from fleetcheck.inventory.lint import lint, same_hosts
from fleetcheck.inventory.model import Inventory, Target
from fleetcheck.inventory.native import Places
from fleetcheck.inventory.origins import Origin, of_target
from fleetcheck.inventory.selection import split
from fleetcheck.inventory.source import STDIN, SUFFIXES, Text, is_stream, read_path, read_stream
from fleetcheck.inventory.wording import NO_SECRETS, holds_password, shown

VARIABLE = "FLEETCHECK_INVENTORY"
_PATHLIKE = (*SUFFIXES, ".json", ".ini", ".toml", ".cfg", ".txt")


@dataclass(frozen=True, slots=True)
class Loaded:
    """An inventory, what is suspicious in it, and where its entries stand.

    ``places`` maps ``("hosts", name)``, ``("groups", name)``, ``("waivers", index)`` and
    ``("maintenance", index)`` to a file and line; it is empty for an inventory of bare names.
    """

    inventory: Inventory
    places: Mapping[tuple[str, str | int], tuple[str, int]]
    warnings: tuple[Problem, ...] = ()
    locate: Callable[[Target], Mapping[str, str]] = lambda _target: {}
    children: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The child groups of each group."""

    def origins(self, target: Target) -> list[Origin]:
        """Return where each value of ``target`` comes from."""
        return of_target(target, self.locate(target))


def load(source: str | Path | None, *, stdin: TextIO | None = None, execute: bool = False) -> Inventory:
    """Return the inventory that ``source`` names: a path, ``-`` for standard input, or host names.

    None means ``$FLEETCHECK_INVENTORY``, then ``inventory.yaml`` in the config folder. A text that is no existing
    path and does not look like one is taken for names (``gpu01,gpu02``, ``gpu[01-16].lab``, ``@hosts.txt``).
    ``execute`` allows to run an executable inventory. Raises :class:`InputError` with every problem at once.
    """
    return read(source, stdin=stdin, execute=execute).inventory


def read(
    source: str | Path | None,
    *,
    stdin: TextIO | None = None,
    execute: bool = False,
    unruly: native.Unruly | None = None,
) -> Loaded:
    """As :func:`load`, with the warnings and the places of the entries; ``unruly`` judges the names of rules."""
    if source is None:
        source = os.environ.get(VARIABLE) or default_path()
    _check_unicode(str(source))
    problems: list[Problem] = []
    foreign = Foreign(problems, execute=execute)
    if isinstance(source, str) and source == "-":
        return _of_texts(STDIN, None, read_stream(stdin, problems), foreign, unruly)
    if isinstance(source, str) and (source.startswith("@") or not _is_path(source)):
        named = foreign.named(source)
        if re.fullmatch(r"[^\s\d,\[\]@*?.]+", source) and not foreign.problems:
            # A mistyped path would be audited as a host that cannot be found; hosts of a fleet have numbers.
            foreign.warnings.append(Problem(ARGUMENT, None, f"no file {shown(source)!r}: taken as a host name"))
        return _loaded(*named, foreign)
    path = Path(source)
    _check_unicode(str(path.absolute()))
    if holds_password(str(source)) and not path.exists():
        raise InputError([Problem(ARGUMENT, None, f"{shown(str(source))} holds a password; {NO_SECRETS}")])
    if foreign.is_ansible_folder(path):
        return _loaded(*foreign.ansible(path), foreign)
    texts = read_path(path, problems)
    # What another program is to read must be there when it comes: what a pipe held is gone.
    return _of_texts(str(path), None if is_stream(path) else path, texts, foreign, unruly)


def default_path() -> Path:
    """Return the inventory of the config folder. Raises :class:`InputError` where there is none."""
    from platformdirs import user_config_path  # noqa: PLC0415  (only this last resort needs it)

    path = user_config_path("fleetcheck") / "inventory.yaml"
    if not path.exists():
        message = (
            f"no inventory: give one with -i (a file, or hosts such as gpu01), set ${VARIABLE}, or write {path}"
        )
        raise InputError([Problem("fleetcheck", None, message)])
    return path


def parse(
    name: str, texts: Sequence[Text], problems: list[Problem], unruly: native.Unruly | None = None
) -> Loaded:
    """Return the native inventory that ``texts`` make together; ``problems`` are those of reading them."""
    inventory, places, fleet = native.parse(name, texts, problems, unruly)
    warnings = (*(one for text in texts for one in lint(text)), *same_hosts(inventory, places))
    children = {group.name: group.children for group in fleet.groups.values()}
    return Loaded(inventory, places, warnings, lambda target: native.places_of(fleet, target), children)


def _of_texts(
    name: str, path: Path | None, texts: list[Text], foreign: Foreign, unruly: native.Unruly | None
) -> Loaded:
    form: kinds.Form = kinds.form_of(texts[0].text) if len(texts) == 1 else "native"
    if form == "native":
        return parse(name, texts, foreign.problems, unruly)
    (text,) = texts
    if form == "ansible-list":
        return _loaded(*foreign.listed(text), foreign)
    foreign.warnings += lint(text, ansible=form in ("ansible", "script"))
    if form == "names":
        return _loaded(*foreign.names(text), foreign)
    if path is None:
        hint = {
            "ssh_config": "ssh reads its config from a file; give its path",
            "script": "an executable cannot come through a pipe; give its path",
        }.get(form, "Ansible reads an inventory from a path; give it, or what `ansible-inventory --list` prints")
        raise InputError([*foreign.problems, Problem(name, None, hint)])
    if form == "ssh_config":
        return _loaded(*foreign.ssh_config(path, text), foreign)
    return _loaded(*foreign.ansible(path), foreign)


def _loaded(
    inventory: Inventory, places: Places, locate: Callable[[Target], Mapping[str, str]], foreign: Foreign
) -> Loaded:
    """Return what was loaded. Raises :class:`InputError`; warnings are in it, because they may explain it."""
    if not inventory.targets and not foreign.problems:
        foreign.problems.append(Problem(inventory.source, None, "no host is named; this is no fleet"))
    if foreign.problems:
        raise InputError(tuple(dict.fromkeys([*foreign.warnings, *foreign.problems])))
    warnings = dict.fromkeys([*foreign.warnings, *same_hosts(inventory, places)])
    return Loaded(inventory, places, tuple(warnings), locate, foreign.children)


def _check_unicode(text: str) -> None:
    """Raise :class:`InputError` where bytes of an argument or a path are not UTF-8: no report could hold them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            [Problem(ARGUMENT, None, f"{shown(text)}: a name that is not UTF-8; rename it")]
        ) from None


def _is_path(source: str) -> bool:
    """Return whether a file is there or meant: also a link to nowhere, and one that the user may not look at."""
    try:
        os.lstat(source)
    except ValueError:
        return False
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ELOOP):
            return True
    else:
        return True
    if any(word.startswith("@") for word in split(source)):
        return False
    # gpu[0-6/2] has a step.
    bare = re.sub(r"\[[\d,/ -]*\]", "", source)
    return "/" in bare or source.startswith((".", "~")) or source.lower().endswith(_PATHLIKE)
