"""Rules on FlashInfer's metadata and on the packages that go with it: do they speak of one release?"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from fleetcheck.facts.records import Distribution, FlashInfer, Venv
from fleetcheck.facts.releases import stock_gate
from fleetcheck.rules import text
from fleetcheck.rules.pins import pinned
from fleetcheck.rules.rule import Hit, Look, rule
from fleetcheck.rules.versions import below, parse

RECORDED = "https://packaging.python.org/en/latest/specifications/recording-installed-packages/"
ABI = "https://github.com/sgl-project/sglang/issues/28786"
STALE = "https://github.com/lightseekorg/tokenspeed/issues/284"
NO_CUBINS = "https://github.com/flashinfer-ai/flashinfer/issues/3294"
JIT_CACHE = "flashinfer-jit-cache"
KNOWN_SINCE = "0.4.0"
IGNORED_SINCE = "0.7.2"
EXACT_SINCE = "0.7.0"
NO_CUBIN = (
    "Nothing to mend on the host. Serve without trtllm backends; of sglang: --attention-backend flashinfer or "
    "triton "
    "(not trtllm_mha, trtllm_mla), and no --moe-runner-backend flashinfer_trtllm."
)


def same(one: str, other: str) -> bool:
    """Return whether two texts name one version."""
    return one == other or (parse(one) is not None and parse(one) == parse(other))


def twice(found: FlashInfer) -> list[Distribution]:
    """Return the metadata folders of FlashInfer that lie in one site-packages, where they are more than one."""
    own = [dist for dist in found.distributions if dist.path]
    home = posixpath.dirname(found.root) if found.root else None
    beside = [dist for dist in own if home is None or posixpath.dirname(dist.path or "") == home]
    return beside if len({dist.path for dist in beside}) > 1 else []


def older_files(venv: Venv, found: FlashInfer) -> bool:
    """Return whether the gate is that of a release before the one that is installed."""
    fusion = venv.fusion
    if fusion is None or fusion.gate_state != "read" or fusion.gate is None:
        return False
    known, stock = stock_gate(found.version)
    return known and stock is not None and 12 in stock and 12 not in fusion.gate


@rule(
    "flashinfer-mixed",
    "venv",
    "error",
    summary="Files of two releases of FlashInfer are mixed in one environment.",
    explanation=(
        "An upgrade that was interrupted, or a copy over an installed package, leaves files of both releases: two "
        "metadata folders, or a gate that is older than the version says. What is imported is then neither of "
        "them, and RECORD vouches for one alone."
    ),
    remedy=(
        "Download the release that is meant first. Then uninstall FlashInfer until pip knows none, move away "
        "what is "
        "left of its folder, and install that one release."
    ),
    references=(RECORDED,),
    causes=("package-modified", "basis-disagrees", "csrc-incomplete", "import-failed"),
)
def flashinfer_mixed(look: Look) -> Iterator[Hit]:
    """Fire on two metadata folders in one site-packages, and on a gate older than the version."""
    for venv, found in look.installed():
        both = twice(found)
        if not both and not older_files(venv, found):
            continue
        if both:
            versions = [dist.version for dist in both]
            message = (
                f"{text.brief(venv.path)} holds the metadata of FlashInfer {text.listing(versions)} side by side."
            )
        else:
            gate = ", ".join(map(str, venv.fusion.gate or ())) if venv.fusion is not None else ""
            versions = [found.version or ""]
            message = (
                f"{text.name(found)} in {text.brief(venv.path)} has the gate of an older release (majors {gate})."
            )
        python = text.python(venv)
        wanted = text.quote(
            f"flashinfer-python=={found.version}" if found.version else "flashinfer-python==VERSION"
        )
        yield Hit(
            message,
            venv=venv.path,
            expected="one release",
            seen=versions,
            basis="recorded" if both else "resolved",
            remedy=(
                f"{python} -m pip list --format freeze | grep -i flashinfer",
                *text.keep_package(found.root),
                f"{python} -m pip download --no-deps -d /var/tmp/fi {wanted}",
                f"{python} -m pip uninstall --yes flashinfer-python  # repeat until pip knows none",
                *(
                    (f"mv {text.quote(found.root)} /var/tmp/flashinfer.rest  # if it is still there",)
                    if found.root
                    else ()
                ),
                f"{python} -m pip install --no-deps --no-index --find-links /var/tmp/fi {wanted}{text.LIVE}",
                text.RESTART,
            ),
        )


@rule(
    "basis-disagrees",
    "venv",
    "warning",
    summary="Two ways of asking about FlashInfer give different answers: metadata, files, or the real import.",
    explanation=(
        "`pip list` and every tool that reads the metadata show one version, and a process that imports "
        "FlashInfer has another: files were copied over an installed package, or another folder comes first on "
        "the path. Expectations are judged by what is imported. With `--deep`, the folder that the real import "
        "names is compared with the one that was read from the files."
    ),
    remedy="Find which of the two is meant, keep a copy, and install the release that you want again.",
    references=(RECORDED,),
)
def basis_disagrees(look: Look) -> Iterator[Hit]:
    """Fire where both versions are known and differ, or both folders."""
    for venv, found in look.installed():
        said, own = found.imported_csrc_dir, {path for path in (found.csrc_dir, found.csrc_real) if path}
        if said and own and found.basis != "imported":
            yield Hit(
                f"FlashInfer in {text.brief(venv.path)} says on import that its sources are in "
                f"{text.brief(said)}, and its files say {text.brief(found.csrc_dir or found.csrc_real)}.",
                venv=venv.path,
                key="csrc",
                expected=found.csrc_dir,
                seen=said,
                basis="imported",
                remedy=(
                    f"{text.python(venv)} -m pip show --files flashinfer-python",
                    *text.keep_package(found.root),
                    text.reinstall(venv, found),
                    text.RESTART,
                ),
            )
        recorded, resolved = found.recorded_version, found.version
        if not recorded or not resolved or parse(resolved) is None or same(recorded, resolved):
            continue
        yield Hit(
            f"FlashInfer in {text.brief(venv.path)} says that it is {text.brief(resolved)}, and its metadata "
            f"{text.brief(recorded)}.",
            venv=venv.path,
            expected=recorded,
            seen=resolved,
            basis="resolved",
            remedy=(
                f"{text.python(venv)} -m pip show --files flashinfer-python",
                *text.keep_package(found.root),
                f"Install the release that you want, {text.brief(recorded)} or {text.brief(resolved)}:",
                text.reinstall(venv, found.model_copy(update={"version": recorded})),
                f"Or: {text.reinstall(venv, found.model_copy(update={'version': resolved}))}",
                text.RESTART,
            ),
        )


def disagreement(found: FlashInfer, other: Distribution) -> str | None:
    """Return what becomes of a companion of another release: ``fails``, ``ignored``, ``taken``; None if it fits.

    As ``jit/env.py`` of each release compares the two: before 0.4.0 it knows none; up to 0.6.18 a jit-cache by how
    its version begins, so that 0.6.10 passes for 0.6.1; from 0.7.2 on a companion that does not fit is ignored.
    """
    version = found.version
    if version is None or parse(version) is None or parse(other.version) is None:
        return None
    public = other.version.partition("+")[0] if other.name.startswith(JIT_CACHE) else other.version
    if same(public, version) or same(other.version, version):
        return None
    if below(version, KNOWN_SINCE):
        return None
    if other.name.startswith(JIT_CACHE) and below(version, EXACT_SINCE) and other.version.startswith(version):
        return "taken"
    return (
        "fails" if below(version, IGNORED_SINCE) and other.name in (JIT_CACHE, "flashinfer-cubin") else "ignored"
    )


OUTCOMES = {
    "fails": "so that importing it raises RuntimeError unless FLASHINFER_DISABLE_VERSION_CHECK is set",
    "ignored": "which ignores it and compiles or downloads instead",
    "taken": "which does not notice and loads what was built for another release",
}


@rule(
    "companion-mismatch",
    "venv",
    "error",
    summary="flashinfer-cubin, flashinfer-jit-cache or a framework wants another release of FlashInfer.",
    explanation=(
        "The companion packages hold binaries that were built for one release. From 0.4.0 to 0.7.1 an import "
        "with another release's raises RuntimeError; from 0.7.2 on they are ignored with a warning, and kernels "
        "are compiled or downloaded at first use. Up to 0.6.18 a jit-cache is compared by how its version begins "
        "alone, so that 0.6.10 passes for 0.6.1, and calls of its modules fail or corrupt memory. The check can "
        "be switched off by an environment variable, with the same result. sglang and vLLM pin the release that "
        "they were tested with; with FlashInfer as its attention backend sglang ends at its start where an older "
        "one is installed, and what a newer one changes shows while it serves: a warning."
    ),
    remedy=(
        "Install the companion of the same release, or remove it. For a pin, install the FlashInfer that the "
        "framework names."
    ),
    references=(ABI, STALE),
    causes=("import-failed/companion",),
)
def companion_mismatch(look: Look) -> Iterator[Hit]:
    """Fire for each companion whose release differs, and for each framework that pins another one."""
    for venv, found in look.installed():
        for caller in venv.fusion.callers if venv.fusion is not None else ():
            yield from pinned(venv, found, caller)
        for other in found.companions:
            outcome = disagreement(found, other)
            if outcome is None:
                continue
            python = text.python(venv)
            yield Hit(
                f"{text.brief(other.name)} {text.brief(other.version)} in {text.brief(venv.path)} does not fit "
                f"{text.name(found)}, {OUTCOMES[outcome]}.",
                venv=venv.path,
                severity="warning" if outcome == "ignored" else "error",
                expected=found.version,
                seen=other.version,
                basis="recorded",
                remedy=(
                    f"{python} -m pip install --no-deps {text.quote(f'{other.name}=={found.version}')}{text.LIVE}",
                    f"Or: {python} -m pip uninstall --yes {text.quote(other.name)}",
                    text.RESTART,
                ),
            )


@rule(
    "cubins-lack-arch",
    "toolchain",
    "info",
    summary="flashinfer-cubin holds no cubin for this host's GPUs.",
    explanation=(
        "The kernels of TRT-LLM that FlashInfer loads as cubins are there for the GPU architectures alone that "
        "the package was made for; the releases up to 0.6.13 hold none for compute capability 12.x. Backends that "
        "need them fail there, or gave wrong output in 0.6.11."
    ),
    remedy=(
        "Serve with backends that are compiled on the host or come with the framework; for sglang, "
        "`--attention-backend flashinfer` or `triton`, and `--moe-runner-backend` other than `flashinfer_trtllm`."
    ),
    references=(NO_CUBINS,),
)
def cubins_lack_arch(look: Look) -> Iterator[Hit]:
    """Fire where cubins were counted and none is of the major of a GPU of this host."""
    majors = {capability.partition(".")[0] for capability in look.facts.gpus.compute_capability}
    for venv, found in look.installed():
        if not found.cubins:
            continue
        lacking = sorted(majors - {arch[:-1] for arch in found.cubins})
        if lacking:
            version = next((one.version for one in found.companions if one.name == "flashinfer-cubin"), "")
            yield Hit(
                f"flashinfer-cubin {text.brief(version, 'of no known version')} in {text.brief(venv.path)} holds "
                f"cubins for sm_{text.listing(sorted(found.cubins), 8)} and none for compute capability "
                f"{', '.join(f'{major}.x' for major in lacking)}.",
                venv=venv.path,
                expected=lacking,
                seen=found.cubins,
                basis="resolved",
                remedy=(NO_CUBIN,),
            )


RULES = (flashinfer_mixed, basis_disagrees, companion_mismatch, cubins_lack_arch)
