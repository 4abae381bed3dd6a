"""What the agent cuts out of frameworks and of FlashInfer's modules, and what it finds beside FlashInfer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from agent_host import FILES, Host, look

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program.cuts import argument, gate_rows
from fleetcheck.agent.program.frameworks import archs_of, cubins, cut_gates, prebuilt, shadows
from fleetcheck.agent.program.values import Root

COMMUNICATOR = """\
import os
_is_sm90_supported = (
    _is_cuda and is_sm90_supported()
)
FUSE = 2048


def apply_flashinfer_allreduce_fusion(batch_size):
    return _is_sm90_supported


def other():
    return "nothing of it"


class LayerCommunicator:
    @staticmethod
    def _gather_hidden_states_and_residual(
        hidden_states,
    ):
        if is_sm100_supported():
            layernorm.forward_with_allreduce_fusion(hidden_states)

    def prepare(self):
        return self.allreduce_fusion
"""
CUT = """\
_is_sm90_supported = (
    _is_cuda and is_sm90_supported()
)
def apply_flashinfer_allreduce_fusion(batch_size):
    return _is_sm90_supported


def _gather_hidden_states_and_residual(
    hidden_states,
):
    if is_sm100_supported():
        layernorm.forward_with_allreduce_fusion(hidden_states)

"""


def test_the_blocks_that_decide_are_cut_whole_and_without_their_class() -> None:
    assert cut_gates(COMMUNICATOR) == CUT
    assert cut_gates("def prepare():\n    return 1\n") == ""


def test_broken_syntax_gives_what_is_whole() -> None:
    text = COMMUNICATOR.replace("    return _is_sm90_supported\n", "    return (_is_sm90_supported\n")
    assert cut_gates(text) == CUT.replace("    return _is_sm90_supported\n", "    return (_is_sm90_supported\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[9, 10]\n    )", "[9, 10]"),
        ("[9,\n 10], other=1)", "[9, 10]"),
        ("list(MAJORS))", "list(MAJORS)"),
        ("(10,)  # a comment, with a comma\n\nX = 1", "(10,)"),
        ("None)", "None"),
        ("[" * 300, "[" * 200),
        ("", ""),
    ],
)
def test_the_first_argument_of_a_text(text: str, value: str) -> None:
    assert argument(text) == value


def test_rows_of_supported_majors() -> None:
    text = """\
_MAJORS: list = [8, 9]


def gen_a():
    x(supported_major_versions=[9, 10])
    y(supported_major_versions=None)


def flags():
    return z(supported_major_versions=_MAJORS)


def gen_b():
    return flags()


def gen_c():
    return 1
"""
    assert gate_rows("jit/x.py", text) == [
        {"file": "jit/x.py", "name": "_MAJORS", "values": ["[8, 9]"]},
        {"file": "jit/x.py", "function": "gen_a", "values": ["[9, 10]", "None"], "via": []},
        {"file": "jit/x.py", "function": "flags", "values": ["_MAJORS"], "via": []},
        {"file": "jit/x.py", "function": "gen_b", "values": [], "via": ["flags"]},
    ]
    assert gate_rows("jit/x.py", "def gen_a():\n    return 1\n") == []


def test_cubins_by_arch(tmp_path: Path) -> None:
    names = (
        "fmhaSm100aKernel.cubin",
        "x_sm100f.cubin",
        "gemm_Sm120.cubin",
        "small.cubin",
        "smelly_sm90a.cubin",
        "notes.txt",
    )
    for number, name in enumerate(names):
        place = tmp_path / f"cubins/{number}" / name
        place.parent.mkdir(parents=True)
        place.write_text("")
    assert cubins(str(tmp_path)) == {"archs": {"100": 2, "120": 1, "90": 1}, "count": 5, "error": None}
    assert cubins(str(tmp_path / "absent")) == {"archs": None, "count": None, "error": "ENOENT"}
    assert archs_of(iter(["sm", "sm_", "sm1", "sm1234x"])) == {}


def test_prebuilt_modules(tmp_path: Path) -> None:
    for name in ("norm/norm.so", "half/other.so"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    found = prebuilt(Root(""), str(tmp_path))
    assert found == {"path": str(tmp_path), "modules": ["norm"], "error": None}
    assert prebuilt(Root(""), str(tmp_path / "absent")) is None
    file = prebuilt(Root(""), str(tmp_path / "norm/norm.so"))
    assert file is not None
    assert file["error"] == "ENOTDIR"


def test_what_comes_first_for_a_process_that_is_not_isolated(tmp_path: Path) -> None:
    def package(place: str) -> None:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "__init__.py").write_text("")

    for place in ("own/flashinfer", "other/flashinfer", "home/flashinfer", "user/flashinfer"):
        package(place)
    (tmp_path / "bare/flashinfer/csrc").mkdir(parents=True)
    (tmp_path / "module").mkdir()
    (tmp_path / "module/flashinfer.py").write_text("")
    path = ":".join(["", "relative", *(f"/{name}" for name in ("own", "bare", "other", "module", "absent"))])
    environ = {"PYTHONPATH": path, "HOME": "/home"}
    found = shadows(Root(str(tmp_path)), environ, "/user", "flashinfer", str(tmp_path / "own/flashinfer"))
    assert found == [
        {"by": "PYTHONPATH", "path": "/other/flashinfer"},
        {"by": "PYTHONPATH", "path": "/module/flashinfer.py"},
        {"by": "cwd", "path": "/home/flashinfer"},
        {"by": "user-site", "path": "/user/flashinfer"},
    ]


def test_the_agent_sends_them(tmp_path: Path) -> None:
    host = Host(tmp_path)
    gated = "def gen_x():\n    return c(supported_major_versions=[12])\n"
    files = {
        **FILES,
        "flashinfer/jit/x.py": gated,
        "flashinfer/gemm.py": gated.replace("gen_x", "gen_gemm"),
        "sglang/__init__.py": "raise SystemExit('imported')\n",
        "sglang/srt/layers/communicator.py": COMMUNICATOR,
        "sglang/srt/server_args.py": "x = 1\n",
    }
    site = host.venv("/opt/v", files=files)
    info = site / "sglang-0.5.20.dist-info"
    info.mkdir()
    requires = "".join(
        f"Requires-Dist: {name}\n" for name in ("numpy", "flashinfer_python[cu13]==0.6.18", "torch==2.9")
    )
    head = f"Metadata-Version: 2.4\nName: sglang\nVersion: 0.5.20\nLicense: {'x' * 9000}\n"
    (info / "METADATA").write_text(f"{head}{requires}\nRequires-Dist: body\n")
    home = host.write("/home/me/flashinfer/__init__.py", "raise SystemExit('imported')\n").parent.parent
    answer = look(
        Request(venvs=("/opt/v",), sysroot=str(tmp_path)),
        env={**os.environ, "HOME": "/home/me", "PYTHONPATH": str(home)},
    )
    packages: dict[str, Any] = answer.venv()["packages"]
    rows = packages["flashinfer"]["gates"]
    assert {row["function"]: row["values"] for row in rows} == {
        "gen_trtllm_comm_module": ["[9, 10]"],
        "gen_x": ["[12]"],
        "gen_gemm": ["[12]"],
    }
    assert [entry["by"] for entry in packages["flashinfer"]["shadows"]] == ["PYTHONPATH", "cwd"]
    sglang = packages["sglang"]
    assert {entry["name"]: entry["text"] for entry in sglang["files"]} == {
        "srt/layers/communicator.py": CUT,
        "srt/server_args.py": "",
    }
    assert sglang["dists"][0]["requires"] == ["flashinfer_python[cu13]==0.6.18", "torch==2.9"]
