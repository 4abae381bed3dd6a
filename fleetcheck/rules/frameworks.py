"""Rules on what calls FlashInfer: sglang's and vLLM's own gates, and modules that were built before."""

from __future__ import annotations

from collections.abc import Iterator

from fleetcheck.facts.records import Framework, Fusion, Venv
from fleetcheck.rules import text
from fleetcheck.rules.csrc import RECORD, approved
from fleetcheck.rules.fusion import SGLANG_CRASH, SGLANG_PR, majors, package
from fleetcheck.rules.patched import capability
from fleetcheck.rules.rule import Hit, Look, rule

JIT_CACHE = "https://docs.flashinfer.ai/installation.html"
MODULE = "trtllm_comm"
FIXED = "0.5.8"
"""The first sglang that asks for compute capability 9 or 10 before it switches the fusion on (sglang#15650)."""
SOURCES = ("data/csrc/trtllm_", "data/include/flashinfer/comm/trtllm_")


def callers(look: Look) -> Iterator[tuple[Venv, Fusion, Framework]]:
    """Yield every framework of every environment with FlashInfer."""
    for venv in look.facts.venvs:
        if venv.state == "ok" and venv.fusion is not None:
            for caller in venv.fusion.callers:
                yield venv, venv.fusion, caller


def folder(caller: Framework) -> str | None:
    """Return the folder of a framework's package, None where none of its files tells it."""
    paths = [file.path for file in caller.files if f"/site-packages/{caller.name}/" in file.path]
    return (
        f"{paths[0].partition(f'/site-packages/{caller.name}/')[0]}/site-packages/{caller.name}" if paths else None
    )


def named(caller: Framework) -> str:
    """Return ``sglang 0.5.20``, without the version where it is not known."""
    return f"{text.brief(caller.name)} {text.brief(caller.version)}" if caller.version else text.brief(caller.name)


@rule(
    "framework-patched",
    "venv",
    "warning",
    summary="Files of sglang or vLLM that decide on all-reduce fusion are not those of the release.",
    explanation=(
        "A framework asks for the compute capability itself before it calls FlashInfer's fused all-reduce, so "
        "that a patched FlashInfer alone changes nothing in it. The sha256 of the files that hold these checks "
        "is compared with the wheel's RECORD, and what they let in is read from their text. A file whose sha256 "
        "stands in `expect.files` is no finding."
    ),
    remedy=(
        "If the patch is meant, put its sha256 into `expect.files`. Otherwise keep it, install the same "
        "version again and "
        "restart what serves."
    ),
    references=(RECORD, SGLANG_PR),
)
def framework_patched(look: Look) -> Iterator[Hit]:
    """Fire where RECORD lists another content for such a file, or it is gone."""
    for venv, _, caller in callers(look):
        expected = {file.path for file in caller.files if approved(look, venv, file.sha256)}
        changed = [name for name in caller.modified if not any(path.endswith(f"/{name}") for path in expected)]
        if not changed:
            continue
        verb = "is not the file" if len(changed) == 1 else "are not the files"
        lets = ""
        if caller.admits is not None:
            said = ", ".join(map(str, caller.admits))
            lets = f"; its gates let in majors {said}" if said else "; its gates let in no GPU"
        wanted = f"=={caller.version}" if caller.version else ""
        pip = f"{text.python(venv)} -m pip"
        yield Hit(
            f"{text.listing(changed)} in {text.brief(venv.path)} {verb} that {named(caller)} was released "
            f"with{lets}.",
            venv=venv.path,
            expected="match",
            seen=changed,
            basis="resolved",
            remedy=(
                "If this patch is meant, name each file with its sha256 under expect.files in the inventory.",
                *text.keep_package(folder(caller), f"{text.ASIDE}/{caller.name}.before"),
                f"{pip} install --force-reinstall --no-deps {text.quote(f'{caller.name}{wanted}')}{text.LIVE}",
                text.RESTART,
            ),
        )


@rule(
    "fusion-would-crash",
    "fusion",
    "error",
    summary="The framework switches all-reduce fusion on by itself, and FlashInfer's gate refuses it here.",
    explanation=(
        "sglang 0.5.5 to 0.5.7 switches the fusion on for some models (GPT-OSS; from 0.5.7 DeepSeek V3, GLM 4 MoE "
        "and Qwen3 MoE too) on every Blackwell GPU, compute capability 12.x included, and one of its two ways to "
        "the call asks for no compute capability. FlashInfer below 0.6.17 raises RuntimeError when the module is "
        "first built there, so that the server dies while it captures its graphs."
    ),
    remedy="Move to sglang 0.5.8 or newer, with the FlashInfer that it pins.",
    references=(SGLANG_CRASH,),
    causes=("fusion-refused",),
)
def fusion_would_crash(look: Look) -> Iterator[Hit]:
    """Fire where a framework may switch on what the gate refuses."""
    for venv, fusion, caller in callers(look):
        if fusion.effective != "would-crash" or not caller.auto_enables or not caller.admits:
            continue
        newer = text.quote(f"{caller.name}>={FIXED}")
        yield Hit(
            f"{named(caller)} in {text.brief(venv.path)} switches all-reduce fusion on by itself for some models "
            f"on {capability(look)}, where the gate of {package(venv)} admits {majors(fusion)}: the server dies "
            "when it captures its graphs.",
            venv=venv.path,
            expected="off",
            seen=fusion.effective,
            basis="resolved",
            remedy=(
                (
                    f"Until {caller.name} is updated, serve only models for which it stays off, or with "
                    "--enable-dp-attention."
                ),
                text.freeze(venv),
                f"{text.python(venv)} -m pip install --dry-run {newer}  # shows what it changes",
                f"{text.python(venv)} -m pip install {newer}{text.LIVE}",
                text.RESTART,
            ),
        )


@rule(
    "fusion-prebuilt-wins",
    "fusion",
    "warning",
    summary="A prebuilt module is loaded in place of edited sources, which are never compiled.",
    explanation=(
        "FlashInfer looks for `<module>.so` in flashinfer-jit-cache and in `data/aot` before it compiles. Where "
        "`trtllm_comm` is there, an edit of its sources or headers has no effect, and a gate that was widened by "
        "hand leads to a module that was not built for the GPUs it lets in: before 0.6.17 the prebuilt ones hold "
        "no code for compute capability 12.x."
    ),
    remedy=(
        "Keep the edit and put the release's files back. Only if the edit is meant, and was validated, remove "
        "flashinfer-jit-cache: the edit is then in force."
    ),
    references=(JIT_CACHE,),
)
def fusion_prebuilt_wins(look: Look) -> Iterator[Hit]:
    """Fire where the module is prebuilt, and its sources or its gate were edited."""
    for venv, found in look.installed():
        built = [path for path in found.prebuilt if path.endswith(f"/{MODULE}")]
        patched = venv.fusion is not None and venv.fusion.verdict in ("patched", "unsafe-patch")
        names = [text.inside(found, name) for name in found.modified]
        edited = [name for name in names if name.startswith(SOURCES)]
        if not built or not (edited or patched):
            continue
        what = text.listing(edited) if edited else "the gate that was widened by hand"
        packaged = [one.name for one in found.companions if one.name.startswith("flashinfer-jit-cache")]
        steps = tuple(f"{text.python(venv)} -m pip uninstall --yes {text.quote(name)}" for name in packaged)
        aside = tuple(f"mv {text.quote(path)} {text.quote(f'{path}.unused')}" for path in built)
        yield Hit(
            f"{text.listing(built)} is loaded before anything is compiled, so {what} in {text.brief(venv.path)} "
            "does not change what runs.",
            venv=venv.path,
            expected="compiled from csrc",
            seen=built,
            basis="resolved",
            remedy=(
                *text.keep_package(found.root),
                text.reinstall(venv, found),
                "Or, only if the edit is meant, which this puts in force:",
                *(steps or aside),
                text.RESTART,
            ),
        )


RULES = (framework_patched, fusion_would_crash, fusion_prebuilt_wins)
