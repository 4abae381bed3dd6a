"""Rules on sources that are read from elsewhere: another package in front, a folder outside the environment."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from fleetcheck.facts.records import FlashInfer, Shadow, StartFile, Venv
from fleetcheck.rules import text
from fleetcheck.rules.csrc import ENV_PY, aliases
from fleetcheck.rules.rule import Hit, Look, rule
from fleetcheck.rules.unreadable import reader

SITE = "https://docs.python.org/3/library/site.html"
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


BY = {
    "activation": "its activation sets PYTHONPATH",
    "start-up": "a file that Python runs at every start changes the path",
}


@rule(
    "csrc-startup",
    "csrc",
    "warning",
    summary="A file that Python runs at every start touches FlashInfer.",
    explanation=(
        "Lines of `.pth` files that begin with `import`, `sitecustomize` and `usercustomize` run before a "
        "program's first line. One that names FLASHINFER_CSRC_DIR can set it anew: what `jit/env.py` says is then "
        "not what a process uses, so the finding is an error and the basis of the path is `guessed`. One that "
        "only names flashinfer may patch it. These files are read, and modules beside them that they import; "
        "nothing of them is run, and comments and docstrings do not count. Of a file that the audit's user may "
        "not read, and a server perhaps may, nothing is known: the basis of the path is `guessed` then, too."
    ),
    remedy="Look at the line. Put what is needed into the package or the start script, and take the line out.",
    references=(SITE, ENV_PY),
)
def csrc_startup(look: Look) -> Iterator[Hit]:
    """Fire once for each file, at its gravest line."""
    for venv, found in look.installed():
        told: dict[str, StartFile] = {}
        for one in sorted(found.start_files, key=lambda one: one.word != "FLASHINFER_CSRC_DIR"):
            told.setdefault(one.file, one)
        for file, one in told.items():
            sets = one.word == "FLASHINFER_CSRC_DIR"
            if one.word == "closed":
                yield _closed(look, venv, found, one)
                continue
            where = f"{text.brief(file)}:{one.line}" if one.line else text.brief(file)
            what = {
                "FLASHINFER_CSRC_DIR": "names FLASHINFER_CSRC_DIR, so the sources may be others than "
                f"{text.brief(found.csrc_dir, 'those of jit/env.py')}",
                "flashinfer": f"touches {text.name(found)}, so what runs may not be what its files say",
                "unread": "may put another package before "
                f"{text.brief(found.root)}, by what cannot be read without running it",
                "sys.path": f"changes the path, on which {text.brief(found.root)} comes first",
            }[one.word]
            shown = (
                f"sed -n {one.line}p {text.quote(file)}" if one.line else f"grep -n flashinfer {text.quote(file)}"
            )
            yield Hit(
                f"{where} runs at every start of {text.brief(venv.path)} and {what}.",
                venv=venv.path,
                key=file,
                severity="error" if sets else None,
                seen=where,
                basis="guessed" if one.word in ("FLASHINFER_CSRC_DIR", "unread") else "resolved",
                remedy=(shown, text.keep(file), f"Take the line out of {text.brief(file)}.", text.RESTART),
            )


def _closed(look: Look, venv: Venv, found: FlashInfer, one: StartFile) -> Hit:
    """Return what is told of a start-up file that the audit's user may not read."""
    return Hit(
        f"{text.brief(one.file)} could not be read by {reader(look)}. Who may read it "
        f"runs it at every start of {text.brief(venv.path)}, and whether it puts another package before "
        f"{text.brief(found.root)} is not known.",
        venv=venv.path,
        key=one.file,
        seen=one.file,
        basis="guessed",
        remedy=(
            f"namei -l {text.quote(one.file)}",
            "Give this user the right to read it, or set sudo: true for this host in the inventory.",
        ),
    )


@rule(
    "csrc-shadowed",
    "csrc",
    "warning",
    summary="Another `flashinfer` comes before the environment's own for a process that is started normally.",
    explanation=(
        "The environment is looked at in isolation, without PYTHONPATH, user site-packages and working folder. A "
        "server has all three, and each can put another copy of FlashInfer first: it then compiles that copy's "
        "sources. Folders without `__init__.py` do not count. Only the working folder of a login is known, which "
        "is the home folder; a copy there is information. Where the activation itself sets PYTHONPATH, or a "
        "start-up file changes the path, the copy in front is the one that is looked at, and the environment's "
        "own is what is told of."
    ),
    remedy="Take the other copy out of the way, or list the environment that is meant.",
    references=(PATH, ENV_PY),
)
def csrc_shadowed(look: Look) -> Iterator[Hit]:
    """Fire for each copy that would be found first."""
    for venv, found in look.installed():
        if found.hidden is not None:
            own = text.quote(found.hidden.path)
            look_at = (
                f"grep -n PYTHONPATH {text.quote(f'{venv.path}/bin/activate')}"
                if found.hidden.by == "activation"
                else f"ls -la {text.quote(posixpath.dirname(found.hidden.path))}"
            )
            yield Hit(
                f"{text.brief(venv.path)} imports {text.name(found)} from {text.brief(found.root)}, never its own "
                f"{text.brief(found.hidden.path)}: {BY[found.hidden.by]}.",
                venv=venv.path,
                key="hidden",
                expected=found.hidden.path,
                seen=found.root,
                basis="resolved",
                remedy=(
                    look_at,
                    "If the environment's own is meant, take the other folder out of there. Else:",
                    f"mv {own} {text.quote(f'{found.hidden.path}.unused')}",
                    text.RESTART,
                ),
            )
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


RULES = (csrc_shadowed, csrc_startup, csrc_outside_venv)
