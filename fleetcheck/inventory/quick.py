"""The names of a native inventory, without what judges it: completion has no time for that.

In: a file or folder. Out: its hosts and groups, as loading it gives them; None where it must be loaded. The plain
block shape needs no YAML parser. Where one line is out of it (flow mappings, anchors and tags, values of several
lines), YAML's events are read, but for steps in nodesets and the like. Settings are passed over unread, so that an
inventory with a wrong port still completes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

MAX_BYTES = 2 << 20
"""As :data:`fleetcheck.inventory.source.MAX_BYTES`, whose module costs more to import than a reading here."""
MAX_NAMES = 100_000

# No possessive quantifier: those of Python 3.11.2, which Debian 12 has, miss matches (cpython#106052). Instead no
# text can be matched in two ways, and no run of spaces be divided between two parts, so that a failure is linear.
_QUOTED = r"""(?:"[^"\\\n]*"|'[^'\n]*')"""
_LOOSE = r"""[^\[\]{}"'#\n]*"""
_FLOW = rf"""[\[{{]{_LOOSE}(?:(?<=[\[{{,:\s]){_QUOTED}{_LOOSE})*[\]}}]"""
for _ in range(3):
    _FLOW = rf"""[\[{{]{_LOOSE}(?:(?:(?<=[\[{{,:\s]){_QUOTED}|{_FLOW}){_LOOSE})*[\]}}]"""
_PLAIN = r"""[A-Za-z0-9_/~.+(][^\n#:]*(?:(?::(?=[^\s])|(?<=\S)#)[^\n#:]*)*(?![ ])"""
_KEY = rf"""(?:[A-Za-z0-9_/~.][^\s:#"'{{}}&*!|>%@`]*|{_QUOTED})"""
_LINE = re.compile(
    rf"^([ ]*)(?![ ])(-[ ]+(?![ ]))?(?:({_KEY})[ ]*:(?=\s|$))?[ ]*(?![ ])"
    rf"({_PLAIN}|{_QUOTED}|{_FLOW}|)[ ]*(?:(?<!\S)#[^\n]*)?$",
    re.MULTILINE,
)
"""One line that is whole in itself: indent, dash, key, value."""
_STRANGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\t]")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?")
_KEYS = re.compile(rf"{_NAME.pattern}(?:\n{_NAME.pattern})*")
_NODES = re.compile(r"[A-Za-z0-9_.,\[\] -]+")
_RANGE = re.compile(r"(0|[1-9]\d*|0\d+)(?:-(\d+))?")
_ITEM = re.compile(rf"\s*({_QUOTED}|[A-Za-z0-9_.-]+)\s*(?:,|$)")
SECTIONS = ("defaults", "groups", "hosts", "waivers", "maintenance")

Line = tuple[str, str, str, str]


class OutOfThePlain(Exception):  # noqa: N818 no error: the inventory is to be loaded
    """A line, or a nodeset, of another shape than the plain."""


def names(path: Path) -> tuple[list[str], list[str]] | None:
    """Return the hosts in the order of the inventory and the groups by name; None where it must be loaded."""
    try:
        files = _of_folder(path) if path.is_dir() else [path]
        texts = [_read(file) for file in files]
    except (OSError, UnicodeDecodeError, OutOfThePlain):
        return None
    found = of_texts(texts)
    if found is None:
        from fleetcheck.inventory import quick_tree  # noqa: PLC0415  (the plain shape needs no YAML parser)

        found = quick_tree.of_texts(texts)
    return found


def of_texts(texts: Iterable[str]) -> tuple[list[str], list[str]] | None:
    """As :func:`names`, of the texts of one inventory."""
    reader = _Reader()
    try:
        for text in texts:
            reader.read(_lines(text))
    except OutOfThePlain:
        return None
    return (list(reader.hosts), sorted(reader.groups)) if reader.hosts else None


def _of_folder(folder: Path) -> list[Path]:
    """Return the files of a folder that holds nothing but YAML: another file may make it one of Ansible's."""
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if not all(path.suffix in (".yaml", ".yml") and path.is_file() for path in files):
        raise OutOfThePlain
    return files


def _read(path: Path) -> str:
    with path.open("rb") as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise OutOfThePlain
    return raw.decode("utf-8-sig")


def _lines(text: str) -> list[Line]:
    """Return the lines that hold something."""
    text = text.replace("\r\n", "\n").removeprefix("---\n")
    lines = _LINE.findall(text)
    if _STRANGE.search(text) or len(lines) != text.count("\n") + 1:
        raise OutOfThePlain
    return [line for line in lines if line[1] or line[2] or line[3]]


class _Reader:
    """Walks the lines: sections at the margin, their entries at one indent, what belongs to an entry deeper."""

    def __init__(self) -> None:
        self.hosts: dict[str, None] = {}
        self.groups: set[str] = set()

    def read(self, lines: Sequence[Line]) -> None:
        seen: set[str] = set()
        for (_, dash, key, value), inside in _entries(lines, 0):
            section = _bare(key)
            if dash or section not in SECTIONS or section in seen:
                raise OutOfThePlain
            seen.add(section)
            if section not in ("groups", "hosts"):
                continue
            if value:
                raise OutOfThePlain
            if section == "hosts":
                self._own(inside)
                continue
            for entry, settings in _entries(inside):
                self._group(entry, settings)

    def _own(self, lines: Sequence[Line]) -> None:
        """Take the hosts that stand by themselves; the quick way is for one line each."""
        keys = [key for _, _, key, _ in lines]
        if (
            len({line[0] for line in lines}) == 1
            and not any(line[1] for line in lines)
            and _KEYS.fullmatch("\n".join(keys))
        ):
            self.hosts.update(dict.fromkeys(keys))
            return
        for (_, dash, key, _), _ in _entries(lines):
            if dash:
                raise OutOfThePlain
            self._add(_bare(key))

    def _group(self, entry: Line, settings: Sequence[Line]) -> None:
        if entry[1] or entry[3]:
            raise OutOfThePlain
        self.groups.add(_bare(entry[2]))
        for (_, dash, key, value), inside in _entries(settings):
            if dash or not key:
                raise OutOfThePlain
            if _bare(key) == "hosts":
                for nodes in _values(value, inside):
                    self._add(nodes)

    def _add(self, nodes: str) -> None:
        self.hosts.update(dict.fromkeys(expand(nodes)))
        if len(self.hosts) > MAX_NAMES:
            raise OutOfThePlain


def _entries(lines: Sequence[Line], indent: int | None = None) -> Iterable[tuple[Line, Sequence[Line]]]:
    """Yield each line at the indent of the first, with the lines that belong to it.

    A list may stand at the indent of the key that it is the value of.
    """
    if not lines:
        return
    indent = len(lines[0][0]) if indent is None else indent
    began: int | None = None
    for number, (spaces, dash, key, _) in enumerate(lines):
        if len(spaces) > indent or (dash and began is not None):
            if began is None:
                raise OutOfThePlain
            continue
        if len(spaces) < indent or not key:
            raise OutOfThePlain
        if began is not None:
            yield lines[began], lines[began + 1 : number]
        began = number
    if began is None:
        raise OutOfThePlain
    yield lines[began], lines[began + 1 :]


def _values(value: str, inside: Sequence[Line]) -> list[str]:
    """Return the texts that ``hosts:`` of a group holds: one, a list on its line, or a list below it."""
    if value.startswith("["):
        items, inner, at = [], value[1:-1], 0
        while at < len(inner):
            item = _ITEM.match(inner, at)
            if item is None:
                raise OutOfThePlain
            items.append(_bare(item[1]))
            at = item.end()
    elif value:
        items = [_bare(value)]
    else:
        items = [_bare(line[3]) for line in inside]
        indents = {line[0] for line in inside}
        if len(indents) > 1 or not all(dash and not key for _, dash, key, _ in inside):
            raise OutOfThePlain
    if not items or (value and inside):
        raise OutOfThePlain
    return items


def _bare(text: str) -> str:
    """Return a value without its quotes."""
    return text[1:-1] if text[:1] in ("'", '"') else text.rstrip()


def expand(text: str) -> list[str]:
    """Return the names of plain nodesets as :func:`fleetcheck.inventory.nodes.expand` gives them."""
    if _NAME.fullmatch(text):
        return [text]
    if not _NODES.fullmatch(text):
        raise OutOfThePlain
    found: list[str] = []
    for part in re.findall(r"(?:[^\s,\[\]]|\[[^\[\]]*\])+|[\[\]]", text):
        pieces = re.split(r"\[([^\[\]]*)\]", part)
        ranges = [_numbers(inside) for inside in pieces[1::2]]
        texts = pieces[::2]
        if any(map(str.isdigit, texts[1:-1])) or any(
            (before[-1:].isdigit() or after[:1].isdigit()) and len(set(map(len, one))) > 1
            for before, one, after in zip(texts, ranges, texts[1:], strict=False)
        ):
            raise OutOfThePlain  # ClusterShell joins digits beside a bracket with those in it
        size = 1
        for one in ranges:
            size *= len(one)
        if size > MAX_NAMES:
            raise OutOfThePlain
        form = "%s".join(texts)
        made = [form % numbers for numbers in product(*ranges)]
        if not _NAME.fullmatch(made[0]):  # numbers are all that the others differ in
            raise OutOfThePlain
        found += made
    return list(dict.fromkeys(found))


def _numbers(inside: str) -> list[str]:
    """Return the numbers of one pair of brackets: rising, and all padded alike or not at all."""
    found: list[str] = []
    last = -1
    padded = False
    for one in inside.split(","):
        match = _RANGE.fullmatch(one)
        if match is None or len(one) > 20:
            raise OutOfThePlain
        first, end = match[1], match[2] or match[1]
        low, high = int(first), int(end)
        padded = padded or any(len(number) > 1 and number.startswith("0") for number in (first, end))
        if low <= last or high < low or high - low > MAX_NAMES or (padded and len(first) != len(end)):
            raise OutOfThePlain
        found += (
            [str(number).zfill(len(first)) for number in range(low, high + 1)]
            if padded
            else map(str, range(low, high + 1))
        )
        last = high
    if padded and len(set(map(len, found))) > 1:
        raise OutOfThePlain
    return found
