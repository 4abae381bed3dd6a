"""Values: how text, errors, paths and JSON look in a part. Nothing here raises for what the host holds."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, Callable, Dict, Mapping

TEXT_LIMIT = 32768

ENV_NAMES = frozenset(
    (
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX",
        "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "LD_LIBRARY_PATH",
        "LD_PRELOAD", "CUDA_HOME", "CUDA_PATH", "CUDA_LIB_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
        "NVIDIA_VISIBLE_DEVICES", "CC", "CXX", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "PYTORCH_NVCC",
        "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "VLLM_FLASHINFER_ALLREDUCE_BACKEND", "VLLM_ALLREDUCE_USE_FLASHINFER",
    )
)  # fmt: skip

SECRET_SIGNS = (
    "token", "key", "secret", "password", "passwd", "credential", "bearer", "basic", "://",
    "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "hf_", "sk-", "xox", "akia",
)  # fmt: skip


class Root:
    """The host's file system, which may stand under a folder: ``at`` goes in, ``show`` comes back out."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.rstrip("/")

    def at(self, path: str) -> str:
        """Return where ``path`` of the host really lies."""
        return self.prefix + path

    def under(self, path: str) -> bool:
        """Whether a real path lies below this root."""
        return not self.prefix or path == self.prefix or path.startswith(self.prefix + "/")

    def show(self, path: str) -> str:
        """Return a path as the host has it: without the root's prefix, bytes that are not UTF-8 escaped."""
        if self.prefix and self.under(path):
            path = path[len(self.prefix) :] or "/"
        return os.fsencode(path).decode("utf-8", "backslashreplace")

    def show_in(self, text: str) -> str:
        """Return a text, such as PATH, in which every path under this root lost its prefix."""
        return self.show(text.replace(self.prefix + "/", "/") if self.prefix else text)


def one_line(text: str, limit: int = 300) -> str:
    """Return a text on one line, bounded."""
    return " ".join(text.split())[:limit]


def problem(error: BaseException) -> str:
    """Return the errno name of an OSError, else one line."""
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, "errno %d" % error.errno)
    return one_line("%s: %s" % (type(error).__name__, error))


def open_file(path: str) -> int:
    """Open a regular file for reading; a FIFO or a device in its place neither blocks nor is read."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def read_bytes(path: str, limit: int) -> bytes:
    """Return at most ``limit`` bytes of a regular file."""
    fd = open_file(path)
    try:
        chunks = []
        while limit > 0:
            chunk = os.read(fd, min(limit, 1 << 20))
            if not chunk:
                break
            chunks.append(chunk)
            limit -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)


def text_value(root: Root, path: str, limit: int = TEXT_LIMIT) -> Dict[str, Any]:
    """Return the text value of a file of the host."""
    try:
        data = read_bytes(root.at(path), limit + 1)
    except Exception as error:
        return {"path": root.show(root.at(path)), "error": problem(error)}
    text = data[:limit].decode("utf-8", "replace")
    return {"path": root.show(root.at(path)), "text": text, "truncated": len(data) > limit}


def short(path: str, limit: int = 256) -> "str | None":
    """Return the stripped text of a small file such as one of sysfs, None where it cannot be read."""
    try:
        return read_bytes(path, limit).decode("utf-8", "replace").strip()
    except Exception:
        return None


def allowed_env(environ: Mapping[str, str], root: Root) -> Dict[str, str]:
    """Return the variables that may be told: those of the allowlist, and FlashInfer's own."""
    found = {}
    for name in sorted(environ):
        own = name.startswith("FLASHINFER_") or (name.startswith(("SGLANG_", "VLLM_")) and "FLASHINFER" in name)
        if name in ENV_NAMES or (own and name.isidentifier()):
            told = without_query(without_secrets(without_password(root.show_in(environ[name])[:4096])))
            found[name] = "***" if any(word in name.lower() for word in SECRET_SIGNS[:6]) else told
    return found


def without_password(text: str) -> str:
    """Return a value without the user and password that an address in it may hold."""
    at = text.find("://")
    while at >= 0:
        host = text[at + 3 :].split("/", 1)[0]
        if "@" in host:
            text = text[: at + 3] + text[at + 3 + host.rindex("@") + 1 :]
        at = text.find("://", at + 3)
    return text


def without_query(text: str) -> str:
    """Return a text without what follows ``?`` or ``#`` in its addresses: a signed one holds its token there."""
    at = text.find("://")
    while at >= 0:
        end = next((place for place in range(at, len(text)) if text[place] in "\"' \t\r\n<>"), len(text))
        cut = next((place for place in range(at, end) if text[place] in "?#"), end)
        text = text[:cut] + text[end:]
        at = text.find("://", cut)
    return text


def without_secrets(text: str) -> str:
    """Return what a program printed without what looks like a secret: a shell that traces prints what it sets.

    The values go: NAME=value and --name value of such names, what follows bearer, users in addresses.
    """
    lower = text.lower()
    if not any(sign in lower for sign in SECRET_SIGNS):
        return text
    import re

    words, value = (
        "(?:token(?!iz)|key|secret|password|passwd|credential)",
        "(?:\"[^\"]*\"?|'[^']*'?|[^\\s;,&\"']+)",
    )
    text = re.sub("(://)[^\\s/\"']*@", "\\1", text)
    for pattern in (
        "(" + words + "[\\w.-]{0,64}[\"']?\\s{0,8}=\\s{0,8})" + value,
        "((?<![\\w-])--?[\\w-]{0,64}?" + words + "[\\w-]{0,64}\\s{1,8})(?!-)" + value,
        "(" + words + "[\\w.-]{0,64}[\"']\\s{0,8}:\\s{0,8})" + value,
        "(\\b(?:bearer|basic)\\s+)[\\w.~+/=-]{6,}",
    ):
        text = re.sub("(?i)" + pattern, "\\1***", text)
    issued = "\\b(?:gh[opsur]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA)(?=[\\w-]*[0-9A-Z])[\\w-]{10,}"
    return re.sub(issued, "***", text)


def dumps(value: Any) -> str:
    """Return ASCII JSON. The json package costs more CPU to import than all else that runs here."""
    try:
        from _json import encode_basestring_ascii as quote
    except ImportError:  # an interpreter without the C part
        from json.encoder import py_encode_basestring_ascii as quote
    out: "list[str]" = []
    _encode(value, out.append, quote)
    return "".join(out)


def _encode(value: Any, put: Callable[[str], Any], quote: Callable[[str], str]) -> None:
    if value is None or value is True or value is False:
        put({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, str):
        put(quote(value))
    elif isinstance(value, int):
        put(str(int(value)))
    elif isinstance(value, float):
        put(repr(round(value, 6)) if value - value == 0 else "null")
    elif isinstance(value, dict):
        put("{")
        for position, key in enumerate(value):
            put((", " if position else "") + quote(str(key)) + ": ")
            _encode(value[key], put, quote)
        put("}")
    else:
        put("[")
        for position, item in enumerate(value):
            if position:
                put(", ")
            _encode(item, put, quote)
        put("]")
