"""The rule on paths of CUDA sources that are written down where servers are started."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Literal

from fleetcheck.facts.records import NamedCsrc
from fleetcheck.rules import text
from fleetcheck.rules.csrc import ENV_PY, aliases
from fleetcheck.rules.rule import Hit, Look, rule

UNITS = "https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html"
KINDS = {
    "unit": "The unit file",
    "script": "The start script",
    "environment": "The file of variables",
    "scan": "The file",
}


def read_by(look: Look, path: str) -> bool:
    """Return whether some FlashInfer of the host reads a folder."""
    wanted = posixpath.normpath(path)
    for venv, found in look.installed():
        for own in (found.csrc_dir, found.csrc_real, found.csrc_default):
            if own is not None and wanted in aliases(venv, own):
                return True
    return False


def weight(look: Look, named: NamedCsrc) -> Literal["error", "warning"] | None:
    """Return how much a path counts that no FlashInfer reads; None for one that says nothing of an environment.

    In a package, or where variables are set, it was meant for what serves. Elsewhere ``flashinfer/csrc`` is the
    folder of a checkout, where it belongs: in a file of ``scan`` that is nothing, in a start script a warning.
    A variable that is not known may stand for any folder.
    """
    path = posixpath.normpath(named.path)
    packaged = path.endswith("/data/csrc")
    if path.startswith("$"):
        return None if packaged else "warning"
    if packaged:
        return "warning"
    if any(f"/{folder}/" in path for folder in ("site-packages", "dist-packages")) or in_environment(look, path):
        return "error"
    if named.kind in ("unit", "environment"):
        return "error"
    return "warning" if named.kind == "script" else None


def in_environment(look: Look, path: str) -> bool:
    """Return whether a path lies in an environment, or in the package of FlashInfer that one has."""
    for venv, found in look.installed():
        for home in (venv.path, venv.real, venv.prefix, found.root):
            inside = home is not None and f"{posixpath.normpath(home)}/"
            if inside and any(one.startswith(inside) for one in aliases(venv, path)):
                return True
    return False


def steps(named: NamedCsrc) -> tuple[str, ...]:
    """Return how the path is taken out, the reading first."""
    shown = (
        f"sed -n {named.line}p {text.quote(named.file)}"
        if named.line
        else f"grep -n csrc {text.quote(named.file)}"
    )
    reload = ("sudo systemctl daemon-reload",) if named.kind == "unit" else ()
    return (shown, f"Take the path out of {text.brief(named.file)}: FlashInfer finds its sources itself.", *reload)


@rule(
    "csrc-hardcoded",
    "csrc",
    "error",
    summary="A unit, a start script or a scanned file names a folder of CUDA sources that FlashInfer never reads.",
    explanation=(
        "FlashInfer takes its sources from its own package, and no variable moves them. A path `flashinfer/csrc` "
        "that is written down in a unit, a drop-in, a script or a file of variables is read by something else, "
        "such as a script that patches sources at each start: it patches a folder that is never compiled. A path "
        "that ends in `data/csrc` and belongs to no environment that was looked at is a warning: it may be one "
        "that is gone. So is a path behind a variable that is not known. A checkout has its sources in "
        "`flashinfer/csrc`, and rightly: one in a file of `scan` is no finding, in a start script a warning. "
        "Searched are the units with their drop-ins and the start scripts of what serves, and the "
        "files that the inventory names under `scan`."
    ),
    remedy="Take the path out, or let the script ask `flashinfer.jit.env` for it.",
    references=(ENV_PY, UNITS),
)
def csrc_hardcoded(look: Look) -> Iterator[Hit]:
    """Fire for each place, where FlashInfer was found somewhere and none reads that folder."""
    if not any(found.csrc_dir or found.csrc_default for _, found in look.installed()):
        return
    for named in look.facts.named_csrc:
        severity = None if read_by(look, named.path) else weight(look, named)
        if severity is None:
            continue
        line = f" in line {named.line}" if named.line else ""
        yield Hit(
            f"{KINDS[named.kind]} {text.brief(named.file)} names {text.brief(named.path)}{line}, which no "
            "FlashInfer that was looked at reads.",
            key=f"{named.file}:{named.line}",
            severity=severity,
            seen=named.path,
            basis="resolved" if named.kind == "scan" else "running",
            remedy=(*steps(named), *(() if named.kind == "scan" else (text.RESTART,))),
        )


RULES = (csrc_hardcoded,)
