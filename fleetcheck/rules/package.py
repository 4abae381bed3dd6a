"""Rules on the FlashInfer package in an environment: there, removed, or changed by hand."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from fleetcheck.facts.records import FlashInfer, Venv
from fleetcheck.rules import text
from fleetcheck.rules.csrc import RECORD, approved
from fleetcheck.rules.rule import Hit, Look, rule
from fleetcheck.rules.versions import parse

PACKAGE_KEYS = ("csrc_dir", "flashinfer", "allreduce_fusion", "files")
NO_PACKAGE = tuple(f"expectation-{state}/{key}" for state in ("unchecked", "unmet") for key in PACKAGE_KEYS)
HEADERS = (
    "data/include/flashinfer/comm/trtllm_allreduce.cuh",
    "data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh",
)


def asked(expected: str | None) -> str:
    """Return what pip is to install: the release that is expected, or one that is to be named."""
    if expected is None:
        return "flashinfer-python==VERSION"
    return f"flashinfer-python=={expected}" if parse(expected) is not None else f"flashinfer-python{expected}"


@rule(
    "flashinfer-missing",
    "venv",
    "error",
    summary="A listed environment does not hold FlashInfer.",
    explanation=(
        "The environment's interpreter was asked where `flashinfer` would be imported from, and it knows "
        "none. Only environments that the inventory lists are expected to have it; discovered ones are "
        "not."
    ),
    remedy="Install FlashInfer into the environment, or take the environment out of the inventory.",
    references=(
        "https://docs.flashinfer.ai/installation.html",
        "https://github.com/sgl-project/sglang/issues/5034",
    ),
    causes=NO_PACKAGE,
)
def flashinfer_missing(look: Look) -> Iterator[Hit]:
    """Fire for listed environments that are known to lack the package."""
    for venv in look.facts.venvs:
        if venv.state == "no-flashinfer" and venv.origin == "listed":
            wanted = look.expect(venv).flashinfer
            yield Hit(
                f"FlashInfer is not installed in {text.brief(venv.path)}.",
                venv=venv.path,
                expected=wanted or "installed",
                basis="resolved",
                remedy=(
                    f"{text.python(venv)} -m pip list",
                    text.freeze(venv),
                    (
                        f"{text.python(venv)} -m pip install --dry-run {text.quote(asked(wanted))}  # shows "
                        "what it changes"
                    ),
                    f"{text.python(venv)} -m pip install {text.quote(asked(wanted))}",
                    "Or take this environment out of venvs in the inventory.",
                ),
            )


@rule(
    "flashinfer-remnant",
    "venv",
    "error",
    summary="Folders of a removed FlashInfer are left, and Python takes them for the package.",
    explanation=(
        "After `pip uninstall`, files that pip did not install stay behind (an empty `data/csrc`, caches). "
        "Python then imports the folder as a namespace package: `import flashinfer` works, and every use "
        "of it fails."
    ),
    remedy="Move the folder away, and install FlashInfer if the environment is to have it.",
    references=("https://packaging.python.org/en/latest/guides/packaging-namespace-packages/",),
    causes=NO_PACKAGE,
)
def flashinfer_remnant(look: Look) -> Iterator[Hit]:
    """Fire where ``flashinfer`` resolves to a folder without the package."""
    for venv in look.facts.venvs:
        if venv.state != "remnant":
            continue
        root = venv.flashinfer.root if venv.flashinfer is not None else None
        move = (f"mv {text.quote(root)} {text.quote(f'{root}.removed')}",) if root else ()
        wanted = text.quote(asked(look.expect(venv).flashinfer))
        install = (
            (
                f"{text.python(venv)} -m pip install --dry-run {wanted}  # if it is to be there; shows what it "
                "changes"
            ),
            f"{text.python(venv)} -m pip install {wanted}",
        )
        yield Hit(
            f"{text.brief(root, 'A folder named flashinfer')} is what is left of a removed FlashInfer, and "
            f"{text.brief(venv.path)} imports it as one.",
            venv=venv.path,
            seen=root,
            basis="resolved",
            remedy=(*move, text.freeze(venv), *install),
        )


def modified_files(look: Look, venv: Venv, found: FlashInfer) -> list[str]:
    """Return the package files that were changed or removed by hand, relative to its folder.

    Left out is what the inventory expects, and what another rule tells of: ``jit/env.py`` (``env-edited``), and
    sources that are gone (``csrc-missing``, ``csrc-incomplete``).
    """
    files = {text.inside(found, file.path): file for file in found.files}
    names = {text.inside(found, name) for name in found.modified}
    names |= {name for name, file in files.items() if file.record == "missing"} | {*found.absent, *found.replaced}
    short = found.csrc_state in ("missing", "empty", "incomplete")
    told = {"jit/env.py"} if found.env_record in ("mismatch", "missing") else set()
    told |= {posixpath.normpath(f"data/csrc/{name}") for name in found.csrc_missing if short}
    told |= {
        name
        for name, file in files.items()
        if short and file.record == "missing" and name.startswith("data/csrc/")
    }
    expected = {name for name, file in files.items() if approved(look, venv, file.sha256)}
    return sorted(names - told - expected)


@rule(
    "package-modified",
    "venv",
    "warning",
    summary="Files of the installed FlashInfer are not those of the release.",
    explanation=(
        "The sha256 of the files that decide (Python of `jit/` and `comm/`, the CUDA sources and FlashInfer's own "
        "headers) is compared with the wheel's RECORD. Where the sources are more than 20 MB (from 0.7.1 on), "
        "those outside the all-reduce are compared by size, and by sha256 where they changed after RECORD was "
        "written (`verified` is `partly` then). It is an error where a file is gone without which the package "
        "cannot be imported or its all-reduce cannot be built, where another file is imported instead of a "
        "module, and where an edited module may move the sources or replace what builds from them. A local patch "
        "is legitimate where it is known: name "
        "the file and its sha256 under `expect.files`. Where only the gate and its headers are changed, "
        "the finding is folded under the rule that says what the patch does."
    ),
    remedy=(
        "If the patch is meant, put its sha256 into `expect.files`. Otherwise keep a copy of it, install the "
        "same version again and restart what serves."
    ),
    references=(RECORD,),
)
def package_modified(look: Look) -> Iterator[Hit]:
    """Fire where RECORD lists another content, or a file that is gone."""
    for venv, found in look.installed():
        changed = modified_files(look, venv, found)
        if not changed:
            continue
        gone = [name for name in changed if name in _gone(found)]
        others = [name for name in changed if name not in gone]
        decides = sorted({*found.redirected, *found.absent, *found.replaced} & set(changed))
        gate = venv.fusion.gate_file if venv.fusion is not None else None
        patch = {*HEADERS, text.inside(found, gate) if gate else ""}
        folded = patch.issuperset(changed) and not decides
        yield Hit(
            _told(venv, found, gone, others),
            venv=venv.path,
            severity="error" if decides else None,
            key="gate" if folded else None,
            expected="match",
            seen=changed,
            basis=found.basis,
            remedy=(
                (
                    f"fleetcheck compare GOOD {text.quote(look.target.name)} -i INVENTORY  # here: the "
                    "difference to a host that is right"
                ),
                "If this patch is meant, name each file with its sha256 under expect.files in the inventory.",
                *text.keep_package(found.root),
                text.reinstall(venv, found),
                text.RESTART,
            ),
        )


def _gone(found: FlashInfer) -> set[str]:
    """Return the files that RECORD lists, or that the release needs, and that are not there."""
    missing = {text.inside(found, file.path) for file in found.files if file.record == "missing"}
    return missing | set(found.absent)


def _told(venv: Venv, found: FlashInfer, gone: list[str], others: list[str]) -> str:
    where, release = text.brief(venv.path), text.name(found)
    parts = []
    if gone:
        verb = "is" if len(gone) == 1 else "are"
        parts.append(f"{text.listing(gone)} of {release} {verb} absent from {where}")
    if beside := [name for name in others if name in found.replaced]:
        parts.append(f"{text.listing(beside)} in {where} is imported instead of the module of {release} beside it")
    if changed := [name for name in others if name not in found.replaced]:
        verb = "is not the file" if len(changed) == 1 else "are not the files"
        parts.append(f"{text.listing(changed)} in {where} {verb} that {release} was released with")
    return f"{'; '.join(parts)}."


RULES = (flashinfer_missing, flashinfer_remnant, package_modified)
