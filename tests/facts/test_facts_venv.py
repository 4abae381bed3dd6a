"""One environment: its state, FlashInfer's sources, what is a decoy, what was edited, how it was installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import Venv

SITE = "/opt/ml-env/lib/python3.12/site-packages"
ROOT = f"{SITE}/flashinfer"
CSRC = yaml.safe_load((Path(__file__).parent / "data" / "csrc.yaml").read_text())
ENV = """\
import pathlib
_package_root: pathlib.Path = pathlib.Path(__file__).resolve().parents[1]
FLASHINFER_CSRC_DIR: pathlib.Path = _package_root / "data" / "csrc"
"""
COMM = "def gen_trtllm_comm_module():\n    return c.get_nvcc_flags_list(supported_major_versions=[9, 10])\n"
WHOLE = {"path": f"{ROOT}/data/csrc", "real": f"{ROOT}/data/csrc", "exists": True, "files": 436, "listed": 436}
DIST = {"name": "flashinfer_python", "version": "0.6.2", "dir": f"{SITE}/flashinfer_python-0.6.2.dist-info"}


def file(name: str, text: str | None = None, record: str = "match", **more: Any) -> dict[str, Any]:
    return {"name": name, "path": f"{ROOT}/{name}", "text": text, "record": record} | more


def package(**changes: Any) -> dict[str, Any]:
    """FlashInfer 0.6.2 as a wheel, with changes."""
    stock = {
        "spec": "file",
        "origin": f"{ROOT}/__init__.py",
        "root": ROOT,
        "root_real": ROOT,
        "dists": [DIST | {"installer": "pip", "record": "present", "direct_url": None}],
        "files": [
            file("jit/env.py", ENV),
            file("jit/comm.py", COMM),
            file("_build_meta.py", '__version__ = "0.6.2"\n'),
            file("data/include/flashinfer/comm/trtllm_allreduce.cuh", "417\t#if __CUDA_ARCH__ < 1200\n"),
        ],
        "csrc": [WHOLE],
    }
    return stock | changes


def part(flashinfer: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The part of one environment that ran, with changes."""
    stock = {
        "path": "/opt/ml-env",
        "real": "/opt/ml-env",
        "item": "/opt/*",
        "origin": "listed",
        "state": "ran",
        "activation": {
            "kind": "venv",
            "status": "ok",
            "env": {"HOME": "/root"},
            "python3": {"path": "/opt/ml-env/bin/python3", "prefix": "/opt/ml-env", "same": True},
        },
        "interpreter": {"version": "3.12.1", "executable": "/opt/ml-env/bin/python", "prefix": "/opt/ml-env"},
        "packages": {"flashinfer": flashinfer or package()},
    }
    return stock | changes


def venv_of(own: Any, **item: Any) -> Venv:
    listed = {"index": 0, "path": "/opt/ml-env", "item": "/opt/*", "origin": "listed", "state": "present"} | item
    parts = {"venvs": {"items": [listed], "unmatched": ["/srv/*"]}} | ({} if own is None else {"venv/0": own})
    facts = host_facts(parts, "12.0")
    assert facts.venvs_known
    assert facts.unmatched == ("/srv/*",)
    (found,) = facts.venvs
    return found


def test_a_stock_wheel() -> None:
    venv = venv_of(part())
    assert (venv.state, venv.error, venv.python, venv.item) == ("ok", None, "3.12.1", "/opt/*")
    assert (venv.activation_matches, venv.activated_python) == (True, "/opt/ml-env/bin/python3")
    assert venv.packages == {"flashinfer-python": "0.6.2"}
    found, fusion = venv.flashinfer, venv.fusion
    assert found is not None
    assert fusion is not None
    assert (found.version, found.install, found.basis) == ("0.6.2", "wheel", "resolved")
    assert found.csrc_dir == found.csrc_default == f"{ROOT}/data/csrc"
    assert (found.csrc_state, found.csrc_missing_count, found.decoy) == ("complete", 0, None)
    assert (found.env_record, found.env_error, found.modified) == ("match", None, ())
    assert (fusion.verdict, fusion.gate, fusion.guards) == ("refused", (9, 10), 1)


@pytest.mark.parametrize(
    ("own", "item", "state", "error"),
    [
        ({"state": "missing"}, {"state": "missing"}, "missing", None),
        ({"state": "unreadable", "error": "EACCES"}, {}, "unreadable", "EACCES"),
        ({"state": "no-interpreter"}, {}, "broken", "no interpreter in bin"),
        ({"state": "broken", "rc": 127, "stderr": "a\nb "}, {}, "broken", "a b"),
        ({"state": "too-old"}, {}, "broken", "the interpreter is older than Python 3.8"),
        ({"state": "hung", "error": "timeout"}, {}, "broken", "no answer within the limit"),
        (None, {"state": "missing"}, "missing", None),
        (None, {"state": "unreadable"}, "unreadable", None),
        (None, {"state": "not-a-venv"}, "broken", "no Python environment in that folder"),
        (None, {"state": "present"}, "unreadable", "no answer came back"),
        (None, {"state": 7}, "unreadable", "no answer came back"),
        ({"state": "sideways"}, {}, "unreadable", "no answer came back"),
        (part(packages={"flashinfer": {"spec": "none"}}), {}, "no-flashinfer", None),
        (
            part(packages={"flashinfer": {"spec": "namespace", "locations": [ROOT]}}),
            {},
            "remnant",
            f"folders without __init__.py: {ROOT}",
        ),
        (
            part(packages={"flashinfer": {"spec": "error", "error": "ValueError: x"}}),
            {},
            "unreadable",
            "ValueError: x",
        ),
        (
            part(packages={"flashinfer": {"spec": "namespace", "locations": [ROOT], "dists": [DIST]}}),
            {},
            "unreadable",
            f"flashinfer-python 0.6.2 is installed, and {ROOT} may not be read, or lacks its __init__.py",
        ),
        (
            part(packages={"flashinfer": {"spec": "none"}}, interpreter={"closed": [SITE]}),
            {},
            "unreadable",
            f"{SITE} may not be read",
        ),
        (
            {"state": "broken", "stderr": "PermissionError: [Errno 13] Permission denied: '/opt/v/pyvenv.cfg'"},
            {},
            "unreadable",
            "PermissionError: [Errno 13] Permission denied: '/opt/v/pyvenv.cfg'",
        ),
        (part(packages={}), {}, "unreadable", "FlashInfer was not looked for"),
        (part(packages=None), {}, "unreadable", "FlashInfer was not looked for"),
    ],
)
def test_the_state(own: Any, item: dict[str, Any], state: str, error: str | None) -> None:
    venv = venv_of(own, **item)
    assert (venv.state, venv.error) == (state, error)
    assert venv.flashinfer is None
    assert venv.fusion is None


def test_activation_that_leads_elsewhere() -> None:
    python3 = {"path": "/opt/other/bin/python3", "prefix": "/opt/other", "same": False}
    venv = venv_of(part(activation={"status": "ok", "python3": python3}))
    assert (venv.activation_matches, venv.activated_prefix, venv.activation_error) == (False, "/opt/other", None)


def test_activation_that_fails() -> None:
    venv = venv_of(
        part(activation={"status": "failed", "rc": 2, "stderr": "no such\nfile", "python3": {"same": None}})
    )
    assert (venv.activation_matches, venv.activation_error) == (None, "failed: no such file")


@pytest.mark.parametrize("case", CSRC, ids=[case["name"] for case in CSRC])
def test_the_state_of_csrc(case: dict[str, Any]) -> None:
    entries = [] if case["entry"] is None else [{"path": f"{ROOT}/data/csrc"} | case["entry"]]
    version = case.get("version", "0.6.2")
    recorded = "no-record" if "files" in case else "match"
    below = [file(f"data/csrc/{name}", record="no-record") for name in case.get("files", ())]
    files = [file("jit/env.py", ENV, record=recorded), *below]
    url = {"text": json.dumps(case["direct_url"])} if "direct_url" in case else None
    dists = [DIST | {"version": version, "direct_url": url}] if version else []
    found = venv_of(part(package(csrc=entries, files=files, dists=dists))).flashinfer
    assert found is not None
    assert found.csrc_state == case["state"]
    assert list(found.csrc_missing) == case.get("missing", [])
    assert found.csrc_missing_count == case.get("count", 0)
    assert found.csrc_basis == case.get("basis", found.csrc_basis)
    assert found.csrc_error == case.get("error", found.csrc_error)


def edited(line: str) -> list[dict[str, Any]]:
    text = ENV.replace('_package_root / "data" / "csrc"', line)
    return [file("jit/env.py", text, record="mismatch"), file("jit/comm.py", COMM)]


def test_an_edited_env_that_points_beside_data() -> None:
    beside = {"path": f"{ROOT}/csrc", "real": f"{ROOT}/csrc", "exists": False, "files": 0, "listed": 0}
    found = venv_of(part(package(files=edited('_package_root / "csrc"'), csrc=[WHOLE, beside]))).flashinfer
    assert found is not None
    assert (found.csrc_dir, found.csrc_state) == (f"{ROOT}/csrc", "missing")
    assert (found.csrc_default, found.decoy) == (f"{ROOT}/data/csrc", None)
    assert (found.env_record, found.modified) == ("mismatch", ("jit/env.py",))


def test_an_edited_env_that_points_to_a_folder_that_was_not_looked_at() -> None:
    found = venv_of(part(package(files=edited('pathlib.Path("/srv/csrc")')))).flashinfer
    assert found is not None
    assert (found.csrc_dir, found.csrc_state) == ("/srv/csrc", "unknown")


@pytest.mark.parametrize(
    ("changes", "decoy"),
    [
        ({}, (f"{ROOT}/csrc", 1)),
        ({"exists": False}, None),
        ({"listed": 3}, None),
        ({"real": f"{ROOT}/data/csrc"}, None),
        ({"files": None}, (f"{ROOT}/csrc", None)),
    ],
)
def test_a_decoy_is_a_folder_that_is_never_read(
    changes: dict[str, Any], decoy: tuple[str, int | None] | None
) -> None:
    made = {"path": f"{ROOT}/csrc", "real": f"{ROOT}/csrc", "exists": True, "files": 1, "listed": 0} | changes
    found = venv_of(part(package(csrc=[WHOLE, made]))).flashinfer
    assert found is not None
    assert (found.decoy, found.decoy_files) == (decoy or (None, None))


def test_the_links_of_uv_lead_to_its_cache() -> None:
    cache = "/root/.cache/uv/archive/flashinfer"
    files = [file("jit/env.py", ENV, real=f"{cache}/jit/env.py"), file("jit/comm.py", COMM)]
    linked = WHOLE | {"missing_count": 0, "extra_count": 0}
    behind = {
        "path": f"{cache}/data/csrc",
        "real": f"{cache}/data/csrc",
        "exists": True,
        "files": 436,
        "listed": None,
    }
    made = {"path": f"{ROOT}/csrc", "real": f"{ROOT}/csrc", "exists": True, "files": 1, "listed": 0}
    changes: dict[str, Any] = {"files": files, "root_real": cache, "csrc": [linked, made, behind]}
    found = venv_of(part(package(**changes))).flashinfer
    assert found is not None
    assert found.csrc_dir == found.csrc_default == f"{cache}/data/csrc"
    assert (found.csrc_state, found.decoy) == ("complete", f"{ROOT}/csrc")
    changes["csrc"] = [linked, behind | {"files": 435}]
    fewer = venv_of(part(package(**changes))).flashinfer
    assert fewer is not None
    assert fewer.csrc_state == "unknown"


@pytest.mark.parametrize("linked", [False, True])
def test_an_environment_behind_a_link(linked: bool) -> None:
    target = "/data/envs/ml/lib/python3.12/site-packages/flashinfer"
    files = [file("jit/env.py", ENV, real=f"{target}/jit/env.py"), file("jit/comm.py", COMM)]
    real = "/src/flashinfer/csrc" if linked else f"{target}/data/csrc"
    found = venv_of(part(package(files=files, root_real=target, csrc=[WHOLE | {"real": real}]))).flashinfer
    assert found is not None
    assert found.csrc_dir == found.csrc_default == f"{target}/data/csrc"
    assert (found.csrc_state, found.csrc_real, found.decoy) == ("complete", real, None)


@pytest.mark.parametrize(
    ("changes", "install"),
    [
        ({}, "wheel"),
        (
            {
                "dists": [
                    DIST
                    | {"record": "present", "direct_url": {"text": json.dumps({"dir_info": {"editable": True}})}}
                ]
            },
            "editable",
        ),
        ({"dists": [DIST | {"record": "present", "direct_url": {"text": "{"}}]}, "wheel"),
        ({"dists": []}, "unknown"),
        ({"root": "/home/a/flashinfer/flashinfer", "dists": []}, "source"),
        ({"root": None, "root_real": None}, "unknown"),
    ],
)
def test_how_it_was_installed(changes: dict[str, Any], install: str) -> None:
    found = venv_of(part(package(**changes))).flashinfer
    assert found is not None
    assert found.install == install


def test_a_release_without_env_is_no_edited_one() -> None:
    found = venv_of(part(package(files=[], csrc=[]))).flashinfer
    assert found is not None
    assert (found.csrc_dir, found.csrc_state, found.env_error) == (None, "unknown", "jit/env.py is not there")


def test_an_env_that_was_cut_is_not_evaluated() -> None:
    found = venv_of(part(package(files=[file("jit/env.py", "", cut="functions")]))).flashinfer
    assert found is not None
    assert found.env_error == "jit/env.py is too large to be read whole"


def test_what_runs_is_what_the_package_says_of_itself() -> None:
    two = [DIST | {"version": "0.6.17"}, DIST | {"version": "0.6.2"}]
    venv = venv_of(part(package(dists=two)))
    assert venv.flashinfer is not None
    assert venv.flashinfer.version == "0.6.2"
    assert venv.packages == {"flashinfer-python": "0.6.17"}


def test_files_of_another_size_are_modified_ones() -> None:
    entry = WHOLE | {"size_differs": ["norm.cu"]}
    found = venv_of(part(package(csrc=[entry]))).flashinfer
    assert found is not None
    assert found.modified == ("data/csrc/norm.cu",)


def test_torch_is_read_from_its_text() -> None:
    torch = {
        "spec": "file",
        "dists": [{"name": "torch", "version": "2.9.0"}],
        "files": [{"name": "version.py", "text": "__version__ = '2.9.0+cu128'\ncuda: Optional[str] = '12.8'\n"}],
    }
    venv = venv_of(part(packages={"flashinfer": package(), "torch": torch}))
    assert venv.torch is not None
    assert (venv.torch.version, venv.torch.cuda) == ("2.9.0+cu128", "12.8")
    bare = venv_of(part(packages={"flashinfer": package(), "torch": {"spec": "file", "dists": torch["dists"]}}))
    assert bare.torch is not None
    assert (bare.torch.version, bare.torch.cuda) == ("2.9.0", None)


def test_an_environment_of_which_the_list_never_came() -> None:
    facts = host_facts({"venv/3": part(), "venv/x": part()})
    assert not facts.venvs_known
    assert [venv.state for venv in facts.venvs] == ["ok"]


def test_pci_stands_in_for_gpus_that_do_not_answer() -> None:
    functions = [{"bus_id": "0000:05:00.0", "vendor": "0x10de", "device": "0x2335", "class": "0x030200"}]
    parts = {"pci": {"functions": functions, "error": None}, "venv/0": part()}
    facts = host_facts(parts, "12.0")
    assert facts.gpus.compute_capability == ()
    assert facts.venvs[0].fusion is not None
    assert facts.venvs[0].fusion.verdict == "supported"


@pytest.mark.parametrize(
    ("changes", "verified"),
    [
        ({"checked": 500}, True),
        ({"checked": 435}, "partly"),
        ({"checked": 500, "csrc": [WHOLE | {"unhashed": 1}]}, "partly"),
        ({"checked": 435, "csrc": [WHOLE | {"missing": ["a.cu"], "missing_count": 1}]}, True),
        ({"checked": 435, "csrc": [WHOLE | {"size_differs": ["a.cu"]}]}, True),
        ({"checked": 0, "files": [file("jit/env.py", ENV, "unlisted")]}, False),
    ],
)
def test_verified_is_partly_where_not_all_was_hashed(changes: dict[str, Any], verified: object) -> None:
    found = venv_of(part(package(**changes))).flashinfer
    assert found is not None
    assert found.verified == verified


@pytest.mark.parametrize(
    ("more", "basis", "fields"),
    [
        (file("jit/core.py", record="mismatch"), "guessed", ("redirected", ("jit/core.py",))),
        (file("__init__.py", record="mismatch"), "guessed", ("redirected", ("__init__.py",))),
        (file("version.py", "import x\nx.FLASHINFER_CSRC_DIR = 1\n", "mismatch"), "guessed", None),
        (file("comm/trtllm_ar.py", "x = 1\n", "mismatch"), "resolved", ("redirected", ("comm/trtllm_ar.py",))),
        (file("jit/env/__init__.py", record="unlisted", sha256="3f" * 32), "guessed", None),
        (file("jit/attention.py", record="mismatch"), "resolved", ("redirected", ())),
    ],
)
def test_an_edit_beside_env_may_move_the_sources(more: dict[str, Any], basis: str, fields: Any) -> None:
    files = [*package()["files"], more | {"sha256": "3f" * 32}]
    files[1] = files[1] | {"sha256": "3f" * 32}
    found = venv_of(part(package(files=files))).flashinfer
    assert found is not None
    assert found.basis == basis
    assert fields is None or getattr(found, fields[0]) == fields[1]


def test_a_folder_beside_env_is_imported_instead_of_it() -> None:
    instead = file("jit/env/__init__.py", record="unlisted", sha256="3f" * 32)
    found = venv_of(part(package(files=[*package()["files"], instead]))).flashinfer
    assert found is not None
    assert (found.csrc_dir, found.replaced) == (None, ("jit/env/__init__.py",))
    assert found.env_error == "never run: jit/env/__init__.py is imported instead"


def test_a_header_that_is_gone_makes_the_sources_incomplete() -> None:
    name = "data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh"
    gone = file(name, record="missing", error="ENOENT")
    found = venv_of(part(package(files=[*package()["files"], gone]))).flashinfer
    assert found is not None
    assert (found.csrc_state, found.csrc_missing, found.absent) == (
        "incomplete",
        ("../include/flashinfer/comm/trtllm_allreduce_fusion.cuh",),
        (name,),
    )


def test_a_record_that_may_not_be_read_is_not_absent() -> None:
    csrc = [WHOLE | {"listed": None}]
    found = venv_of(part(package(dists=[DIST | {"record": "unreadable"}], csrc=csrc))).flashinfer
    assert found is not None
    assert (found.csrc_state, found.csrc_error) == ("unknown", "RECORD, which lists its files, could not be read")
