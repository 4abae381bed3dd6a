"""Rules on sources that are read from elsewhere: another package in front, a folder outside the environment."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from fleetcheck.facts.records import Shadow
from fleetcheck.rules import text
from fleetcheck.rules.csrc import ENV_PY, aliases
from fleetcheck.rules.rule import Hit, Look, rule

PATH = "https://docs.python.org/3/library/sys_path_init.html"
WORDS = {
    "PYTHONPATH": "PYTHONPATH of the login names its folder",
    "user-site": "the user's own site-packages come before the environment's",
    "cwd": "a process that is started there has its folder first on the path",
}


def steps(shadow: Shadow) -> tuple[str, ...]:
    """Return how the shadow is taken away, the reversible first."""
    path = text.quote(shadow.path)
    if shadow.by == "PYTHONPATH":
        return ("printenv PYTHONPATH", "Take the folder out of PYTHONPATH where the login or the unit sets it.")
    if shadow.by == "user-site":
        return ("Set PYTHONNOUSERSITE=1 for what serves.", f"mv {path} {text.quote(f'{shadow.path}.unused')}")
    return (f"ls -la {path}", "Start what serves from another folder, or move this one away.")


@rule(
    "csrc-shadowed",
    "csrc",
    "warning",
    summary="Another `flashinfer` comes before the environment's own for a process that is started normally.",
    explanation=(
        "The environment is looked at in isolation, without PYTHONPATH, user site-packages and working folder. A "
        "server has all three, and each can put another copy of FlashInfer first: it then compiles that copy's "
        "sources. Folders without `__init__.py` do not count. Only the working folder of a login is known, which "
        "is the home folder; a copy there is information."
    ),
    remedy="Take the other copy out of the way, or list the environment that is meant.",
    references=(PATH, ENV_PY),
)
def csrc_shadowed(look: Look) -> Iterator[Hit]:
    """Fire for each copy that would be found first."""
    for venv, found in look.installed():
        for shadow in found.shadows:
            yield Hit(
                f"{text.brief(shadow.path)} would be imported before {text.name(found)} of "
                f"{text.brief(venv.path)}: {WORDS[shadow.by]}.",
                venv=venv.path,
                severity="info" if shadow.by == "cwd" else None,
                expected=found.root,
                seen=shadow.path,
                basis="resolved",
                remedy=(*steps(shadow), text.RESTART),
            )


@rule(
    "csrc-outside-venv",
    "csrc",
    "info",
    summary="The sources that FlashInfer's JIT reads lie outside the environment.",
    explanation=(
        "In an editable install, in a checkout on the path, and where uv links into its cache, the folder that is "
        "compiled belongs to no environment: who edits it, or cleans the cache, changes every environment that "
        "leads there, and no RECORD vouches for it."
    ),
    remedy="Nothing is wrong by itself. Only if you want a fixed copy: install a wheel with real files.",
    references=(ENV_PY,),
)
def csrc_outside_venv(look: Look) -> Iterator[Hit]:
    """Fire where the real folder is there and below none of the environment's own paths."""
    for venv, found in look.installed():
        real = found.csrc_real
        if real is None or found.csrc_state not in ("complete", "incomplete", "unknown"):
            continue
        homes = {posixpath.normpath(path) for path in (venv.path, venv.real, venv.prefix) if path}
        inside = any(path == home or path.startswith(f"{home}/") for path in aliases(venv, real) for home in homes)
        if inside or not homes or venv.path.startswith("~"):
            continue
        vouched = "" if found.verified else ", where no RECORD vouches for its content"
        yield Hit(
            f"{text.name(found)} of {text.brief(venv.path)} compiles {text.brief(real)}, outside the environment"
            f"{vouched}.",
            venv=venv.path,
            seen=real,
            basis=found.basis,
            remedy=(
                "Nothing to mend. Only if you want a fixed copy, install a wheel:",
                text.reinstall(venv, found.model_copy(update={"install": "wheel"})),
            ),
        )


RULES = (csrc_shadowed, csrc_outside_venv)
