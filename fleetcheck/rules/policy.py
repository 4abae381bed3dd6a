"""Rules on expectations that have no rule of their own, and on those that could not be checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetcheck.rules import text, versions
from fleetcheck.rules.expectations import Gap, gaps
from fleetcheck.rules.rule import Hit, Look, rule

SPECIFIERS = "https://packaging.python.org/en/latest/specifications/version-specifiers/"
WORDS = {
    "gpus": "the number of GPUs",
    "gpu_name": "the GPUs' name",
    "compute_capability": "the compute capability",
    "driver": "the driver",
    "link": "the link between GPUs",
    "csrc_dir": "the csrc folder",
    "flashinfer": "FlashInfer",
    "sglang": "sglang",
    "vllm": "vLLM",
    "torch_cuda": "torch's CUDA",
    "nvcc": "nvcc",
    "venv_python": "Python",
    "allreduce_fusion": "all-reduce fusion",
    "files": "a file",
    "venvs": "a listed environment",
    "scan": "the files of scan",
}
STEPS: dict[str, tuple[str, ...]] = {
    "venvs": ("Run the audit of this host again, with a longer limit if it ran out of time.",),
    "scan": ("Mend what kept the file from being read, or correct scan in the inventory.",),
}


def value(expected: Any) -> str:
    """Return an expected value in words."""
    if isinstance(expected, dict):
        return ", ".join(f"{name} with sha256 {sha256[:12]}…" for name, sha256 in expected.items())
    return text.brief(str(expected)) if expected is not None else "its own data/csrc"


def place(gap: Gap) -> str:
    """Return where the expectation stands, in words."""
    return f" in {text.brief(gap.venv.path)}" if gap.venv is not None else " on this host"


def unmet(gap: Gap) -> tuple[str, tuple[str, ...]]:
    """Return the sentence and the steps for one expectation that is not met."""
    if gap.key == "files":
        how = (
            "is not there, and a content is expected of it"
            if gap.seen is None
            else "does not have the expected content"
        )
        return (
            f"{text.brief(gap.why)} {how}.",
            (
                f"sha256sum {text.quote(gap.why)}",
                "Put the expected file back, or correct expect.files in the inventory.",
            ),
        )
    if gap.key == "allreduce_fusion":
        return (
            f"All-reduce fusion is {gap.expected}{place(gap)}, and is {gap.seen}.",
            ("Change how the server is started, or correct expect.allreduce_fusion in the inventory.",),
        )
    word = WORDS[gap.key]
    if gap.seen is None:
        message = f"{word[0].upper()}{word[1:]} {value(gap.expected)} is expected{place(gap)}, and there is none."
    else:
        seen = text.brief(str(gap.seen))
        message = f"{word[0].upper()}{word[1:]}{place(gap)} is {seen}, {value(gap.expected)} is expected."
    hint = (
        (f"If every {gap.expected} release is meant, write {gap.key}: '=={gap.expected}.*'.",)
        if isinstance(gap.seen, str) and versions.is_prefix(str(gap.expected), gap.seen)
        else ()
    )
    return message, (*hint, *mend(gap))


def mend(gap: Gap) -> tuple[str, ...]:
    """Return the steps that bring a version to what is expected."""
    package = {"flashinfer": "flashinfer-python", "sglang": "sglang", "vllm": "vllm"}.get(gap.key)
    correct = f"Or correct expect.{gap.key} in the inventory."
    if package is None or gap.venv is None:
        return (f"Bring the host to what is expected of {WORDS[gap.key]}.", correct)
    pinned = versions.parse(str(gap.expected)) is not None
    wanted = f"{package}=={gap.expected}" if pinned else f"{package}{gap.expected}"
    return (
        text.freeze(gap.venv),
        f"{text.python(gap.venv)} -m pip install --dry-run {text.quote(wanted)}",
        f"{text.python(gap.venv)} -m pip install {text.quote(wanted)}{text.LIVE}",
        text.RESTART,
        correct,
    )


@rule(
    "expectation-unmet",
    "policy",
    "error",
    summary="The host is not what the inventory expects.",
    explanation=(
        "This rule judges the expectations that have no rule of their own: `flashinfer`, `sglang`, `vllm`, "
        "`torch_cuda`, `nvcc`, `venv_python`, `link`, `allreduce_fusion` (what is in force) and `files`. A "
        "package that is expected of the whole host must be in one of its environments; one that an "
        "environment's own entry expects must be in that one. Versions are PEP 440 ranges in which `>=` "
        "admits release candidates and development builds; a bare version means `==`."
    ),
    remedy="Bring the host to what is expected, or correct the expectation in the inventory.",
    references=(SPECIFIERS,),
)
def expectation_unmet(look: Look) -> Iterator[Hit]:
    """Fire for each expectation that is known not to be met."""
    for gap in gaps(look):
        if gap.state == "unmet":
            message, steps = unmet(gap)
            yield Hit(
                message,
                venv=gap.venv.path if gap.venv is not None else None,
                key=gap.key,
                expected=gap.expected,
                seen=gap.seen,
                basis="resolved" if gap.venv is not None else None,
                remedy=steps,
            )


@rule(
    "expectation-unchecked",
    "policy",
    "warning",
    summary="An expectation could not be checked.",
    explanation=(
        "What it speaks of was not seen, or is not something that can be compared (a version that does not "
        "parse). It does not count as passed. Where another finding on the host says why, this one is folded "
        "under it."
    ),
    remedy="Mend what kept it from being seen, then run the audit again; or correct the expectation.",
    references=(SPECIFIERS,),
)
def expectation_unchecked(look: Look) -> Iterator[Hit]:
    """Fire for each expectation that is neither known to be met nor known to be unmet."""
    for gap in gaps(look):
        if gap.state == "unchecked":
            word = WORDS[gap.key]
            against = (
                "" if gap.key in ("files", "venvs", "scan") else f"{place(gap)} against {value(gap.expected)}"
            )
            yield Hit(
                f"Could not check {word}{against}: {gap.why}.",
                venv=gap.venv.path if gap.venv is not None else None,
                key=gap.key,
                expected=gap.expected,
                seen=gap.seen,
                remedy=STEPS.get(
                    gap.key,
                    (f"Mend what kept this from being seen, or correct expect.{gap.key} in the inventory.",),
                ),
            )


RULES = (expectation_unmet, expectation_unchecked)
