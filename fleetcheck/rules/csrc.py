"""Rules on where FlashInfer's JIT takes its CUDA sources from."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from fleetcheck.facts.records import FlashInfer, Venv
from fleetcheck.rules import text
from fleetcheck.rules.rule import Hit, Look, rule

ENV_PY = "https://github.com/flashinfer-ai/flashinfer/blob/v0.6.18/flashinfer/jit/env.py"
RECORD = "https://packaging.python.org/en/latest/specifications/recording-installed-packages/"


def approved(look: Look, venv: Venv, sha256: str | None) -> bool:
    """Return whether the inventory names this very content as expected (``expect.files``)."""
    return sha256 is not None and sha256 in (look.expect(venv).files or {}).values()


def env_file_approved(look: Look, venv: Venv, found: FlashInfer) -> bool:
    """Return whether the ``jit/env.py`` that is there is one that the inventory expects."""
    return any(
        text.inside(found, file.path) == "jit/env.py" and approved(look, venv, file.sha256) for file in found.files
    )


def aliases(venv: Venv, path: str) -> set[str]:
    """Return the spellings of a path that are one: as given, and through the environment's link or its target."""
    path = posixpath.normpath(path)
    spellings = {path}
    if venv.real is not None:
        link, target = posixpath.normpath(venv.path), posixpath.normpath(venv.real)
        for one, other in ((link, target), (target, link)):
            if path == one or path.startswith(f"{one}/"):
                spellings.add(other + path[len(one) :])
    return spellings


def csrc_matches(venv: Venv, found: FlashInfer, expected: str) -> bool:
    """Return whether the folder that the JIT reads is ``expected``, which may be a raw or a real path."""
    seen = {posixpath.normpath(path) for path in (found.csrc_dir, found.csrc_real) if path}
    return not seen.isdisjoint(aliases(venv, expected))


@rule(
    "csrc-missing",
    "csrc",
    "error",
    summary="The folder that FlashInfer's JIT takes its CUDA sources from is not there, or is empty.",
    explanation=(
        "FlashInfer compiles its kernels from the folder named by "
        "`flashinfer.jit.env.FLASHINFER_CSRC_DIR`. Where it is absent, each kernel that is not compiled "
        "yet fails to build, often hours after the server started. An empty folder is as bad: up to 0.6.2 "
        "the import of a clone of the repository that was never installed creates one."
    ),
    remedy=(
        "Install the same version of the package again; in a checkout, build it (`pip install -e`), which "
        "makes the links below `flashinfer/data`. Then restart what serves."
    ),
    references=("https://github.com/flashinfer-ai/flashinfer/issues/1902", ENV_PY),
    causes=("csrc-unexpected", "csrc-incomplete"),
)
def csrc_missing(look: Look) -> Iterator[Hit]:
    """Fire where the folder is known to be absent or empty."""
    for venv, found in look.installed():
        if found.csrc_state not in ("missing", "empty"):
            continue
        folder = found.csrc_dir or found.csrc_default
        where = text.brief(folder, "a folder that is not known")
        state = "is empty" if found.csrc_state == "empty" else "does not exist"
        yield Hit(
            f"{text.name(found)} takes its CUDA sources from {where}, which {state}.",
            venv=venv.path,
            expected=found.csrc_default,
            seen=found.csrc_state,
            basis=found.basis,
            remedy=(
                *((f"ls -la {text.quote(posixpath.dirname(folder))}",) if folder else ()),
                text.reinstall(venv, found),
                text.RESTART,
            ),
        )


@rule(
    "csrc-incomplete",
    "csrc",
    "error",
    summary="Source files that this version of FlashInfer needs are absent from its csrc folder.",
    explanation=(
        "The folder is there, but files that the wheel's RECORD lists, or that the version is known to "
        "need, are not. Kernels built from them fail to compile; kernels that are in the cache already go "
        "on working, which hides the loss until the cache is cleared."
    ),
    remedy=(
        "Keep a copy where the sources were edited: installing overwrites edits. Install the same version of the "
        "package again, then restart what serves."
    ),
    references=("https://github.com/flashinfer-ai/flashinfer/issues/2203", RECORD),
)
def csrc_incomplete(look: Look) -> Iterator[Hit]:
    """Fire where the folder is known to lack files."""
    for venv, found in look.installed():
        if found.csrc_state != "incomplete":
            continue
        count = max(found.csrc_missing_count, len(found.csrc_missing))
        files = f"{text.plural(count, 'source file')}" if count else "source files"
        named = f": {text.listing(found.csrc_missing)}" if found.csrc_missing else ""
        verb = "is" if count == 1 else "are"
        folder = text.brief(found.csrc_dir, "its csrc folder")
        if found.csrc_missing and all(name.startswith("../include/") for name in found.csrc_missing):
            files = files.replace("source", "header", 1)
        yield Hit(
            f"{files} of {text.name(found)} {verb} absent from {folder}{named}.",
            venv=venv.path,
            expected=0,
            seen=count or None,
            basis=found.basis,
            remedy=(*text.keep_package(found.root), text.reinstall(venv, found), text.RESTART),
        )


@rule(
    "csrc-unexpected",
    "csrc",
    "error",
    summary="FlashInfer's JIT takes its CUDA sources from another folder than expected.",
    explanation=(
        "Every release since 0.2.0 reads `data/csrc` of its own package folder, and no environment "
        "variable moves it. Without `csrc_dir` in the inventory, that folder of the package that the "
        "interpreter resolves is what is expected. Real paths are compared, so that a linked environment "
        "and an editable install are no finding."
    ),
    remedy=(
        "Where the path is wrong on the host, put `jit/env.py` back by installing the package again. Where "
        "the expectation is wrong (no release ever read `flashinfer/csrc`), correct `csrc_dir` in the "
        "inventory."
    ),
    references=(ENV_PY,),
)
def csrc_unexpected(look: Look) -> Iterator[Hit]:
    """Fire where both the folder and what is expected are known, and they differ."""
    for venv, found in look.installed():
        wanted = look.expect(venv).csrc_dir
        expected = wanted or found.csrc_default
        if expected is None or found.csrc_dir is None or csrc_matches(venv, found, expected):
            continue
        stands = found.csrc_default is not None and csrc_matches(venv, found, found.csrc_default)
        if wanted is not None and stands:
            steps: tuple[str, ...] = (
                f"Set csrc_dir in the inventory to {text.brief(found.csrc_dir)}, or leave it out.",
                "If another environment was meant, list that one under venvs in the inventory.",
            )
        else:
            root = found.root or posixpath.dirname(posixpath.dirname(found.csrc_dir))
            steps = (
                f"grep -n FLASHINFER_CSRC_DIR {text.quote(f'{root}/jit/env.py')}",
                text.keep(f"{root}/jit/env.py"),
                text.reinstall(venv, found),
                text.RESTART,
            )
        yield Hit(
            f"{text.name(found)} takes its CUDA sources from {text.brief(found.csrc_dir)}, not from "
            f"{text.brief(expected)}.",
            venv=venv.path,
            expected=expected,
            seen=found.csrc_dir,
            basis=found.basis,
            remedy=steps,
        )


@rule(
    "env-edited",
    "csrc",
    "error",
    summary="`flashinfer/jit/env.py`, which holds the path of the sources, is not the file of the release.",
    explanation=(
        "`jit/env.py` sets the path of the sources, and each release sets it to its own package. The file's "
        "sha256 is compared with the wheel's RECORD. It is an error where the edit moves the "
        "path, or leaves a file that cannot be read as Python, and a warning otherwise. Where no RECORD lists the "
        "file, as in a checkout, it is one if its text cannot be followed. A file whose "
        "sha256 stands in `expect.files` is no finding."
    ),
    remedy="Look at the edit, then install the same version of the package again and restart what serves.",
    references=(ENV_PY, RECORD),
    causes=("csrc-unexpected", "csrc-missing", "csrc-incomplete", "expectation-unchecked/csrc_dir"),
)
def env_edited(look: Look) -> Iterator[Hit]:
    """Fire where RECORD lists another content for the file, or the file is gone while others came back."""
    for venv, found in look.installed():
        edited = found.env_record == "mismatch" and not env_file_approved(look, venv, found)
        # Without a RECORD only what cannot be followed tells of an edit; what is read speaks for itself.
        hidden = found.env_record in ("no-record", "unlisted") and found.env_error is not None
        hidden = hidden and bool(text.env_sums(found)) and not env_file_approved(look, venv, found)
        if not edited and not hidden and not (found.env_record == "missing" and found.files):
            continue
        default = found.csrc_default
        moved = found.csrc_dir is not None and default is not None and not csrc_matches(venv, found, default)
        stands = found.csrc_dir is not None and not moved and found.env_error is None
        if found.env_record == "missing":
            message = f"jit/env.py of {text.name(found)} is gone."
        elif found.env_error is not None:
            was = "was edited and cannot be read" if edited else "is not that of a release, and cannot be followed"
            message = f"jit/env.py of {text.name(found)} {was}: {text.brief(found.env_error)}."
        elif moved:
            there = text.brief(found.csrc_dir)
            message = (
                f"jit/env.py of {text.name(found)} was edited and moves the sources to {there}. Kernels are "
                "compiled "
                "from files that no release vouches for."
            )
        else:
            message = f"jit/env.py of {text.name(found)} was edited; the path of the sources is what it was."
        path = f"{found.root or 'flashinfer'}/jit/env.py"
        yield Hit(
            message,
            venv=venv.path,
            severity="warning" if stands and found.env_record != "missing" else "error",
            expected=default if moved else "the file of the release",
            seen=found.csrc_dir if moved else text.env_file(found),
            basis=found.basis,
            remedy=(
                f"grep -n CSRC_DIR {text.quote(path)}",
                *((text.keep(path),) if found.env_record != "missing" else ()),
                text.reinstall(venv, found),
                text.RESTART,
            ),
        )


RULES = (csrc_missing, csrc_incomplete, csrc_unexpected, env_edited)
