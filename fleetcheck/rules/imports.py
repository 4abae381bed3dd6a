"""Rules on the real import (``--deep``): did it go through, and where it did not, whose fault was that?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetcheck.facts.records import FlashInfer, ImportState, Venv
from fleetcheck.rules import text
from fleetcheck.rules.rule import Hit, Look, rule

REQUIREMENTS = "https://docs.flashinfer.ai/installation.html"
NEEDS_GPU = "https://github.com/flashinfer-ai/flashinfer/issues/4143"
ABSENT = re.compile(r"^ModuleNotFoundError: No module named '([^']{1,100})'")
COMPANION = re.compile(r"flashinfer[-_](cubin|jit[-_]cache).* version", re.IGNORECASE)
"""What ``jit/env.py`` raises where a companion is of another release: a finding of its own."""
UNCHECKED: dict[ImportState, str] = {
    "refused": "it failed of what the audit does not let it do",
    "no-gpu": "it wants a GPU, and the audit shows it none",
    "unfinished": "it did not come to an end",
    "not-made": "it was not made",
}


WITHOUT_GPU = "CUDA_VISIBLE_DEVICES= FLASHINFER_CUDA_ARCH_LIST=9.0a "
"""As the audit imports. Without these the import asks the driver for every GPU."""


def by_hand(venv: Venv, conditions: str, comment: str) -> str:
    """Return the command that imports by hand, and writes beside no cache that serves."""
    command = f"{text.python(venv)} -B -c 'import flashinfer.jit.env'"
    return f'{conditions}FLASHINFER_WORKSPACE_BASE="$(mktemp -d)" {command}  # {comment}'


def mended(venv: Venv, found: FlashInfer) -> tuple[str, ...]:
    """Return the steps towards an import that works."""
    python, wanted = text.python(venv), f"flashinfer-python=={found.version}" if found.version else ""
    steps = [by_hand(venv, WITHOUT_GPU, "shows the whole traceback")]
    steps += [f"{python} -m pip check  # names the requirements that are not met"]
    if ABSENT.match(found.imported_error or "") and wanted and found.install == "wheel":
        steps += [
            text.freeze(venv),
            f"{python} -m pip install --dry-run {text.quote(wanted)}  # shows what it adds and changes",
            f"{python} -m pip install {text.quote(wanted)}",
        ]
    return (*steps, text.RESTART)


@rule(
    "import-failed",
    "venv",
    "error",
    summary="FlashInfer cannot be imported by the environment's own interpreter (asked with `--deep`).",
    explanation=(
        "With `--deep`, `flashinfer.jit.env` is really imported by the interpreter that would serve, without a "
        "GPU and in a scratch folder. It raised, or the interpreter ended: a package that it needs is missing or "
        "broken. A server that starts from this environment fails in the same way, while one that runs already "
        "goes on. What the audit itself keeps from the import is `import-unchecked`."
    ),
    remedy=(
        "Import it by hand to see the whole traceback, install what is missing after a dry run, and restart what "
        "serves."
    ),
    references=(REQUIREMENTS,),
)
def import_failed(look: Look) -> Iterator[Hit]:
    """Fire where the import was made, and failed of the environment itself."""
    for venv, found in look.installed():
        if found.imported_state != "failed":
            continue
        why = text.brief(found.imported_error)
        yield Hit(
            f"The interpreter of {text.brief(venv.path)} cannot import {text.name(found)}: {why}.",
            venv=venv.path,
            key="companion" if COMPANION.search(why) else None,
            expected="an import that works",
            seen=why,
            basis="imported",
            remedy=mended(venv, found),
        )


@rule(
    "import-unchecked",
    "venv",
    "warning",
    summary="The real import was asked for (`--deep`), and says nothing.",
    explanation=(
        "The import runs without a GPU, without a network, and may write to a scratch folder alone; it has a "
        "minute, and is made in 16 environments of a host at most and in no container. What ends it so is no "
        "fault of the environment, and no proof of its health either: it does not count as passed. What was read "
        "from the files stands."
    ),
    remedy=(
        "Import it by hand, as the user who serves. Where an environment is known to be so, its level is set in "
        "the inventory: `rules: {import-unchecked: info}`."
    ),
    references=(NEEDS_GPU,),
)
def import_unchecked(look: Look) -> Iterator[Hit]:
    """Fire where the import was asked for, and what ended it says nothing of the environment."""
    for venv, found in look.installed():
        if found.imported_state is None or found.imported_state not in UNCHECKED:
            continue
        why = text.brief(found.imported_error)
        yield Hit(
            f"Whether {text.name(found)} can be imported in {text.brief(venv.path)} is not known: "
            f"{UNCHECKED[found.imported_state]} ({why}).",
            venv=venv.path,
            expected="an import that works",
            seen=why,
            basis="imported",
            remedy=(
                by_hand(venv, "", "with GPUs and network, as a server would"),
                "Or set its level in the inventory: rules: {import-unchecked: info}",
            ),
        )


RULES = (import_failed, import_unchecked)
