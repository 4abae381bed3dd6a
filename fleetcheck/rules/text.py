"""Words for messages and commands for remedies. Values of a host are bounded; paths are quoted for the shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from fleetcheck.facts.records import FlashInfer, Venv

LONGEST = 300
RESTART = (
    "Restart the processes that serve from this environment; until then they keep what they loaded. "
    "(restarts serving)"
)
REBOOT = "sudo systemctl reboot  # ends everything that runs on this host: drain it first"
APPS = "nvidia-smi --query-compute-apps=pid,process_name --format=csv  # stop these first"
HOLDERS = "sudo fuser -v /dev/nvidia*  # stop these first"
"""What uses the GPUs, where nvidia-smi may not answer."""
LIVE = "  # replaces files under a live server"
BUILT = "Move what was built out of .cache/flashinfer in the home of the user who serves, which may not be yours."
ASIDE = "/var/tmp"  # noqa: S108 on the host, for whoever follows the steps; nothing here writes there
BEFORE = f"{ASIDE}/flashinfer.before"
"""Where an edited package is kept: outside of site-packages, so that nothing imports it."""


def brief(value: str | None, otherwise: str = "no reason given") -> str:
    """Return a value of the host for use in a sentence: one line, at most 300 characters, no full stop."""
    line = " ".join((value or "").split()).rstrip(".")
    if len(line) > LONGEST:
        line = line[: LONGEST - 1] + "…"
    return line or otherwise


def listing(values: Sequence[str], most: int = 3) -> str:
    """Return the first values, and how many more there are."""
    shown = ", ".join(brief(value) for value in values[:most])
    return f"{shown} and {len(values) - most} more" if len(values) > most else shown


def plural(number: int, word: str) -> str:
    """Return ``1 file``, ``2 files``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def xid(code: int) -> str:
    """Return the number of a driver's error, with its meaning where it is of a GPU that is lost or ill."""
    return f"{code} ({_XIDS[code]})" if code in _XIDS else f"{code}"


# https://docs.nvidia.com/deploy/xid-errors/ The log's own words name processes and addresses, and fold no hosts.
_XIDS: Mapping[int, str] = {
    48: "double-bit ECC error", 61: "its micro-controller stopped", 62: "its micro-controller halted",
    64: "a memory row could not be replaced", 74: "NVLink error", 79: "the GPU has fallen off the bus",
    94: "contained memory error", 95: "uncontained memory error", 119: "the GSP did not answer",
    120: "GSP error", 154: "the driver asks for a recovery",
}  # fmt: skip


def name(found: FlashInfer) -> str:
    """Return ``FlashInfer 0.6.2``, without the version where it is not known."""
    return f"FlashInfer {brief(found.version)}" if found.version else "FlashInfer"


def quote(path: str) -> str:
    """Return a path quoted for a POSIX shell."""
    return shlex.quote(path)


def python(venv: Venv) -> str:
    """Return the environment's interpreter, quoted."""
    return quote(f"{venv.path.rstrip('/')}/bin/python")


def reinstall(venv: Venv, found: FlashInfer | None) -> str:
    """Return the command that puts the package's own files back, from a checkout or from an index."""
    if found is not None and found.install in ("editable", "source") and found.root:
        folder = found.root.rsplit("/", 1)[0]
        return f"{python(venv)} -m pip install --no-build-isolation --no-deps -e {quote(folder)}{LIVE}"
    version = f"=={found.version}" if found is not None and found.version else ""
    # shlex.quote leaves '=' alone, which a shell takes as it stands in an argument.
    wanted = quote(f"flashinfer-python{version}")
    return f"{python(venv)} -m pip install --force-reinstall --no-deps {wanted}{LIVE}"


def keep(path: str) -> str:
    """Return the command that keeps an edited file beside itself."""
    return f"cp -p {quote(path)} {quote(f'{path}.edited')}  # keeps the edit"


def keep_package(root: str | None, to: str = BEFORE) -> tuple[str, ...]:
    """Return the command that keeps an edited package, nothing where its folder is not known."""
    return (f"cp -a {quote(root)} {to}  # keeps what was edited",) if root else ()


def freeze(venv: Venv) -> str:
    """Return the command that notes what an environment holds, so that an install can be taken back."""
    return f"{python(venv)} -m pip freeze > ~/freeze.before"


def inside(found: FlashInfer, path: str) -> str:
    """Return a path relative to FlashInfer's package folder; one elsewhere, or relative already, as it is."""
    root = f"{found.root.rstrip('/')}/" if found.root else None
    return path.removeprefix(root) if root is not None else path


def env_sums(found: FlashInfer) -> list[str]:
    """Return the sha256 of ``jit/env.py``, empty where it is not there or could not be read."""
    return [file.sha256 for file in found.files if file.sha256 and inside(found, file.path) == "jit/env.py"]


def env_file(found: FlashInfer) -> str:
    """Return what ``jit/env.py`` is, in words."""
    if found.env_record == "missing":
        return "no such file"
    sums = env_sums(found)
    return f"another one, with sha256 {sums[0]}" if sums else "another one"
