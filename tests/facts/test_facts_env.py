"""The constants of ``jit/env.py``, for every structure that the releases had, and for edited and hostile ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcheck.facts.expressions import World
from fleetcheck.facts.flashinfer import Around, flashinfer
from fleetcheck.facts.flashinfer_env import CSRC, constants
from fleetcheck.facts.source import literals, parse
from fleetcheck.facts.toolchain import arch_folder, toolchain, toolkits

ROOT, HOME = "/venv/lib/python3.12/site-packages/flashinfer", "/home/serve"
FILE = f"{ROOT}/jit/env.py"
CASES = yaml.safe_load((Path(__file__).parent / "data" / "env.yaml").read_text())
KIT = {"path": "/usr/local/cuda", "real": "/usr/local/cuda-12.8", "nvcc": "/usr/local/cuda/bin/nvcc"}


def placed(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(placed(item) for item in value)
    head, slash, tail = value.partition("/")
    return {"R": ROOT, "H": HOME}.get(head, head) + slash + tail


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_constants(case: dict[str, Any]) -> None:
    version = case.get("version", "0.6.2")
    given = case.get("env", {})
    env = None if given is None else ({"HOME": HOME} if given or "env" not in case else {}) | given
    arch = arch_folder(version, case.get("capabilities", ["12.0"]), env, None)
    packages = case.get("packages", {"flashinfer_cubin": False, "flashinfer_jit_cache": False})
    found = constants(case["text"], FILE, FILE, World(env, arch, version, packages))
    assert found.error == case.get("error")
    wanted = {name: placed(value) for name, value in case.get("expect", {}).items()}
    assert {name: found.values.get(name) for name in wanted} == wanted
    assert not set(case.get("absent", ())) & set(found.values)


@pytest.mark.parametrize(
    "text",
    [
        "X=" + "-" * 60_000 + "1",
        "X=" + "(" * 60_000,
        "X=a" + "/b" * 30_000,
        "X=a" + ".b" * 30_000,
        "X=a" + "()" * 30_000,
        "X='a'" + "+'a'" * 15_000,
        "X=" + "9" * 60_000,
        "X=9**9**9**9",
        "X='a'*999999999",
        "X=1\0",
        "X='\\ud800'",
        "return 5",
        "def f():\n return f()\nFLASHINFER_CSRC_DIR=f()",
        "def f():\n return f() or f()\nFLASHINFER_CSRC_DIR=f()",
        "a='aaaa'\n" + "a=a+a\n" * 60 + "FLASHINFER_CSRC_DIR=a",
        "a=['a']\n" + "a=a+a\n" * 60 + "FLASHINFER_CSRC_DIR=a",
        "a=[1]\n" + "a=[a,a]\n" * 60 + "b=[1]\n" + "b=[b,b]\n" * 60 + "c = a == b\nFLASHINFER_CSRC_DIR=a",
        "import pathlib\nX=pathlib.Path('" + "a/" * 2000 + "')\n" + "Y=X.parents\n" * 1000,
    ],
)
def test_no_text_harms(text: str) -> None:
    found = constants(text, FILE, FILE, World({"HOME": HOME}))
    assert CSRC not in found.values
    assert found.error


@pytest.mark.parametrize(
    "more",
    [
        "from other import *",
        "exec(other)",
        "eval(other)",
        "globals()['FLASHINFER_CSRC_DIR'] = other",
        "setattr(other, 'FLASHINFER_CSRC_DIR', other)",
        "vars()['FLASHINFER_CSRC_DIR'] = other",
        "def f():\n    global FLASHINFER_CSRC_DIR\n    FLASHINFER_CSRC_DIR = 1\nf()",
        "print(FLASHINFER_CSRC_DIR := '/x')",
        "with x as FLASHINFER_CSRC_DIR:\n    pass",
        "class FLASHINFER_CSRC_DIR:\n    pass",
        "match other:\n    case FLASHINFER_CSRC_DIR:\n        pass",
        "import hook\nhook.apply(__name__)",
    ],
)
def test_an_edited_file_that_may_set_the_path_unseen(more: str) -> None:
    text = f"import pathlib\nFLASHINFER_CSRC_DIR = pathlib.Path(__file__).parents[1] / 'data'\n{more}\n"
    entry = {"name": "jit/env.py", "path": FILE, "text": text, "record": "mismatch"}
    found = flashinfer({"root": ROOT, "files": [entry]}, Around({}, (), None, {}))
    assert (found.csrc_dir, found.csrc_state, found.env_record) == (None, "unknown", "mismatch")
    assert (found.env_error or "").endswith(f"may set {CSRC}")
    for record in ("no-record", "unlisted"):
        found = flashinfer({"root": ROOT, "files": [{**entry, "record": record}]}, Around({}, (), None, {}))
        assert (found.csrc_dir, bool(found.env_error)) == (None, True)
    found = flashinfer({"root": ROOT, "files": [{**entry, "record": "match"}]}, Around({}, (), None, {}))
    assert (found.csrc_dir, found.env_error) == (f"{ROOT}/data", None)


def test_the_else_of_a_try_is_run() -> None:
    text = "try:\n    pass\nexcept OSError:\n    pass\nelse:\n    FLASHINFER_CSRC_DIR = '/b'\n"
    assert constants(text, FILE, FILE, World({})).values[CSRC] == "/b"


@pytest.mark.parametrize(
    ("module", "told"), [("json", "/x"), ("nosuch", None), ("._own", None), ("flashinfer_cubin", None)]
)
def test_what_stands_behind_an_import_that_may_fail_is_unknown(module: str, told: str | None) -> None:
    line = f"from {module} import y" if module.startswith(".") else f"import {module}"
    text = f"{CSRC} = '/a'\ntry:\n    {line}\n    {CSRC} = '/x'\nexcept ImportError:\n    pass\n"
    assert constants(text, FILE, FILE, World({})).values.get(CSRC) == told
    installed = World({}, packages={"flashinfer_cubin": True})
    assert constants(text, FILE, FILE, installed).values.get(CSRC) == ("/x" if "cubin" in module else told)


def test_a_surrogate_in_a_literal_can_be_written() -> None:
    found = constants("FLASHINFER_CSRC_DIR = '/a\\ud800'", FILE, FILE, World({}))
    assert str(found.values[CSRC]).encode()


def test_links_are_followed_where_the_text_says_so() -> None:
    text = "import pathlib\nFLASHINFER_CSRC_DIR = pathlib.Path(__file__).{}parents[1] / 'data' / 'csrc'\n"
    cache = "/root/.cache/uv/archive/flashinfer"
    found = {
        way: constants(text.format(way), FILE, f"{cache}/jit/env.py", World({})).values[CSRC]
        for way in ("resolve().", "")
    }
    assert found == {"resolve().": f"{cache}/data/csrc", "": f"{ROOT}/data/csrc"}


def test_equal_texts_are_parsed_once() -> None:
    assert parse("ONCE = 1\n") is parse("ONCE = " + "1\n")


def test_literals_of_a_version_file() -> None:
    text = "from typing import Optional\n__version__ = '2.9.0+cu128'\ncuda: Optional[str] = '12.8'\nhip = None\n"
    assert literals(text) == {"__version__": "2.9.0+cu128", "cuda": "12.8", "hip": None}


@pytest.mark.parametrize(
    ("version", "capabilities", "env", "nvcc", "expected"),
    [
        ("0.2.5", ["12.0"], {}, None, "120"),
        ("0.3.1", ["8.0", "7.5"], {}, None, "75_80"),
        ("0.3.1", ["12.0"], {"TORCH_CUDA_ARCH_LIST": "9.0a 12.0+PTX"}, None, "120_90"),
        ("0.3.1", [], {"TORCH_CUDA_ARCH_LIST": "8.0;8.9", "CUDA_VISIBLE_DEVICES": ""}, None, "80_89"),
        ("0.3.1", ["12.0"], {"TORCH_CUDA_ARCH_LIST": ""}, None, "120"),
        ("0.3.1", ["12.0"], {"TORCH_CUDA_ARCH_LIST": "Hopper"}, None, None),
        ("0.4.1", ["12.0"], {}, None, "120a"),
        ("0.6.2", ["9.0"], {}, None, "90a"),
        ("0.6.2", ["8.9"], {}, None, "89"),
        ("0.6.2", ["12.0", "9.0"], {}, None, "90a_120a"),
        ("0.6.6", ["12.0"], {"FLASHINFER_CUDA_ARCH_LIST": "12.0"}, None, "120"),
        ("0.6.7", ["12.0"], {}, "12.9.86", "120f"),
        ("0.6.18", ["12.0"], {}, "13.0", "120f"),
        ("0.6.18", ["12.0"], {}, "12.8", None),
        ("0.6.18", ["12.0"], {}, None, None),
        ("0.7.1", ["12.0"], {}, "12.8.93", "120a"),
        ("0.6.18", ["12.0"], {"FLASHINFER_CUDA_ARCH_LIST": "9.0a 12.0f"}, None, "90a_120f"),
        ("0.6.18", ["12.0"], {"FLASHINFER_CUDA_ARCH_LIST": "12.0;9.0"}, "13.0", None),
        ("0.6.2", ["12.0"], {"CUDA_VISIBLE_DEVICES": "0"}, None, None),
        ("0.6.2", [], {}, None, None),
        ("0.6.2", ["12.0"], None, None, None),
        ("no version", ["12.0"], {}, None, None),
        (None, ["12.0"], {}, None, None),
    ],
)
def test_the_arch_folder(
    version: str | None,
    capabilities: list[str],
    env: dict[str, str] | None,
    nvcc: str | None,
    expected: str | None,
) -> None:
    assert arch_folder(version, capabilities, env, nvcc) == expected


@pytest.mark.parametrize(
    ("env", "which", "found", "home", "nvcc"),
    [
        ({}, None, [KIT], "/usr/local/cuda", "12.8"),
        ({"CUDA_HOME": "/usr/local/cuda-12.8"}, None, [KIT], "/usr/local/cuda-12.8", "12.8"),
        ({"CUDA_PATH": "/opt/cuda"}, None, [KIT], "/opt/cuda", None),
        ({}, "/usr/bin/nvcc", [KIT], "/usr", None),
        ({}, None, [], None, None),
    ],
)
def test_the_toolkit_that_the_jit_would_find(
    env: dict[str, str], which: str | None, found: list[Any], home: str | None, nvcc: str | None
) -> None:
    chain = toolchain({"found": found, "which_nvcc": which}, env)
    assert chain is not None
    assert (chain.cuda_home, chain.nvcc) == (home, nvcc)


def test_a_toolkit_that_was_not_looked_for_is_not_absent() -> None:
    assert toolchain(None, {}) is None
    assert toolchain({"found": [KIT]}, None) is None


@pytest.mark.parametrize(
    ("json", "nvcc", "expected"),
    [
        ('{"cuda": {"version": "13.0.0"}, "cuda_nvcc": {"version": "13.0.48"}}', "/c/bin/nvcc", "13.0.48"),
        ('{"cuda": {"version": "13.0.0"}}', "/c/bin/nvcc", "13.0.0"),
        ('{"cuda": {"version": "13.0.0"}}', None, None),
        ("{", "/c/bin/nvcc", "12.4"),
        ("[" * 5000, "/c/bin/nvcc", "12.4"),
        ('{"cuda": "13"}', "/c/bin/nvcc", "12.4"),
    ],
)
def test_toolkits(json: str, nvcc: str | None, expected: str | None) -> None:
    item = {"path": "/usr/local/cuda-12.4", "nvcc": nvcc, "version_json": {"path": "/x", "text": json}}
    (kit,) = toolkits({"found": [item]})
    assert kit.nvcc == expected
