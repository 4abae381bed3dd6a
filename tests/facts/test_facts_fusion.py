"""Gates by function, guards by condition, and the verdict that follows from both."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from support import wheels

from fleetcheck.facts import deciders, gates, guards, releases
from fleetcheck.facts.fusion import fusion
from fleetcheck.facts.records import Framework

DATA = Path(__file__).parent / "data"
GATES = yaml.safe_load((DATA / "gates.yaml").read_text())
GUARDS = yaml.safe_load((DATA / "guards.yaml").read_text())
VERDICTS = yaml.safe_load((DATA / "fusion.yaml").read_text())
GUARD = "#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900) && (__CUDA_ARCH__ < 1200))"
PLAIN = "#if (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900))"


def module(call: str) -> str:
    return f"def gen_trtllm_comm_module():\n    flags = {call}\n    return gen_jit_spec('trtllm_comm', flags)\n"


@pytest.mark.parametrize("case", GATES, ids=[case["name"] for case in GATES])
def test_the_gate_by_function_name(case: dict[str, Any]) -> None:
    texts = case.get("files", {"jit/comm.py": module(case.get("call", ""))})
    record = case.get("record", "match")
    files = {name: {"text": text, "record": record} for name, text in texts.items()}
    reading = gates.read(files, case.get("version"))
    assert reading.state == case["state"]
    assert reading.gate == (tuple(case["gate"]) if case.get("gate") else None)
    assert (reading.error or "").startswith(case.get("error", ""))
    assert bool(reading.error) == (reading.state == "unreadable")
    if "file" in case:
        assert reading.file == case["file"]
    if "gates" in case:
        wanted = {name: tuple(gate) if gate else None for name, gate in case["gates"].items()}
        assert reading.gates == wanted


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        ({"text": None, "error": "EACCES", "record": "unreadable"}, "unreadable"),
        ({"text": None, "error": "ENOENT", "record": "missing"}, "unreadable"),
        ({"text": None, "error": "ENOENT", "record": "no-record"}, "absent"),
        ({"text": 7}, "unreadable"),
        ({"text": "x" * 100_000}, "unreadable"),
        ({"text": "def gen_trtllm_comm_module():\n  return 1\0"}, "unreadable"),
        ({"text": ""}, "absent"),
    ],
)
def test_a_file_that_cannot_be_read_is_not_an_older_version(entry: dict[str, Any], state: str) -> None:
    assert gates.read({"jit/comm.py": entry}).state == state


@pytest.mark.parametrize(("text", "first", "second"), GUARDS, ids=[repr(case[0])[:60] for case in GUARDS])
def test_conditions_that_empty_a_kernel(text: str, first: int, second: int) -> None:
    assert guards.count(text, ("12.0",)) == first
    assert guards.count(text, ("12.1",)) == second


def test_every_guard_of_a_header_is_counted() -> None:
    lines = [f"{100 + number}\t{GUARD}" for number in range(13)] + [f"400\t{PLAIN}"]
    assert guards.count("\n".join(lines)) == 13
    assert guards.count("\n".join(lines), ("9.0",)) == 13
    assert guards.count("\n".join(lines).replace(" && (__CUDA_ARCH__ < 1200)", "")) == 0


@pytest.mark.parametrize("case", VERDICTS, ids=[case["name"] for case in VERDICTS])
def test_the_verdict(case: dict[str, Any]) -> None:
    files: dict[str, dict[str, Any]] = {}
    if case["gate"] is not None:
        wanted = "None" if case["gate"] == "none" else str(case["gate"])
        text = module(f"ctx.get_nvcc_flags_list(supported_major_versions={wanted})")
        files["jit/comm.py"] = {"text": text, "record": case.get("record", "match")}
    if case["guards"] is not None:
        lines = [GUARD] * case["guards"] + [PLAIN] * 3
        files[guards.HEADER] = {
            "text": "".join(f"{n}\t{line}\n" for n, line in enumerate(lines, 400)),
            "record": "match",
        }
    edited = ("srt/layers/layernorm.py",) if case.get("edited") else ()
    callers = [Framework(name="sglang", version=case["sglang"], modified=edited)] if "sglang" in case else []
    found = fusion(files, case.get("version"), case["gpus"], callers)
    assert found.verdict == case["verdict"]
    assert found.effective == case.get("effective", "unknown")
    assert found.guards == case["guards"]
    assert found.frameworks == {caller.name: caller.version for caller in callers}


GATED = "ctx.get_nvcc_flags_list(supported_major_versions=[9, 10, 12])"


@pytest.mark.parametrize(
    "line",
    [
        "#define ALL_ARCHS (__CUDA_ARCH__ < 1200)",
        "# define X \\\n12\t  __CUDA_ARCH__",
        "#if MACRO(1, 2) && __CUDA_ARCH__ >= 900",
        "#if __CUDA_ARCH__ >= 1200",
        "#if __CUDA_ARCH__ == 1200",
        "#if __CUDA_ARCH__ == 1210",
        "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)",
        "#ifdef __CUDA_ARCH_FEAT_SM120_ALL",
        "#if __CUDA_ARCH_SPECIFIC__ == 1200",
        "  if constexpr (__CUDA_ARCH__ >= 900) {",
        "constexpr int kArch = __CUDA_ARCH__;",
    ],
)
@pytest.mark.parametrize("gpu", ["12.0", "9.0"])
def test_an_edited_header_that_is_not_understood(line: str, gpu: str) -> None:
    header = {"text": f"11\t{line}\n40\t{PLAIN}\n", "record": "mismatch"}
    files = {"jit/comm.py": {"text": module(GATED), "record": "match"}, guards.HEADER: header}
    found = fusion(files, "0.6.18", [gpu])
    assert (found.verdict, found.guards) == ("unreadable", None)
    assert (found.gate_error or "").startswith("trtllm_allreduce.cuh was edited: ")
    assert fusion({**files, guards.HEADER: {**header, "record": "match"}}, "0.6.18", [gpu]).guards is not None


def test_an_edited_header_that_is_understood_is_counted() -> None:
    lines = "".join(f"{number}\t{PLAIN}\n" for number in range(40, 55))
    header = {"text": f"{lines}60\t// #if __CUDA_ARCH__ >= 1200\n", "record": "mismatch"}
    files = {"jit/comm.py": {"text": module(GATED), "record": "mismatch"}, guards.HEADER: header}
    assert (fusion(files, "0.6.2", ["12.0"]).verdict, fusion(files, "0.6.2", ["12.0"]).guards) == ("patched", 0)


def test_a_header_that_cannot_be_read() -> None:
    files: dict[str, dict[str, Any]] = {"jit/comm.py": {"text": module(GATED), "record": "match"}}
    files[guards.HEADER] = {"text": None, "error": "EACCES", "record": "unreadable"}
    found = fusion(files, "0.6.18", ["12.0"])
    assert (found.verdict, found.guards) == ("unreadable", None)
    assert found.gate_error == "trtllm_allreduce.cuh: EACCES"
    files[guards.HEADER] = {"text": None, "error": "ENOENT", "record": "no-record"}
    assert fusion(files, "0.6.18", ["12.0"]).verdict == "unknown"


def test_an_edited_compilation_context_decides_what_is_admitted() -> None:
    files: dict[str, dict[str, Any]] = {"jit/comm.py": {"text": module(GATED), "record": "match"}}
    files["compilation_context.py"] = {"text": "", "record": "mismatch"}
    found = fusion(files, "0.6.18", ["9.0"])
    assert found.verdict == "unreadable"
    assert found.gate_error == "compilation_context.py, which applies the gate, was edited"
    files["compilation_context.py"]["record"] = "match"
    assert fusion(files, "0.6.18", ["9.0"]).verdict == "supported"


BODY = "def gen_trtllm_comm_module():\n    "


@pytest.mark.parametrize("record", ["match", "mismatch"])
@pytest.mark.parametrize(
    "body",
    [
        "return helper()",
        "return gen_jit_spec('c', ['-O3'])",
        "get = ctx.get_nvcc_flags_list\n    return spec(get(supported_major_versions=[9, 10]))",
        "return spec(getattr(ctx, 'get_nvcc_flags_list')(supported_major_versions=[9]))",
        "return spec(partial(ctx.get_nvcc_flags_list, supported_major_versions=[9])())",
        "return spec(ctx.get_nvcc_flags_list())",
        f"if False:\n        flags = {GATED}\n    return spec(['-O3'])",
        f"if old:\n        return spec(['-O3'])\n    return spec({GATED})",
        f"return spec(['-O3'])\n    return spec({GATED})",
        f"raise RuntimeError\n    return spec({GATED})",
        f"flags = {GATED}\n    raise RuntimeError\n    return spec(flags)",
        f"flags = {GATED}\n    flags = ['-O3']\n    return spec(flags)",
        f"flags = {GATED}\n    return spec(['-O3'])",
        f"flags = drop({GATED})\n    return spec(flags)",
        f"flags = {GATED}\n    return spec(drop(flags))",
        f"flags = {GATED}\n    return spec(flags + ['-gencode=arch=compute_90a,code=sm_90a'])",
        f"return spec({GATED} if old else ['-O3'])",
        f"return spec(lambda: {GATED})",
        f"yield {GATED}",
    ],
)
def test_a_gate_that_is_not_plainly_found(body: str, record: str) -> None:
    files = {"jit/comm.py": {"text": f"{BODY}{body}\n", "record": record}}
    reading = gates.read(files, "0.6.18")
    assert (reading.state, reading.gate, bool(reading.error)) == ("unreadable", None, True)
    assert fusion(files, "0.6.18", ["9.0"]).verdict == "unreadable"


@pytest.mark.parametrize(
    "more",
    [
        "from other import *",
        "globals()['gen_trtllm_comm_module'] = other",
        "exec(other)",
        "import sys\nsetattr(sys.modules[__name__], 'gen_trtllm_comm_module', other)",
        "del gen_trtllm_comm_module",
        "from other import gen_trtllm_comm_module",
        "import other as gen_trtllm_comm_module",
        "gen_trtllm_comm_module, x = other, 1",
        "for gen_trtllm_comm_module in others:\n    pass",
        "class gen_trtllm_comm_module:\n    pass",
        "async def gen_trtllm_comm_module():\n    pass",
        "def gen_trtllm_comm_module():\n    return other()",
        "if x:\n    def gen_trtllm_comm_module():\n        return other()",
        "gen_trtllm_comm_module = other",
        "ctx = Other()",
        "ctx.get_nvcc_flags_list = other",
        "ctx.TARGET_CUDA_ARCHS = {(9, '0a')}",
        "ctx.TARGET_CUDA_ARCHS |= {(9, '0a')}",
        "ctx.TARGET_CUDA_ARCHS.add((9, '0a'))",
        "def other():\n    ctx.TARGET_CUDA_ARCHS.add((9, '0a'))",
        "def other():\n    targets = ctx.TARGET_CUDA_ARCHS\n    targets.update(others)",
        "def other():\n    def inner():\n        ctx.TARGET_CUDA_ARCHS.clear()",
        "class Other:\n    targets = ctx.TARGET_CUDA_ARCHS",
        "targets = getattr(ctx, 'TARGET_CUDA_ARCHS')",
    ],
)
def test_a_function_bound_anew_in_an_edited_file(more: str) -> None:
    for text in (f"{module(GATED)}{more}\n", f"{more}\n{module(GATED)}"):
        found = fusion({"jit/comm.py": {"text": text, "record": "mismatch"}}, "0.6.18", ["9.0"])
        assert (found.verdict, bool(found.gate_error)) == ("unreadable", True)
    decorated = {"jit/comm.py": {"text": f"@other\n{module(GATED)}", "record": "mismatch"}}
    assert gates.read(decorated, "0.6.18").state == "unreadable"


@pytest.mark.parametrize(
    "before", ["ctx.TARGET_CUDA_ARCHS.add(x)", "t = ctx.TARGET_CUDA_ARCHS", "ctx.TARGET_CUDA_ARCHS"]
)
def test_targets_that_are_touched_in_the_function(before: str) -> None:
    text = f"{BODY}{before}\n    flags = {GATED}\n    return spec(flags)\n"
    assert gates.read({"jit/comm.py": {"text": text, "record": "mismatch"}}, "0.6.18").state == "unreadable"


def test_targets_that_another_function_reads() -> None:
    text = f"{module(GATED)}def gen_other():\n    return spec({{(8, '9')}} & ctx.TARGET_CUDA_ARCHS)\n"
    assert gates.read({"jit/comm.py": {"text": text, "record": "no-record"}}, "0.7.4").state == "read"


@pytest.mark.parametrize("record", ["missing", "no-record"])
@pytest.mark.parametrize("name", ["utils.py", "data/cutlass", "data/include/flashinfer/utils.cuh"])
def test_a_file_that_is_needed_is_gone(name: str, record: str) -> None:
    files = around("match") | {name: {"record": record, "error": "ENOENT", "needed_by": "__init__.py"}}
    assert deciders.lost(files, "0.6.18") == (name,)
    found = fusion(files, "0.6.18", ["12.0"])
    assert (found.verdict, found.error_file) == ("unknown", name)
    closed = around("match") | {name: {"record": "unreadable", "error": "EACCES", "needed_by": "__init__.py"}}
    assert deciders.lost(closed, "0.6.18") == ()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.2.6", (False, None)),
        ("0.2.7.post1", (True, None)),
        ("0.3.1", (True, (9, 10))),
        ("0.6.16.post4", (True, (9, 10))),
        ("0.6.17.dev20260701", (False, None)),
        ("0.6.17rc1", (True, (9, 10, 12))),
        ("0.7.4", (True, (9, 10, 12))),
        ("0.6.2+local", (True, (9, 10))),
        ("0.0.0+unknown", (False, None)),
        ("", (False, None)),
        (None, (False, None)),
    ],
)
def test_the_gate_of_an_unedited_release(version: str | None, expected: tuple[bool, Any]) -> None:
    assert releases.stock_gate(version) == expected


def entry(text: str | None, record: str = "match", **more: Any) -> dict[str, Any]:
    return {"text": text, "sha256": "3f" * 32, "record": record, **more}


HEADER_LINES = "".join(f"{number}\t{PLAIN}\n" for number in range(1, 16))
CONTEXT = "compilation_context.py"


@cache
def context_text() -> str:
    """Return the released text of the module that applies the gate."""
    with ZipFile(wheels.fetched("flashinfer-python", "0.6.18")) as wheel:
        return wheel.read(f"flashinfer/{CONTEXT}").decode()


def around(record: str, **files: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the deciding files of a 0.6.18 to which nothing was done, but for what is given (``/`` as ``__``)."""
    own = {
        "jit/comm.py": entry(module(GATED), record),
        CONTEXT: entry(context_text(), record),
        **{name: entry(HEADER_LINES, record) for name in deciders.HEADERS},
        deciders.FUSION_SOURCE: entry(None, record),
    }
    return own | files


@pytest.mark.parametrize("record", ["match", "no-record", "unlisted"])
def test_a_clean_package_is_supported_with_a_record_and_without(record: str) -> None:
    assert fusion(around(record), "0.6.18", ["12.0"]).verdict == "supported"


@pytest.mark.parametrize("record", ["mismatch", "no-record", "unlisted"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (guards.HEADER, "1\t#define CC __CUDA_ARCH__\n" + HEADER_LINES),
        (guards.HEADER, "1\t#if defined(SM_OK)\n"),
        (guards.HEADER, HEADER_LINES.replace("(__CUDA_ARCH__ >= 900)", "(__CUDA_ARCH__ >= 900) && SM_OK", 1)),
        ("jit/comm.py", module(GATED) + "from ._corp import *\n"),
        ("jit/comm.py", module(GATED) + "jit_env.FLASHINFER_CSRC_DIR = x\n"),
        ("jit/comm.py", module(GATED).replace("'trtllm_comm'", "'trtllm_comm', '/opt/x/trtllm_allreduce.cu'")),
        (CONTEXT, ("    def get_nvcc_flags_list(", "    def get_nvcc_flags_list(self): pass\n\n    def x(")),
        (CONTEXT, ("", "CompilationContext.get_nvcc_flags_list = x\n")),
        (CONTEXT, ("[0] in supp", "[0] + 3 in supp")),
        (CONTEXT, ("compute_{major}{minor}", "compute_120f")),
    ],
)
def test_an_edit_reads_the_same_without_a_record(name: str, text: str | tuple[str, str], record: str) -> None:
    if isinstance(text, tuple):
        old, new = text
        assert old in context_text()
        text = context_text().replace(old, new, 1) if old else context_text() + new
    files = around("match" if record == "mismatch" else record) | {name: entry(text, record)}
    found = fusion(files, "0.6.18", ["12.0"])
    assert (found.verdict, bool(found.gate_error)) == ("unreadable", True)


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({"jit/core.py": entry(None, "mismatch")}, "unreadable"),
        ({"jit/__init__.py": entry(None, "mismatch")}, "unreadable"),
        ({"jit/env/__init__.py": entry(None, "unlisted")}, "unreadable"),
        ({"jit/core.cpython-311-x86_64-linux-gnu.so": entry(None, "unlisted")}, "unreadable"),
        ({"jit/comm/__init__.py": entry(None, "unlisted")}, "unreadable"),
        ({"jit/gemm/__init__.py": entry(None, "unlisted")}, "supported"),
        ({"jit/core.py": {"record": "missing", "error": "ENOENT"}}, "unknown"),
        ({"comm/__init__.py": {"record": "missing", "error": "ENOENT"}}, "unknown"),
        ({deciders.HEADERS[1]: {"record": "missing", "error": "ENOENT"}}, "unknown"),
    ],
)
def test_the_modules_around_the_gate_decide_too(more: dict[str, Any], verdict: str) -> None:
    found = fusion(around("match") | more, "0.6.18", ["12.0"])
    assert (found.verdict, bool(found.gate_error)) == (verdict, verdict != "supported")


def test_a_header_that_is_gone_from_a_checkout() -> None:
    files = around("no-record")
    del files[deciders.HEADERS[1]]
    assert fusion(files, "0.6.18", ["9.0"]).verdict == "unknown"
    assert deciders.lost(files, "0.6.18") == (deciders.HEADERS[1],)


def test_an_unsafe_patch_is_not_hidden_by_another_edit() -> None:
    header = entry("".join(f"{number}\t{GUARD}\n" for number in range(15)), "match")
    files = around("match") | {guards.HEADER: header, "jit/core.py": entry(None, "mismatch")}
    assert fusion(files, "0.6.2", ["12.0"]).verdict == "unsafe-patch"


@pytest.mark.parametrize(
    ("archs", "verdict"),
    [("9.0a 12.0", "unreadable"), ("12.0f", "refused"), (None, "refused"), ("10.0", "unreadable")],
)
def test_a_list_by_which_the_gate_passes_is_no_refusal(archs: str | None, verdict: str) -> None:
    files = around("match") | {"jit/comm.py": entry(module(GATED.replace(", 12", "")))}
    assert fusion(files, "0.6.2", ["12.0"], arch_list=archs).verdict == verdict
