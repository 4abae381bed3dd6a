"""The real import, asked for by ``--deep``: in the environment's interpreter, writing to a scratch folder alone.

An import of ``flashinfer.jit.env`` imports torch, asks the driver for every GPU unless a list of architectures is
set, and writes a log and folders. So the list is set, no GPU is visible, home is the scratch folder, and an audit
hook refuses what Python would write elsewhere: up to 0.6.2 the import makes ``data/csrc`` where it is absent.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from typing import Any, Dict, Optional, Set

from fleetcheck.agent.program.startfiles import added_paths
from fleetcheck.agent.program.values import Root, dumps, one_line

SCRATCH_NAMES = (
    "HOME", "FLASHINFER_WORKSPACE_BASE", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "TORCH_HOME", "HF_HOME", "NUMBA_CACHE_DIR", "MPLCONFIGDIR",
    "TORCH_EXTENSIONS_DIR",
)  # fmt: skip
# An architecture that every release takes, and for which none asks nvcc for its version.
DEEP_ARCH = {"FLASHINFER_CUDA_ARCH_LIST": "9.0a", "TORCH_CUDA_ARCH_LIST": "9.0", "CUDA_VISIBLE_DEVICES": ""}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MOST_REFUSED = 1000
MOST_CAUSES = 20
CHANGES = (
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
    "os.chown", "os.utime", "os.setxattr",
)  # fmt: skip


class Refusal(PermissionError):  # noqa: N818  no error of the host's
    """What the guard did not let through: no fault of the host."""

    told_as = "PermissionError"


def guard(scratch: str, refused: "Set[str]") -> None:
    """Refuse what would change anything outside the scratch folder, and every connection and port.

    Paths that were refused are added to ``refused``.
    """

    def refusal(why: str, path: Any = "") -> Refusal:
        name = str(path)[:300]
        if len(refused) < MOST_REFUSED:
            refused.add(name)
        return Refusal(errno.EPERM, why, name) if name else Refusal(errno.EPERM, why)

    def inside(path: Any) -> bool:
        if isinstance(path, int):
            return True
        place = os.path.realpath(os.fsdecode(path))
        return place == scratch or place.startswith((scratch + "/", "/dev/null", "/dev/shm/", "/proc/self/"))

    def hook(event: str, values: Any) -> None:
        if event == "open" and isinstance(values[2], int) and values[2] & WRITES and not inside(values[0]):
            raise refusal("not written outside of the scratch folder", values[0])
        if event in CHANGES and not inside(values[0]):
            if event == "os.mkdir" and os.path.isdir(values[0]):
                raise FileExistsError(errno.EEXIST, "it exists", str(values[0])[:300])
            raise refusal(event + " outside of the scratch folder", values[0])
        if event in ("socket.connect", "socket.bind", "socket.getaddrinfo"):
            raise refusal("no connection is made, no port opened")

    sys.addaudithook(hook)


def is_refused(error: "Optional[BaseException]", refused: "Set[str]") -> bool:
    """Return whether an import failed of what the guard refused: by its exception, or by a file never written."""
    for _ in range(MOST_CAUSES):
        if error is None or isinstance(error, Refusal):
            break
        if isinstance(error, OSError) and error.filename and str(error.filename)[:300] in refused:
            return True
        error = error.__cause__ or error.__context__
    return isinstance(error, Refusal)


def tell_import(scratch: str, result: int) -> None:
    """Import ``flashinfer.jit.env`` and write what it says as the second of two lines."""
    began, root = time.monotonic(), Root(sys.argv[1])
    for name in SCRATCH_NAMES:
        os.environ[name] = scratch
    os.environ.update(DEEP_ARCH, PYTHONDONTWRITEBYTECODE="1", FLASHINFER_LOGGING_LEVEL="error")
    refused: "Set[str]" = set()
    guard(scratch, refused)
    # Isolated, Python leaves out PYTHONPATH; what the activation put there is part of the environment.
    sys.path[:0] = added_paths(root, sys.argv[3] if len(sys.argv) > 3 else "", dict(os.environ))
    value: "Dict[str, Any]" = {"csrc_dir": None, "csrc_real": None, "version": None, "file": None, "error": None}
    value["refused"] = False
    try:
        package = __import__("flashinfer.jit.env")
        env = package.jit.env
        folder = os.path.normpath(str(env.FLASHINFER_CSRC_DIR))
        value["csrc_dir"], value["csrc_real"] = root.show(folder), root.show(os.path.realpath(folder))
        value["version"] = str(getattr(package, "__version__", None))[:100]
        value["file"] = root.show(str(env.__file__))
        value["initialized"] = bool(sys.modules["torch"].cuda.is_initialized()) if "torch" in sys.modules else None
    except BaseException as error:
        name = getattr(error, "told_as", type(error).__name__)
        value["error"], value["refused"] = one_line("%s: %s" % (name, error)), is_refused(error, refused)
    value["seconds"] = time.monotonic() - began
    os.write(result, b"{}\n" + dumps(value).encode() + b"\n")
    os._exit(0)
