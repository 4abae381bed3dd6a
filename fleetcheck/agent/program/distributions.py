"""What pip recorded: the dist-info folders of the packages that matter, and the rows of their RECORD."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from fleetcheck.agent.program.values import (
    Root,
    open_file,
    problem,
    short,
    text_value,
    without_password,
    without_query,
)

PACKAGES = {
    "flashinfer": ("flashinfer-python", "flashinfer"),
    "flashinfer_cubin": ("flashinfer-cubin",),
    "flashinfer_jit_cache": ("flashinfer-jit-cache",),
    "torch": ("torch",),
    "sglang": ("sglang",),
    "sgl_kernel": ("sgl-kernel",),
    "vllm": ("vllm",),
    "tvm_ffi": ("apache-tvm-ffi",),
}
PROVIDERS = "flashinfer-jit-cache-"
RECORD_LIMIT = 32 << 20
RECORD_PIECE = 256 << 10
METADATA_LIMIT = 256 << 10


def normal(name: str) -> str:
    """Return a distribution name as PEP 503 normalises it."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def find_dists(folders: "Sequence[str]") -> "Dict[str, List[str]]":
    """Return the metadata folders of every wanted distribution, in the order of ``sys.path``."""
    wanted = {name for names in PACKAGES.values() for name in names}
    found: "Dict[str, List[str]]" = {}
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue  # sys.path names zip files and folders that need not be there
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                dist = normal(name.rpartition(".")[0].split("-")[0])
                if dist in wanted or dist.startswith(PROVIDERS):
                    found.setdefault(dist, []).append(folder + "/" + name)
    return found


def describe_dist(root: Root, folder: str) -> Dict[str, Any]:
    """Describe one distribution; its RECORD is counted where it is read, by :func:`read_record`."""
    name, _, version = os.path.basename(folder).rpartition(".")[0].partition("-")
    ours = tuple(one for names in PACKAGES.values() for one in names)
    requires: "List[str]" = []
    for file in ("METADATA", "PKG-INFO"):
        for line in (short(folder + "/" + file, METADATA_LIMIT) or "").splitlines():
            key, _, text = line.partition(": ")
            if key == "Name":
                name = text.strip()[:200]
            elif key == "Version":
                version = text.strip()[:200]
            elif key == "Requires-Dist" and normal(text[:20]).startswith(ours) and len(requires) < 50:
                requires.append(without_query(without_password(text.strip()))[:200])
            elif not line:
                break
    direct = folder + "/direct_url.json"
    record = folder + "/RECORD"
    try:
        os.close(open_file(record))
        state = "present" if os.path.getsize(record) <= RECORD_LIMIT else "too-large"
    except OSError as error:
        state = "absent" if problem(error) in ("ENOENT", "ENOTDIR") else "unreadable"
    origin = text_value(root, direct[len(root.prefix) :], 4096) if os.path.lexists(direct) else None
    if origin is not None and "text" in origin:
        origin["text"] = without_query(without_password(origin["text"]))
    return {
        "name": name,
        "version": version,
        "dir": root.show(folder),
        "installer": short(folder + "/INSTALLER"),
        "direct_url": origin,
        "record": state,
        "record_count": None,
        "requires": requires,
    }


def line_lists(path: str, limit: int) -> "Iterator[List[str]]":
    """Yield the lines of a file of at most ``limit`` bytes, some thousand at a time.

    A new release's RECORD has 18,000 lines: as one list they take four times the memory of the file.
    """
    fd = open_file(path)
    try:
        rest = b""
        while limit > 0:
            piece = os.read(fd, min(limit, RECORD_PIECE))
            if not piece:
                break
            limit -= len(piece)
            whole, _, rest = (rest + piece).rpartition(b"\n")
            yield whole.decode("utf-8", "replace").splitlines()
        yield rest.decode("utf-8", "replace").splitlines()
    finally:
        os.close(fd)


def rows(lines: "List[str]", prefixes: "Tuple[str, ...]") -> "Iterator[Tuple[str, str, str]]":
    """Yield path, hash and size of the rows of a RECORD whose path begins so.

    It is CSV, but almost no row needs its quoting.
    """
    wanted = (*prefixes, '"')
    for line in lines:
        if not line.startswith(wanted):
            continue
        if line.startswith('"'):
            import csv

            try:
                cells = next(csv.reader([line]), [])
            except csv.Error:
                continue  # no row: a field without end
            if len(cells) == 3:
                yield cells[0], cells[1], cells[2]
        else:
            head, _, size = line.rpartition(",")
            name, _, digest = head.rpartition(",")
            if name:
                yield name, digest, size


class Record:
    """The rows of the newest RECORD that speaks of one package folder: path to (sha256 or "", size or None).

    ``known`` is False where there is none. Two dist-infos stay behind after a broken upgrade; what was
    written last is what the files should be. ``written`` is when RECORD last changed. ``only`` are the beginnings
    of the paths that are wanted.
    """

    def __init__(
        self,
        dists: "List[Dict[str, Any]]",
        folders: "List[str]",
        package: "str | None",
        only: "Tuple[str, ...]" = ("",),
    ) -> None:
        self.known = False
        self.only = only
        self.files: "Dict[str, Tuple[str, int | None]]" = {}
        self.place: "str | None" = None
        self.package = package
        self.written = newest = -1.0
        for dist, folder in zip(dists, folders):  # noqa: B905  strict= needs Python 3.10
            if dist["record"] != "present":
                continue
            try:
                files, dist["record_count"] = self._below(folder, package)
                info = os.stat(folder + "/RECORD")
                written = info.st_mtime
            except OSError:
                dist["record"] = "unreadable"
                continue
            if files and written > newest:
                self.known, self.files, self.place, newest = True, files, folder, written
                self.written = max(written, info.st_ctime)

    def add(self, names: "List[str]") -> None:
        """Read the rows of more files, which turned out to be wanted."""
        if self.place is None or not names:
            return
        self.only = tuple(names)
        try:
            files = self._below(self.place, self.package)[0]
        except OSError:
            return  # it was read before, and is gone meanwhile: nothing more is listed
        self.files.update((name, row) for name, row in files.items() if name in names)

    def _below(self, folder: str, package: "str | None") -> "Tuple[Dict[str, Tuple[str, int | None]], int]":
        site = os.path.dirname(folder)
        try:
            ours = package is not None and os.path.samefile(os.path.join(site, os.path.basename(package)), package)
        except OSError:
            ours = False
        prefix = os.path.basename(package or "") + "/"
        files: "Dict[str, Tuple[str, int | None]]" = {}
        count, wanted = 0, tuple(prefix + one for one in self.only)
        for lines in line_lists(folder + "/RECORD", RECORD_LIMIT):
            count += sum(map(bool, lines))
            for name, digest, size in rows(lines, wanted) if ours else ():
                if name.startswith(prefix):
                    files[name[len(prefix) :]] = (
                        digest[7:] if digest.startswith("sha256=") else "",
                        int(size) if size.isascii() and size.isdigit() and len(size) < 19 else None,
                    )
        return files, count
