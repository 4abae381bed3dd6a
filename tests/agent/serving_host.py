"""Real processes that serve, for tests: Pythons that map real libraries, under titles, users and namespaces."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agent_host import FILES, this_python

LIBRARY = "torch/lib/libtorch_cuda.so"
SERVE = textwrap.dedent("""\
    import ctypes, mmap, os, sys
    title, *paths = os.environ["SERVE_TITLE"], *os.environ["SERVE_PATHS"].split(":")
    kept = []
    for path in filter(None, paths):
        with open(path, "rb") as file:
            kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    if title:
        with open("/proc/self/stat") as file:  # fields 48 and 49: where the arguments stand in memory
            fields = file.read().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, title.encode(), len(title))
        ctypes.CDLL(None).prctl(15, title.encode()[:15], 0, 0, 0)
    print("ready", flush=True)
    sys.stdin.read()
    """)


def environment(folder: Path) -> Path:
    """Make an environment with FlashInfer and torch's library at ``folder``; returns its site-packages."""
    version = ".".join(map(str, sys.version_info[:2]))
    site = folder / f"lib/python{version}/site-packages"
    for name, text in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site / LIBRARY).parent.mkdir(parents=True)
    (site / LIBRARY).write_bytes(b"\x7fELF" + b"x" * 5000)
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(this_python())
    (folder / "bin/activate").write_text(f"VIRTUAL_ENV={folder}\nexport VIRTUAL_ENV\n")
    (folder / "pyvenv.cfg").write_text(f"home = {Path(this_python()).parent}\nversion = {version}.0\n")
    return site


@contextlib.contextmanager
def serving(
    python: Path | str,
    *arguments: str,
    maps: Sequence[Path] = (),
    title: str = "",
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    **options: object,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a Python that maps files and waits; ``before`` are words in front of the command (``unshare -m``)."""
    variables = {
        "PATH": "/usr/bin:/bin",
        "SERVE_TITLE": title,
        "SERVE_PATHS": ":".join(map(str, maps)),
        **(env or {}),
    }
    command = [*before, str(python), "-I", "-S", "-c", SERVE, *arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=variables,
        **options,  # type: ignore[call-overload]
    )
    with process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.stdin.close()
            process.wait(timeout=60)


def root_only() -> str | None:
    """Return why a test that needs root cannot run, None where it can."""
    return None if os.geteuid() == 0 else "needs root"
