"""Makes an interpreter that differs from this one by its ``sitecustomize`` alone.

Distributions put one into the standard library, where it comes before an environment's own: Debian does. So what a
test says of an environment's ``sitecustomize`` would depend on who built the Python that runs the test.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def interpreter(prefix: Path, sitecustomize: str | None = None) -> Path:
    """Make this interpreter below a folder, with that ``sitecustomize`` in its library (None: with none)."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = prefix / "lib" / name
    library.mkdir(parents=True)
    for entry in Path(os.__file__).parent.iterdir():
        if entry.stem not in ("sitecustomize", "site-packages", "dist-packages"):
            (library / entry.name).symlink_to(entry)
    if sitecustomize is not None:
        (library / "sitecustomize.py").write_text(sitecustomize)
    binary = prefix / "bin" / name
    binary.parent.mkdir()
    shutil.copy(os.path.realpath(sys.executable), binary)
    return binary


def move(environment: Path, python: Path) -> None:
    """Let an environment stand on another interpreter of the same version."""
    config = environment / "pyvenv.cfg"
    lines = [line for line in config.read_text().splitlines() if line.partition(" ")[0] != "home"]
    config.write_text("\n".join([f"home = {python.parent}", *lines]) + "\n")
    own = environment / "bin/python"
    for link in (environment / "bin").glob("python*"):
        link.unlink()
        link.symlink_to(python if link == own else own.name)
