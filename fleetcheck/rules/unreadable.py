"""The rule on sources of which nothing is known, because what decides on them cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from fleetcheck.facts.records import FlashInfer, Venv
from fleetcheck.rules import text
from fleetcheck.rules.csrc import ENV_PY
from fleetcheck.rules.rule import Hit, Look, rule

DENIED = ("EACCES", "EPERM")
SOURCES = ("data/csrc/", "data/include/", "__init__.py")


def reader(look: Look) -> str:
    """Return in words who looked at the host."""
    user = look.facts.system.user if look.facts.system is not None else None
    return f"the user {text.brief(user)}" if user else "the audit's user"


@rule(
    "csrc-unreadable",
    "csrc",
    "error",
    summary="The folder of CUDA sources, a source in it, or `jit/env.py` which names it, could not be read.",
    explanation=(
        "The package is there, and what decides on its sources is closed to the audit's user, or is no file at "
        "all. Nothing is said of the sources then, and they are never called missing. A server that runs as a "
        "user with the same rights fails at its next import or build. The same holds for a source or a header "
        "in it, and for the package's `__init__.py`."
    ),
    remedy="Give that user the right to read the package, or let the audit use sudo (`sudo: true`).",
    references=(ENV_PY,),
    causes=("expectation-unchecked/csrc_dir", "csrc-incomplete"),
)
def csrc_unreadable(look: Look) -> Iterator[Hit]:
    """Fire where the folder, or the file that names it, is there and cannot be read."""
    who = reader(look)
    for venv, found in look.installed():
        if found.csrc_state != "unreadable":
            yield from _files(venv, found, who)
            continue
        env = found.env_record == "unreadable"
        path = f"{found.root or 'flashinfer'}/jit/env.py" if env else found.csrc_dir or found.csrc_default
        why = text.brief(found.env_error if env else found.csrc_error)
        rights = (
            f"namei -l {text.quote(path or '')}",
            "Give this user the right to read it, or set sudo: true for this host in the inventory.",
        )
        mend = (f"ls -la {text.quote(path or '')}", text.reinstall(venv, found), text.RESTART)
        yield Hit(
            f"{text.brief(path, 'The folder of sources')} of {text.brief(venv.path)} could not be read by {who} "
            f"({why}), so nothing is known of FlashInfer's sources.",
            venv=venv.path,
            seen=why,
            basis=found.basis,
            remedy=mend if env and why not in DENIED else rights,
        )


def _files(venv: Venv, found: FlashInfer, who: str) -> Iterator[Hit]:
    """Yield one finding on the sources and headers that could not be read, where the folder could."""
    told = venv.fusion.error_file if venv.fusion is not None else None
    closed = sorted(
        file.path
        for file in found.files
        if file.record == "unreadable"
        and text.inside(found, file.path).startswith(SOURCES)
        and text.inside(found, file.path) != told
    )
    if closed:
        yield Hit(
            f"{text.listing(closed)} could not be read by {who}, so {text.name(found)} in {text.brief(venv.path)} "
            "is not known to be what was released.",
            venv=venv.path,
            seen=closed,
            basis=found.basis,
            remedy=(
                f"namei -l {text.quote(closed[0])}",
                "Give this user the right to read it, or set sudo: true for this host in the inventory.",
            ),
        )


RULES = (csrc_unreadable,)
