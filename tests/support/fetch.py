"""Fetch the published packages that the tests unpack: pinned, verified, kept outside the repository.

Wheels and, of releases that have no other, source archives; sglang's wheels are built for one Python and system.
In: ``packages.json`` beside this file, a list of ``{name, version, filename, sha256, size, set}``.
Out: the files in ``$FLEETCHECK_CACHE``, else in ``fleetcheck/packages`` of the user's cache folder.
Nothing is installed and nothing of a package runs. ``pip`` downloads, by the user's own pip configuration.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LOCK = Path(__file__).with_name("packages.json")


@dataclass(frozen=True, slots=True)
class Package:
    """One pinned file of one release. ``size`` is bytes; ``set`` is ``small`` or ``matrix``."""

    name: str
    version: str
    filename: str
    sha256: str
    size: int
    set: Literal["small", "matrix"]


class FetchError(Exception):
    """A package could not be had, or is not the pinned one."""


def packages() -> tuple[Package, ...]:
    """Return every pinned package, in the order of the lock file."""
    return tuple(Package(**entry) for entry in json.loads(LOCK.read_text()))


def cache_folder() -> Path:
    """Return where the packages are kept; the folder may not exist yet."""
    given = os.environ.get("FLEETCHECK_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fleetcheck" / "packages"


def is_here(package: Package, folder: Path) -> bool:
    """Return whether the pinned file lies in ``folder``, whole and unchanged."""
    path = folder / package.filename
    if not path.is_file() or path.stat().st_size != package.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == package.sha256


def fetch(package: Package, folder: Path) -> None:
    """Download one package into ``folder``. It appears there whole and verified, or not at all.

    Raises:
        FetchError: pip failed, or brought another file than the pinned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as name:
        work = Path(name)
        wanted = work / "wanted.txt"
        wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
        if package.filename.endswith(".whl"):
            what = ["-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
            what += ["--only-binary", ":all:", *_tags(package.filename), "--require-hashes"]
            what += ["--requirement", str(wanted), "--dest", str(work)]
        else:
            what = [str(Path(__file__).with_name("sdist.py")), package.name, package.filename, str(work)]
        done = subprocess.run([sys.executable, *what], check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise FetchError(f"{package.filename}: pip ended with status {done.returncode}")
        if not is_here(package, work):
            raise FetchError(f"{package.filename}: pip brought another file than the pinned one")
        (work / package.filename).replace(folder / package.filename)


def _tags(filename: str) -> list[str]:
    """Return the options by which any Python fetches a wheel that is built for one Python and system."""
    python, abi, platform = filename.removesuffix(".whl").split("-")[-3:]
    if (abi, platform) == ("none", "any"):
        return []
    return ["--python-version", python[2:], "--implementation", python[:2], "--abi", abi, "--platform", platform]


def fetch_all(wanted: Iterable[Package], folder: Path) -> int:
    """Fetch what is not there yet, say so line by line, and return how many could not be had."""
    failed = 0
    for package in wanted:
        if is_here(package, folder):
            print(f"{package.filename}: there")
            continue
        try:
            fetch(package, folder)
        except FetchError as error:
            print(f"error: {error}", file=sys.stderr)
            failed += 1
        else:
            print(f"{package.filename}: fetched, {package.size / 1e6:.1f} MB")
    return failed


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description="Fetch the pinned packages that the tests unpack.")
    parser.add_argument("--all", action="store_true", help="also the large ones, for `make test-matrix`")
    arguments = parser.parse_args()
    folder = cache_folder()
    print(f"into {folder}")
    return 1 if fetch_all((p for p in packages() if arguments.all or p.set == "small"), folder) else 0


if __name__ == "__main__":
    sys.exit(main())
