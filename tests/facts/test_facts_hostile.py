"""Whatever a host sends, facts come out: never an exception, always a record that validates and is JSON."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import HostFacts

SITE = "/v/lib/python3.12/site-packages"
TEXTS = st.sampled_from(
    [
        "", "x", "0", "-1", "1.5", "\0", "\ud800", "\x1b[31m", "../../etc", "a" * 5000, "GPU-", "12.0", "9.0",
        "[N/A]", "import x\n", "def gen_trtllm_comm_module():\n return f([9])", "FLASHINFER_CSRC_DIR = '/a'",
        "((((", "No devices were found", "{}", "[", "ENOENT", "EACCES", "missing", "mismatch", "match", "ran",
        "Unable to determine the device handle for GPU1: 0000:05:00.0: x", "file", "namespace", "0000:05:00.0",
        "0x10de", "0x030200", "1\t#if __CUDA_ARCH__ < 1200 \\",
        "0, GPU-00000000-0000-4000-8000-000000000001, 05:00.0, x, 12.0, 1, 580.1.2",
    ]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), TEXTS, st.text(max_size=20)
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
CSRC_TEXT = "import pathlib\nFLASHINFER_CSRC_DIR = pathlib.Path(__file__).resolve().parents[1] / 'data'\n"
WHOLE: dict[str, Any] = {
    "agent": {"version": "1", "python": "3.11.2", "user": "root", "time": 1.5},
    "system": {"hostname": "gpu01", "kernel": "6.1", "boot_time": 1, "machine_id": "00", "env": {"HOME": "/root"}},
    "pci": {
        "functions": [{"bus_id": "0000:05:00.0", "vendor": "0x10de", "device": "0x2bb5", "class": "0x030200"}],
        "error": None,
    },
    "driver": {
        "proc_version": {"path": "/p", "text": "NVRM version: NVIDIA UNIX Open Kernel Module 580.95.05 R\n"}
    },
    "toolkits": {
        "found": [
            {"path": "/usr/local/cuda", "nvcc": "/n", "version_json": {"text": '{"cuda": {"version": "13.0"}}'}}
        ],
        "which_nvcc": None,
    },
    "venvs": {"items": [{"index": 0, "path": "/v", "item": "/v", "origin": "listed", "state": "present"}]},
    "venv/0": {
        "path": "/v",
        "state": "ran",
        "error": None,
        "activation": {
            "status": "ok",
            "env": {"HOME": "/root"},
            "python3": {"path": "/v/bin/python3", "same": True},
        },
        "interpreter": {"version": "3.12.1"},
        "packages": {
            "flashinfer": {
                "spec": "file",
                "root": f"{SITE}/flashinfer",
                "root_real": f"{SITE}/flashinfer",
                "dists": [
                    {
                        "name": "flashinfer-python",
                        "version": "0.6.2",
                        "dir": f"{SITE}/f.dist-info",
                        "record": "present",
                    }
                ],
                "files": [
                    {
                        "name": "jit/env.py",
                        "record": "match",
                        "mtime": 1.0,
                        "text": CSRC_TEXT,
                    },
                    {
                        "name": "jit/comm.py",
                        "record": "match",
                        "text": "def gen_trtllm_comm_module():\n    return f([9])\n",
                    },
                ],
                "hidden": {"path": "/v/lib/flashinfer", "by": "activation"},
                "start_files": [{"file": "/v/a.pth", "line": 1, "word": "flashinfer"}],
                "csrc": [
                    {"path": f"{SITE}/flashinfer/data", "exists": True, "files": 3, "listed": 3, "missing": []}
                ],
            },
            "torch": {"spec": "file", "files": [{"name": "version.py", "text": "__version__ = '2'\n"}]},
            "sglang": {"spec": "file", "dists": [{"name": "sglang", "version": "0.5.7"}]},
        },
    },
    "processes": {
        "items": [
            {
                "pid": 7,
                "ppid": 1,
                "uid": 0,
                "user": "root",
                "home": "/root",
                "started": 5.0,
                "server": "sglang",
                "title": "sglang::scheduler",
                "flags": {"--tp": "8"},
                "gpu": True,
                "maps_error": None,
                "namespace": "other",
                "namespace_id": "mnt:[1]",
                "other_root": False,
                "container": None,
                "launcher": {"pid": 6, "flags": {"--tp": "8"}, "server": "sglang", "env": {"HOME": "/root"}},
                "exe": "/usr/bin/python3",
                "cwd": "/",
                "argv_prefix": "/v",
                "env": {"PATH": "/bin"},
                "view": 0,
                "mapped": [{"path": SITE, "files": 3}],
                "libraries": [{"path": "/c/trtllm_comm.so", "deleted": True, "replaced": True, "mtime": 1.0}],
            }
        ],
        "views": [
            {
                "root": f"{SITE}/flashinfer",
                "error": None,
                "files": [{"name": "jit/comm.py", "path": "/x", "mtime": 1.0, "ctime": 2.0, "links": 1}],
                "tools": {
                    "which_nvcc": "/usr/bin/nvcc",
                    "named_nvcc": {"path": "/n", "there": False},
                    "homes": {"/usr/local/cuda": {"exists": True, "nvcc": True, "version": "12.8"}},
                    "cxx": {"name": "c++", "path": None},
                    "ninja": None,
                    "python_h": None,
                },
            }
        ],
        "unread": [{"pid": 9, "user": "bob", "error": "EACCES"}],
        "unread_count": 3,
        "error": None,
    },
    "caches": {
        "items": [
            {
                "path": "/root/.cache/flashinfer",
                "exists": True,
                "uid": 0,
                "user": None,
                "pid": None,
                "folders": [{"first": "0.6.2", "second": "", "modules": 1}],
                "truncated": None,
                "locks": [{"path": "/l", "kind": "file", "mtime": 1.0, "held": None}],
                "modules": [
                    {
                        "first": "0.6.2",
                        "second": "120a",
                        "name": "norm",
                        "dir": "/c/norm",
                        "gencode": ["120a"],
                        "csrc": [{"path": "/v/csrc", "exists": True}],
                        "includes": [],
                        "cuda_home": "/usr",
                        "library": {"size": 1, "mtime": 1.0},
                        "newest": {"path": "/s", "mtime": 2.0},
                    }
                ],
            }
        ]
    },
    "scan": {
        "named": [{"file": "/d", "line": 3, "kind": "scan", "path": "/v/flashinfer/csrc"}],
        "files": 1,
        "unmatched": ["/x"],
        "errors": ["/y: EACCES"],
        "truncated": "more than 500 files or 5 s",
    },
    "deep/0": {"state": "ran", "imported": {"csrc_dir": "/x", "csrc_real": "/x", "version": "1", "error": None}},
    "smi": {
        "path": "/usr/bin/nvidia-smi",
        "skipped": None,
        "version": {"stdout": "NVIDIA-SMI version : 580.95.05\n"},
        "query": {
            "fields": ["index", "uuid", "pci.bus_id", "name", "compute_cap", "memory.total", "driver_version"],
            "call": {
                "rc": 0,
                "stdout": "0, GPU-00000000-0000-4000-8000-000000000001, 05:00.0, X, 12.0, 97887, 580.95.05\n",
                "stderr": "",
                "timed_out": False,
            },
        },
        "retry": None,
    },
}


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(place for key, item in inner for place in paths(item, (*here, key)))]


PLACES = [place for place in paths(WHOLE) if place]


def holds(facts: HostFacts) -> None:
    document = facts.model_dump_json()
    assert HostFacts.model_validate_json(document).model_dump_json() == document
    document.encode()
    json.loads(document, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))


def test_the_whole_evidence_is_understood() -> None:
    facts = host_facts(WHOLE)
    assert facts.gpus.state == "ok"
    assert facts.venvs[0].flashinfer is not None
    assert facts.venvs[0].flashinfer.csrc_state == "complete"
    assert facts.processes is not None and facts.caches is not None
    assert (facts.processes[0].venv, facts.processes[0].venv_basis) == ("/v", "mapped")
    assert facts.caches[0].undetected == ("0.6.2",)
    assert facts.scan_unread == ("/x matches nothing", "/y: EACCES", "more than 500 files or 5 s")
    assert (facts.scanned, [one.kind for one in facts.named_csrc]) == (1, ["scan"])
    assert facts.venvs[0].flashinfer.hidden is not None
    assert [one.line for one in facts.venvs[0].flashinfer.start_files] == [1]
    assert facts.processes_unread == ("process 9 of bob: EACCES", "2 more")
    holds(facts)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(PLACES), JSON), min_size=1, max_size=4), st.none() | TEXTS)
def test_any_value_may_stand_at_any_place(
    changes: list[tuple[tuple[Any, ...], Any]], expected: str | None
) -> None:
    parts = copy.deepcopy(WHOLE)
    for place, value in changes:
        holder: Any = parts
        try:
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    holds(host_facts(parts, expected))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from([*WHOLE, "venv/1", "venv/99999999999", "x"]), JSON, max_size=6))
def test_parts_of_any_shape(parts: dict[str, Any]) -> None:
    holds(host_facts(parts))


def test_nothing_at_all() -> None:
    facts = host_facts({})
    assert facts == HostFacts()
    holds(facts)


def test_huge_answers_are_bounded() -> None:
    parts = copy.deepcopy(WHOLE)
    call = parts["smi"]["query"]["call"]
    call["stdout"] = "noise " * 100_000 + "\n" + "noise\n" * 100_000
    call["stderr"] = "Unable to determine the device handle for GPU1: 0000:05:00.0: x\n" * 10_000
    package = parts["venv/0"]["packages"]["flashinfer"]
    package["files"] += [{"name": f"jit/{n}.py", "record": "mismatch"} for n in range(50_000)]
    package["csrc"][0] |= {"missing": ["x" * 10_000] * 10_000, "missing_count": 10_000}
    parts["venvs"]["items"] *= 50_000
    facts = host_facts(parts)
    assert len(facts.venvs) <= 200
    assert len(facts.venvs[0].model_dump_json()) < 1_000_000
    assert len(facts.gpus.model_dump_json()) < 100_000
    parts["processes"]["items"] *= 50_000
    parts["processes"]["items"][0]["libraries"] *= 50_000
    parts["caches"]["items"][0]["modules"] *= 50_000
    parts["caches"]["items"] *= 1000
    facts = host_facts(parts)
    assert facts.processes is not None and facts.caches is not None
    assert len(facts.processes) <= 100
    assert len(facts.processes[0].libraries) <= 100
    assert len(facts.caches) <= 20
    assert len(facts.caches[0].modules) <= 1000
