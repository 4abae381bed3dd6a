"""Whether a serving process was started with the all-reduce fusion, as its arguments say."""

from __future__ import annotations

from collections.abc import Mapping

from fleetcheck.facts.records import Process

ASKS = ("--enable-flashinfer-allreduce-fusion", "--flashinfer-allreduce-fusion-backend")
FORBIDS = ("--enforce-disable-flashinfer-allreduce-fusion", "--disable-flashinfer-allreduce-fusion")
TENSOR_PARALLEL = ("--tp", "--tp-size", "--tensor-parallel-size", "-tp")
CONFIG = "--config"
"""Both frameworks read more arguments from the file that it names; the file is not looked at."""
PASSES = ("fuse_allreduce_rms", "enable_fi_allreduce_fusion")
"""The names of vLLM's pass in ``--compilation-config``, new and old.

vLLM takes strict JSON there, and does not start with quotes of another kind; a shell takes its own quotes away
before the arguments are anybody's.
"""
YES = frozenset({"true", "1"})
NO = frozenset({"false", "0"})
"""What vLLM's pydantic takes for a pass that is on or off, out of JSON or behind a dotted name."""
SIZE = "fi_allreduce_fusion_max_size_mb"
"""The size of ``--compilation-config`` that takes the place of vLLM's own table, also where this has none."""
SHORTEST: Mapping[str, str] = {
    "--tensor-parallel-size": "--tensor-",
    "--tp-size": "--tp",
    "--enable-flashinfer-allreduce-fusion": "--enable-fl",
    "--flashinfer-allreduce-fusion-backend": "--flashinfer-a",
    "--enforce-disable-flashinfer-allreduce-fusion": "--enforce-disable-f",
    "--disable-flashinfer-allreduce-fusion": "--disable-flashinfer-al",
}
"""The shortest word that argparse takes for an option and for no other one of the frameworks' releases."""


def arguments(flags: Mapping[str, str]) -> tuple[Mapping[str, str], bool]:
    """Return the arguments with abbreviated options in full, and whether they are all that counts.

    argparse takes each beginning of an option that is one of no other. A word that is too short to be told, and a
    file of more arguments, may decide without being seen.
    """
    full: dict[str, str] = {}
    whole = CONFIG not in flags
    for name, value in flags.items():
        meant = [option for option, least in SHORTEST.items() if option.startswith(name)]
        if name in TENSOR_PARALLEL or not name.startswith("--") or not meant or name in SHORTEST:
            full[name] = value
        elif len(meant) == 1 and name.startswith(SHORTEST[meant[0]]):
            full[meant[0]] = value
        else:
            whole = False
    return full, whole


def wanted(process: Process, *, auto: bool) -> bool | None:
    """Return whether the process asked for the fusion; None where its arguments leave that open.

    ``auto``: this framework may switch it on unasked on these GPUs, for some models. Both frameworks fuse only
    where more than one GPU shares a layer, and both start with one unless told otherwise.
    """
    if process.title is not None and process.launcher is None:
        return None  # a renamed child, whose launcher was not seen: its arguments are gone
    flags, whole = arguments(process.flags)
    size = next((flags[name] for name in TENSOR_PARALLEL if name in flags), "1" if whole else "")
    if size == "1" or any(name in flags for name in FORBIDS):
        return False
    if not size.isdigit():
        return None
    told = {flags[name] for name in PASSES if name in flags}
    if process.server == "vllm":
        return True if told & YES else False if told & NO else None
    if any(name in flags for name in ASKS):
        return True
    return None if auto or not whole else False


def sized(process: Process) -> bool:
    """Return whether vLLM was given a size, so that its table of GPUs does not count."""
    return process.server == "vllm" and SIZE in process.flags


def unseen(process: Process) -> bool:
    """Return whether arguments that are not seen may decide."""
    return not arguments(process.flags)[1]
