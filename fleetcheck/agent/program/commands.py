"""Command lines of servers: which framework they start, and those arguments that may be told."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Tuple

from fleetcheck.agent.program.values import Root, read_bytes

VALUED = (
    "--tp", "--tp-size", "--tensor-parallel-size", "-tp", "--nnodes", "--flashinfer-allreduce-fusion-backend",
    "--attention-backend", "--pipeline-parallel-size", "--pp-size",
)  # fmt: skip
BARE = (
    "--enable-flashinfer-allreduce-fusion", "--enforce-disable-flashinfer-allreduce-fusion",
    "--disable-flashinfer-allreduce-fusion", "--disable-custom-all-reduce", "--enable-torch-symm-mem",
    "--enable-symm-mem", "--enforce-eager", "--disable-cuda-graph",
)  # fmt: skip
# Of vLLM's --compilation-config, as JSON or by a dotted name; the size is one for GPUs that have none by default.
PASSES = ("enable_fi_allreduce_fusion", "fuse_allreduce_rms", "fi_allreduce_fusion_max_size_mb")
TITLES = ("sglang::", "VLLM::", "vllm::")
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-/")


def users(root: Root) -> "Dict[int, Tuple[str, str]]":
    """Return names and homes by uid out of /etc/passwd; a directory service is not asked."""
    found: "Dict[int, Tuple[str, str]]" = {}
    try:
        lines = read_bytes(root.at("/etc/passwd"), 1 << 20).decode("utf-8", "replace").splitlines()
    except OSError:
        return found
    for line in lines:
        fields = line.split(":")
        if len(fields) > 5 and fields[2].isdigit():
            found.setdefault(int(fields[2]), (fields[0][:100], fields[5][:1024]))
    return found


def safe_word(word: str, limit: int = 60) -> "Optional[str]":
    """Return a short word of harmless characters, else None: what may be a secret is not told."""
    return word if 0 < len(word) <= limit and not set(word) - SAFE else None


def server_of(words: "List[str]") -> "Optional[str]":
    """Return which framework a command line starts, or a renamed child belongs to."""
    title = words[0] if words else ""
    for start in TITLES:
        if title.startswith(start):
            return start[:-2].lower()
    for number, word in enumerate(words[:8]):
        name = os.path.basename(word)
        if name in ("sglang", "vllm") and (number < 2 or words[number - 1] == "-m"):
            return name
        if number and words[number - 1] == "-m" and word.partition(".")[0] in ("sglang", "vllm"):
            return word.partition(".")[0]
    return None


def flags_of(words: "List[str]") -> "Dict[str, str]":
    """Return the arguments that may be told: those that decide on the all-reduce, with harmless values."""
    found: "Dict[str, str]" = {}
    for number, word in enumerate(words[:2000]):
        name, equals, value = word.partition("=")
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        # argparse takes each beginning of an option that is one of no other; the controller judges which.
        begun = len(name) > 3 and name.startswith("--") and name not in VALUED and name not in BARE
        valued = begun and any(option.startswith(name) for option in VALUED)
        bare = begun and not equals and any(option.startswith(name) for option in BARE)
        if name in BARE and not equals:
            found[name] = ""
        elif name in VALUED or (valued and name not in found):
            told = value if equals else words[number + 1] if number + 1 < len(words) else ""
            found[name] = safe_word(told) or "(not told)"
        elif bare or name == "--config":
            found[name] = ""  # what it names is not told
        for one in PASSES:
            given = passed(one, word, words[number + 1] if number + 1 < len(words) else "")
            if given:
                found[one] = given
    return found


def passed(name: str, word: str, following: str) -> "Optional[str]":
    """Return what a word of a command line gives an entry of vLLM's ``pass_config``, None where it gives none."""
    at = word.find('"' + name + '"')
    if at >= 0:
        rest = word[at + len(name) + 2 :].lstrip(" :")
    else:
        key, equals, value = word.partition("=")
        if not key.replace("-", "_").endswith(".pass_config." + name):
            return None
        rest = value if equals else following
    told = rest.lower()
    for answer in ("true", "false"):
        if told.startswith(answer):
            return answer
    number = told[: len(told) - len(told.lstrip("0123456789."))]
    return number[:20] or None
