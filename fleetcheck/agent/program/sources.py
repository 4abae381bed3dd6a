"""FlashInfer's files: hashed, compared with RECORD, cut; and the csrc folders that its env.py names."""

from __future__ import annotations

import binascii
import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from fleetcheck.agent.program.cuts import MAJORS, cut_functions, cut_lines, gate_rows, rest_of, without_blocks
from fleetcheck.agent.program.distributions import Record
from fleetcheck.agent.program.hashes import FILE_LIMIT, digest, file_digest
from fleetcheck.agent.program.needs import ENTRIES, LAUNCHERS, SPDLOG, VENDORED
from fleetcheck.agent.program.values import TEXT_LIMIT, Root, problem, read_bytes

TEXTS = (
    "jit/env.py",
    "jit/comm.py",
    "comm/trtllm_ar.py",
    "comm.py",
    "compilation_context.py",
    "version.py",
    "_build_meta.py",
)
HEADERS = (
    "data/include/flashinfer/comm/trtllm_allreduce.cuh",
    "data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh",
)
# 0.3.1 keeps the gates of some modules outside jit/.
GATED = ("gemm.py", "mla.py", "fp8_quantization.py", "fused_moe/core.py")
OPTIONAL = (
    "__init__.py",
    "comm.py",
    "_build_meta.py",
    "jit/comm.py",
    "comm/trtllm_ar.py",
    "compilation_context.py",
    "version.py",
    *HEADERS,
    *GATED,
)
WATCHED = ("jit/", "comm/", "data/include/flashinfer/comm/", "data/csrc/trtllm_")
# Rows of RECORD that are needed; most of the 18,000 of a new release are of vendored headers.
SOURCES = ("data/csrc/", "data/include/flashinfer/")
STAND = tuple(file for files in VENDORED.values() for file in files)
RECORDED = ("__init__.py", *WATCHED, *TEXTS, *GATED, *SOURCES, "csrc/", SPDLOG, *STAND)
MAJORS_BYTES = MAJORS.encode()
MOST_FILES = 2000
MOST_BELOW = 50000
# 0.6.18 has 15 MB of sources, which are hashed in some 20 ms; 0.7.4 has 400 MB.
HASHED_BYTES = 20 << 20
MOST_CHANGED = 50


class Seen:
    """What is found out once for all files: real paths, listings, and what was not hashed."""

    folders: Dict[str, str] = {}
    listings: "Dict[str, Dict[str, Tuple[int, float]]]" = {}
    unhashed: "List[str]" = []


def real_path(path: str) -> str:
    """Return the real path of a file; that of its folder is resolved once."""
    folder, _, name = path.rpartition("/")
    if os.path.islink(path):
        return os.path.realpath(path)
    if folder not in Seen.folders:
        Seen.folders[folder] = os.path.realpath(folder)
    return Seen.folders[folder] + "/" + name


def describe_file(
    root: Root,
    package: str,
    name: str,
    record: Record,
    read: "Optional[Callable[[str, bytes], None]]" = None,
) -> Dict[str, Any]:
    """Describe one file of a package: its hash, how it stands to RECORD, and the text where it is wanted.

    ``read`` is given the name and the content.
    """
    path = package + "/" + name
    value: Dict[str, Any] = {
        "path": root.show(path), "name": name, "real": None, "size": None, "mtime": None, "ctime": None,
        "uid": None, "sha256": None, "record": "no-record", "text": None, "cut": None, "error": None,
    }  # fmt: skip
    listed = record.files.get(name)
    try:
        info = os.stat(path)
        value.update(size=info.st_size, mtime=info.st_mtime, ctime=info.st_ctime, uid=info.st_uid)
        value["real"] = root.show(real_path(path))
        data = b"" if info.st_size > FILE_LIMIT else read_bytes(path, FILE_LIMIT + 1)
    except Exception as error:
        value["error"] = problem(error)
        absent = value["error"] in ("ENOENT", "ENOTDIR")
        value["record"] = "unreadable" if not absent else "missing" if listed else value["record"]
        return value
    if max(len(data), info.st_size) > FILE_LIMIT:
        value["error"], value["record"] = "larger than %d bytes" % FILE_LIMIT, "unreadable"
        if listed is not None and listed[1] is not None and listed[1] != value["size"]:
            value["record"] = "mismatch"
        return value
    value["sha256"] = digest(data)
    if record.known:
        value["record"] = "unlisted" if listed is None else compare(value["sha256"], listed[0])
    if read is not None:
        read(name, data)
    if name in TEXTS or name in HEADERS:
        _add_text(value, name, data.decode("utf-8", "replace"))
    if (name in HEADERS or name in LAUNCHERS) and value["record"] != "match":
        rest = rest_of(data.decode("utf-8", "replace"), "__CUDA_ARCH")
        value["rest"] = digest(rest.encode("utf-8", "replace"))
    return value


def compare(digest: str, listed: str) -> str:
    """Compare a hex sha256 with RECORD's form of it; a row without a hash promises nothing."""
    if not listed:
        return "unlisted"
    form = binascii.b2a_base64(binascii.unhexlify(digest)).translate(bytes.maketrans(b"+/", b"-_")).rstrip(b"=\n")
    return "match" if form.decode() == listed.rstrip("=") else "mismatch"


def _add_text(value: Dict[str, Any], name: str, text: str) -> None:
    if name in HEADERS:
        value["text"], value["cut"] = cut_lines(without_blocks(text), "__CUDA_ARCH")[:TEXT_LIMIT], "lines"
    elif len(text) <= TEXT_LIMIT:
        value["text"] = text
    else:
        value["text"], value["cut"] = cut_functions(text)[:TEXT_LIMIT], "functions"


def below(folder: str, most: int = MOST_BELOW, first: str = "") -> "Iterator[Tuple[str, os.stat_result]]":
    """Yield every regular file below a folder, its path from there and stat. Links are followed, loops are not.

    Of the folder's own entries those alone whose name begins with ``first``.
    """
    seen = set()
    waiting = [""]
    while waiting:
        relative = waiting.pop()
        place = folder + "/" + relative
        info = os.stat(place)
        if (info.st_dev, info.st_ino) in seen:
            continue
        seen.add((info.st_dev, info.st_ino))
        with os.scandir(place) as entries:
            for entry in entries:
                if not relative and not entry.name.startswith(first):
                    continue
                try:
                    info = entry.stat()
                except OSError:
                    continue  # a link to nothing is no file; RECORD tells that it is missing
                if info.st_mode & 0o170000 == 0o040000:
                    if relative.count("/") < 12 and entry.name != "__pycache__":
                        waiting.append(relative + entry.name + "/")
                elif info.st_mode & 0o170000 == 0o100000:
                    most -= 1
                    if most < 0:
                        return
                    yield relative + entry.name, info


def listing(folder: str) -> "Dict[str, Tuple[int, float]]":
    """Return size and last change (of content or of anything else) of every file below a folder; read once."""
    if folder not in Seen.listings:
        Seen.listings[folder] = {
            name: (info.st_size, max(info.st_mtime, info.st_ctime)) for name, info in below(folder)
        }
    return Seen.listings[folder]


def changed_sources(package: str, record: Record) -> "Tuple[List[str], int]":
    """Return the sources whose content is not what RECORD lists, and how many were compared by their hash.

    All are hashed where that is little. Else those that changed after RECORD was written, the last first, up to
    the same amount; what changed and was not hashed is kept in ``Seen.unhashed``.
    """
    changed: "List[str]" = []
    waiting: "List[Tuple[float, str, int]]" = []
    for folder in SOURCES:
        try:
            there = listing(package + "/" + folder.rstrip("/"))
        except OSError:
            continue  # the look at the folder itself tells of it
        for name, (size, when) in there.items():
            listed = None if (folder + name).startswith(WATCHED) else record.files.get(folder + name)
            if listed is not None and listed[1] not in (None, size):
                changed.append(folder + name)
            elif listed is not None and listed[0]:
                waiting.append((when, folder + name, size))
    if sum(size for _, _, size in waiting) > HASHED_BYTES:
        waiting = [one for one in waiting if one[0] > record.written]
    room, compared = HASHED_BYTES, 0
    for _, name, size in sorted(waiting, reverse=True):
        room -= size
        if room < 0:
            Seen.unhashed.append(name)
            continue
        try:
            found = file_digest(package + "/" + name)
        except OSError:
            continue  # unreadable or gone meanwhile: nothing is said of it
        compared += 1
        if compare(found, record.files[name][0]) == "mismatch":
            changed.append(name)
    return sorted(changed)[:MOST_CHANGED], compared


def flashinfer_files(
    root: Root, package: str, record: Record, gates: "List[Dict[str, Any]]", texts: "Dict[str, bytes]"
) -> "Tuple[List[Dict[str, Any]], int, List[str]]":
    """Return the files to tell of, how many were compared with RECORD, and lines about what could not be read.

    What they say of supported majors is added to ``gates``, and the modules that run first to ``texts``.
    """

    def read(name: str, data: bytes) -> None:
        if name in ENTRIES:
            texts[name] = data
        if MAJORS_BYTES in data and name.endswith(".py") and len(gates) < MOST_FILES:
            gates.extend(gate_rows(name, data.decode("utf-8", "replace")))

    names = {"__init__.py", *TEXTS, *HEADERS, *GATED}
    names.update(name for name in record.files if name.startswith(WATCHED) and "__pycache__" not in name)
    errors = []
    for folder in ("jit", "comm", "data/include/flashinfer/comm", "data/csrc"):
        try:
            first = "trtllm_" if folder == "data/csrc" else ""
            found = (folder + "/" + name for name, _ in below(package + "/" + folder, MOST_FILES, first))
            names.update(name for name in found if name.startswith(WATCHED) and not name.endswith(".pyc"))
        except (FileNotFoundError, NotADirectoryError):
            continue  # not every version has each of them
        except Exception as error:
            errors.append(folder + ": " + problem(error))
    files, checked = [], 0
    for name in sorted(names)[:MOST_FILES]:
        value = describe_file(root, package, name, record, read)
        checked += value["record"] in ("match", "mismatch", "missing")
        absent = value["error"] in ("ENOENT", "ENOTDIR") and value["record"] != "missing"
        if value["text"] is not None or (value["record"] != "match" and not (absent and name in OPTIONAL)):
            files.append(value)
    changed, compared = changed_sources(package, record) if record.known else ([], 0)
    files += [describe_file(root, package, name, record) for name in changed]
    return files, checked + compared, errors


def describe_csrc(root: Root, package: str, folder: str, record: Record) -> Dict[str, Any]:
    """Describe a csrc folder against RECORD: what is missing, of another size, or was never listed."""
    value: Dict[str, Any] = {
        "path": root.show(folder), "real": root.show(os.path.realpath(folder)), "exists": False,
        "is_link": os.path.islink(folder), "error": None, "files": 0, "missing": [], "missing_count": 0,
        "size_differs": [], "extra": [], "extra_count": 0, "listed": None, "unhashed": 0,
    }  # fmt: skip
    inside = folder.startswith(package + "/")
    prefix = folder[len(package) + 1 :] + "/"
    listed = {}
    if inside and record.known:
        listed = {name[len(prefix) :]: row for name, row in record.files.items() if name.startswith(prefix)}
        value["listed"] = len(listed)
    there: "Dict[str, int]" = {}
    try:
        os.stat(folder)
        value["exists"] = True
        there = {name: size for name, (size, _) in listing(folder).items()}
        for name in listed if len(there) >= MOST_BELOW else ():
            if name not in there and os.path.isfile(folder + "/" + name):
                there[name] = os.path.getsize(folder + "/" + name)
    except Exception as error:
        if problem(error) != "ENOENT" or value["exists"]:
            value["error"] = problem(error)
    value["files"] = len(there)
    # A full disk or a lost write leaves names with nothing behind them: a source that is empty is not there.
    gone = (name for name, row in listed.items() if name not in there or (row[1] and not there[name]))
    missing = sorted(gone) if value["error"] is None else []
    differs = sorted(
        name for name, size in there.items() if name in listed and listed[name][1] not in (None, size)
    )
    extra = sorted(name for name in there if name not in listed) if value["listed"] is not None else []
    value.update(missing=missing[:50], missing_count=len(missing), size_differs=differs[:50])
    value.update(extra=extra[:50], extra_count=len(extra))
    value["unhashed"] = sum(inside and name.startswith(prefix) for name in Seen.unhashed)
    return value
