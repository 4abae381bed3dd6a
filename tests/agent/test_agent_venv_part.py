"""The venv part: activation in all its moods, whose python3 it leads to, states, FlashInfer's files and csrc."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from agent_host import ACTIVATE, COMM_PY, ENV_PY, FILES, HEADER, Host, look, shells

from fleetcheck.agent.evidence import Request

HARD = '/opt/m l\'s "env" $HOME'


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def ask(host: Host, *venvs: str, **request: Any) -> Request:
    return Request(sysroot=str(host.root), venvs=venvs or ("/opt/ml",), **request)


def flashinfer(value: dict[str, Any]) -> dict[str, Any]:
    package: dict[str, Any] = value["packages"]["flashinfer"]
    return package


def files(value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in flashinfer(value)["files"]}


@pytest.mark.parametrize("shell", shells())
@pytest.mark.parametrize("path", ["/opt/ml", HARD])
def test_a_sound_environment(host: Host, path: str, shell: str) -> None:
    host.venv(path)
    # The quoting of virtualenv and uv: a path with quotes and a dollar in it.
    quoted = "'" + str(host.at(path)).replace("'", "'\\''") + "'"
    host.write(f"{path}/bin/activate", ACTIVATE.replace('"{venv}"', quoted))
    answer = look(ask(host, path), shell=shell)
    assert answer.parts["venvs"]["items"] == [
        {"index": 0, "path": path, "item": path, "origin": "listed", "state": "present"}
    ]
    value = answer.venv()
    assert (value["state"], value["error"], value["path"], value["real"]) == ("ran", None, path, path)
    assert value["cfg"]["text"].startswith("home = ")
    activation = value["activation"]
    assert (activation["kind"], activation["status"], activation["rc"]) == ("venv", "ok", 0)
    assert activation["env"]["VIRTUAL_ENV"] == path
    assert activation["env"]["PATH"].split(":")[0] == f"{path}/bin"
    assert activation["python3"]["same"] is True
    assert activation["python3"]["path"] == f"{path}/bin/python3"
    assert value["interpreter"]["prefix"] == path
    package = flashinfer(value)
    assert package["spec"] == "file"
    assert package["root"].startswith(path)
    (dist,) = package["dists"]
    assert (dist["name"], dist["version"], dist["installer"], dist["record"]) == (
        "flashinfer-python", "0.6.2", "pip", "present",
    )  # fmt: skip
    assert dist["record_count"] == len(FILES) + 1
    env = files(value)["jit/env.py"]
    assert (env["record"], env["text"], env["cut"]) == ("match", ENV_PY, None)
    assert env["sha256"] == hashlib.sha256(ENV_PY.encode()).hexdigest()
    header = files(value)["data/include/flashinfer/comm/trtllm_allreduce.cuh"]
    assert header["text"] == "1\t" + HEADER.splitlines()[0] + "\n"
    (csrc,) = package["csrc"]
    assert csrc["path"].endswith("/flashinfer/data/csrc")
    assert (csrc["files"], csrc["listed"], csrc["missing_count"], csrc["extra_count"]) == (2, 2, 0, 0)
    assert value["packages"]["torch"]["spec"] == "none"


def test_activations_that_fail_still_leave_the_environment_looked_at(host: Host, tmp_path: Path) -> None:
    bodies = {
        "exits": "echo going; exit 7\n",
        "hangs": "echo waiting\nsleep 1000\n",
        "syntax": "if then fi (\n",
        "false": "false\n",
        "reads": ACTIVATE + "cat\nread line\n",
        "noisy": ACTIVATE + "yes out | head -c 200000\nyes err | head -c 200000 >&2\n",
        "execs": "exec cat\n",
        "daemon": ACTIVATE + "sleep 1000 &\n",
        "changes": ACTIVATE + "set -- x y; set -eu; cd /\n",
    }
    for name, body in bodies.items():
        host.venv(f"/opt/{name}")
        host.write(f"/opt/{name}/bin/activate", body.replace("{venv}", str(host.at(f"/opt/{name}"))))
    answer = look(ask(host, *(f"/opt/{name}" for name in bodies), activate_limit=1.5))
    assert answer.parts["end"]["errors"] == []
    values = {name: answer.venv(index) for index, name in enumerate(bodies)}
    assert {value["state"] for value in values.values()} == {"ran"}
    told = {name: (value["activation"]["status"], value["activation"]["rc"]) for name, value in values.items()}
    assert told == {
        "exits": ("exited", 7),
        "hangs": ("hung", None),
        "syntax": ("exited", told["syntax"][1]),
        "false": ("failed", 1),
        "reads": ("failed", 1),  # read meets the end of /dev/null
        "noisy": ("ok", 0),
        "execs": ("exited", 0),
        "daemon": ("ok", 0),
        "changes": ("ok", 0),
    }
    assert values["exits"]["activation"]["stderr"] == "going\n"
    assert values["hangs"]["activation"]["stderr"] == "waiting\n"
    assert values["hangs"]["activation"]["python3"]["same"] is None
    assert len(values["noisy"]["activation"]["stderr"]) <= 8192
    assert values["noisy"]["activation"]["python3"]["same"] is True
    assert flashinfer(values["hangs"])["spec"] == "file"


def test_an_activation_that_leads_elsewhere(host: Host) -> None:
    for name in ("ml", "other"):
        host.venv(f"/opt/{name}")
    host.write("/opt/ml/bin/activate", ACTIVATE.format(venv=host.at("/opt/other")))
    python3 = look(ask(host)).venv()["activation"]["python3"]
    assert (python3["same"], python3["prefix"], python3["path"]) == (False, "/opt/other", "/opt/other/bin/python3")


def test_an_activation_of_a_mounted_image_names_its_own_paths(host: Host) -> None:
    host.venv("/opt/ml")
    host.write("/opt/ml/bin/activate", ACTIVATE.format(venv="/opt/ml"))
    activation = look(ask(host)).venv()["activation"]
    assert activation["python3"]["same"] is True
    assert activation["env"]["VIRTUAL_ENV"] == "/opt/ml"


def test_python3_of_the_system_is_asked_for_its_prefix(host: Host) -> None:
    host.venv("/opt/ml")
    host.write("/opt/ml/bin/activate", "PATH=/usr/bin\nexport PATH\n")
    host.write("/usr/bin/python3", "#!/bin/sh\nprintf /usr\n", executable=True)
    python3 = look(ask(host)).venv()["activation"]["python3"]
    assert (python3["path"], python3["prefix"], python3["same"]) == ("/usr/bin/python3", "/usr", False)


def test_states_are_told_apart(host: Host) -> None:
    host.venv("/opt/dangling")
    host.at("/opt/dangling/bin/python").unlink()
    host.at("/opt/dangling/bin/python").symlink_to("/gone/python3.12")
    host.at("/opt/dangling/bin/python3").unlink()
    host.venv("/opt/broken")
    host.at("/opt/broken/bin/python").unlink()
    host.write("/opt/broken/bin/python", "#!/bin/sh\necho no libpython >&2\nexit 127\n", executable=True)
    host.venv("/opt/hung")
    host.at("/opt/hung/bin/python").unlink()
    host.write("/opt/hung/bin/python", "#!/bin/sh\nsleep 1000\n", executable=True)
    host.at("/opt/folder").mkdir()
    host.write("/opt/file", "x")
    host.venv("/opt/empty", files={})
    names = ["gone", "dangling", "broken", "hung", "folder", "file", "empty"]
    answer = look(ask(host, *(f"/opt/{name}" for name in names), venv_limit=1.5))
    states = {name: answer.venv(index)["state"] for index, name in enumerate(names)}
    assert states == {
        "gone": "missing", "dangling": "no-interpreter", "broken": "broken", "hung": "hung",
        "folder": "no-interpreter", "file": "no-interpreter", "empty": "ran",
    }  # fmt: skip
    listed = {Path(item["path"]).name: item["state"] for item in answer.parts["venvs"]["items"]}
    assert listed == {
        "gone": "missing", "dangling": "present", "broken": "present", "hung": "present",
        "folder": "not-a-venv", "file": "not-a-venv", "empty": "present",
    }  # fmt: skip
    assert "/gone/python3.12" in answer.venv(1)["error"]
    broken = answer.venv(2)
    assert (broken["rc"], broken["stderr"], broken["error"]) == (127, "no libpython\n", "no libpython")
    assert flashinfer(answer.venv(6))["spec"] == "none"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to look as another user")
def test_no_permission_is_unreadable_never_missing(host: Host) -> None:
    for name in ("closed", "closed-bin", "closed-files"):
        host.venv(f"/opt/{name}")
    host.at("/opt/closed").chmod(0o700)
    host.at("/opt/closed-bin/bin").chmod(0o700)
    env = next(host.at("/opt/closed-files").glob("lib/python*/site-packages/flashinfer/jit/env.py"))
    env.chmod(0o600)
    (env.parents[1] / "data/csrc").chmod(0o700)
    temporary = Path(tempfile.gettempdir())
    for folder in itertools.takewhile(lambda one: temporary in one.parents, [host.root, *host.root.parents]):
        folder.chmod(0o755)  # a process of pytest-xdist has one folder more
    python = shutil.which("python3", path="/usr/bin")
    if python is None:
        pytest.skip("needs /usr/bin/python3, which another user may run")
    for venv in ("closed-files",):
        host.at(f"/opt/{venv}/bin/python").unlink()
        host.at(f"/opt/{venv}/bin/python").symlink_to(os.path.realpath(python))
        version = Path(python).resolve().name
        lib = host.at(f"/opt/{venv}/lib")
        (there,) = lib.iterdir()
        if there.name != version:
            there.rename(lib / version)
        host.write(f"/opt/{venv}/pyvenv.cfg", "home = /usr/bin\n")
    request = ask(host, "/opt/closed", "/opt/closed-bin", "/opt/closed-files")
    answer = look(request, pythons=(python,), user=65534, group=65534, extra_groups=[])
    assert [item["state"] for item in answer.parts["venvs"]["items"]] == ["unreadable", "unreadable", "present"]
    assert [answer.venv(index)["state"] for index in range(3)] == ["unreadable", "unreadable", "ran"]
    assert answer.venv(0)["error"] == "EACCES"
    value = answer.venv(2)
    assert (files(value)["jit/env.py"]["record"], files(value)["jit/env.py"]["error"]) == ("unreadable", "EACCES")
    (csrc,) = flashinfer(value)["csrc"]
    assert (csrc["exists"], csrc["error"], csrc["missing_count"]) == (True, "EACCES", 0)


def test_an_edited_environment(host: Host, tmp_path: Path) -> None:
    site = host.venv("/opt/ml")
    package = site / "flashinfer"
    (package / "jit/comm.py").write_text(COMM_PY.replace("[9, 10]", "[9, 10, 12"))
    (package / "jit/env.py").write_text(ENV_PY + 'FLASHINFER_CSRC_DIR = pathlib.Path("/srv/csrc") / "new"\n')
    host.write("/srv/csrc/new/a.cu", "x")
    (package / "data/csrc/norm.cu").unlink()
    (package / "data/csrc/trtllm_allreduce.cu").write_text("// changed, and longer\n")
    (package / "data/csrc/mine.cu").write_text("")
    (package / "csrc").mkdir()
    (package / "csrc/trtllm_allreduce.cu").write_text("decoy")
    (package / "jit/extra.py").write_text("")
    (package / "comm/trtllm_ar.py").unlink()
    # The path in env.py is the host's; without a sysroot of its own, the tree is named as it lies here.
    (package / "jit/env.py").write_text(
        ENV_PY + f'FLASHINFER_CSRC_DIR = pathlib.Path("{host.root}/srv/csrc") / "new"\n'
    )
    value = look(ask(host)).venv()
    told = {name: (one["record"], one["text"] is not None) for name, one in files(value).items()}
    assert told["jit/comm.py"] == ("mismatch", True)
    assert told["jit/env.py"] == ("mismatch", True)
    assert told["comm/trtllm_ar.py"] == ("missing", False)
    assert told["data/csrc/trtllm_allreduce.cu"] == ("mismatch", False)
    assert told["jit/extra.py"] == ("unlisted", False)
    assert "comm/__init__.py" not in told
    data, decoy, named = flashinfer(value)["csrc"]
    assert (data["missing"], data["size_differs"], data["extra"]) == (
        ["norm.cu"],
        ["trtllm_allreduce.cu"],
        ["mine.cu"],
    )
    assert (decoy["path"].rpartition("/flashinfer/")[2], decoy["files"], decoy["extra"], decoy["listed"]) == (
        "csrc", 1, ["trtllm_allreduce.cu"], 0,
    )  # fmt: skip
    assert (named["path"], named["files"], named["listed"]) == ("/srv/csrc/new", 1, None)


def test_csrc_gone_empty_linked_and_looping(host: Host) -> None:
    for name in ("gone", "empty", "linked", "loop"):
        csrc = host.venv(f"/opt/{name}") / "flashinfer/data/csrc"
        if name == "loop":
            (csrc / "again").symlink_to("..")
            (csrc / "self").symlink_to("self")
            continue
        shutil.rmtree(csrc)
        if name == "empty":
            csrc.mkdir()
        if name == "linked":
            host.write("/repo/csrc/norm.cu", "// norm\n")
            csrc.symlink_to(host.at("/repo/csrc"))
    answer = look(ask(host, "/opt/gone", "/opt/empty", "/opt/linked", "/opt/loop"))
    gone, empty, linked, loop = (flashinfer(answer.venv(index))["csrc"][0] for index in range(4))
    assert (gone["exists"], gone["error"], gone["missing_count"]) == (False, None, 2)
    assert (empty["exists"], empty["files"], empty["missing_count"]) == (True, 0, 2)
    assert (linked["is_link"], linked["real"], linked["files"], linked["missing"]) == (
        True, "/repo/csrc", 1, ["trtllm_allreduce.cu"],
    )  # fmt: skip
    assert loop["missing_count"] == 0
    assert loop["files"] >= 2


def test_a_remnant_is_a_namespace(host: Host) -> None:
    host.venv("/opt/ml", files={"flashinfer/data/csrc/left.cu": ""})
    shutil.rmtree(next(host.at("/opt/ml").glob("lib/python*/site-packages/flashinfer_python-0.6.2.dist-info")))
    package = flashinfer(look(ask(host)).venv())
    assert (package["spec"], package["root"], package["dists"]) == ("namespace", None, [])
    assert package["locations"][0].endswith("/site-packages/flashinfer")


def test_large_files_are_cut_to_functions_even_with_broken_syntax(host: Host) -> None:
    text = (
        "import os\n"
        + "x = 1\n" * 8000
        + "@cache\ndef gen_a(\n    y,\n) -> int:\n    return 2\n\n\ndef other(:\n    pass\n"
    )
    host.venv("/opt/ml", files={**FILES, "flashinfer/jit/comm.py": text})
    comm = files(look(ask(host)).venv())["jit/comm.py"]
    assert comm["cut"] == "functions"
    assert comm["text"].split() == ["@cache", "def", "gen_a(", "y,", ")", "->", "int:", "return", "2"]


def test_a_glob_a_link_and_discovery_find_one_environment_once(host: Host) -> None:
    host.venv("/opt/venvs/a")
    host.venv("/opt/venvs/b")
    host.venv("/opt/venvs/none", files={})
    host.at("/opt/venvs/link").symlink_to("a")
    host.write("/proc/77/cmdline", "/opt/venvs/b/bin/python\0-m\0sglang.launch_server\0")
    host.write("/proc/77/environ", "HOME=/\0VIRTUAL_ENV=/srv/run\0")
    host.venv("/srv/run")
    request = ask(host, "/opt/venvs/b", "/opt/venvs/*", "/opt/nothing*", discover=("running", "usual"))
    venvs = look(request).parts["venvs"]
    told = [(item["path"], item["origin"]) for item in venvs["items"]]
    assert told == [
        ("/opt/venvs/b", "listed"), ("/opt/venvs/a", "listed"), ("/opt/venvs/none", "listed"),
        ("/srv/run", "running"),
    ]  # fmt: skip
    assert venvs["unmatched"] == ["/opt/nothing*"]
    usual = look(Request(sysroot=str(host.root), discover=("usual",))).parts["venvs"]["items"]
    assert [(item["path"], item["item"]) for item in usual] == [
        ("/opt/venvs/a", "usual"), ("/opt/venvs/b", "usual"), ("/srv/run", "usual"),
    ]  # fmt: skip


def test_conda_and_plain_prefixes(host: Host) -> None:
    for name in ("conda", "plain"):
        host.venv(f"/opt/{name}")
        host.at(f"/opt/{name}/bin/activate").unlink()
    host.at("/opt/conda/conda-meta").mkdir()
    host.write("/opt/conda/etc/conda/activate.d/cuda.sh", "export CUDA_HOME=$CONDA_PREFIX/cuda\n")
    host.at("/opt/plain/pyvenv.cfg").unlink()
    answer = look(ask(host, "/opt/conda", "/opt/plain"))
    conda, plain = answer.venv(0)["activation"], answer.venv(1)["activation"]
    assert (conda["kind"], conda["status"], conda["env"]["CUDA_HOME"]) == ("conda", "ok", "/opt/conda/cuda")
    assert conda["python3"]["same"] is True
    assert (plain["kind"], plain["status"], plain["script"]) == ("plain", "ok", None)
    assert plain["env"]["PATH"].startswith("/opt/plain/bin:")


def test_a_newline_in_a_path_is_told_and_harms_nothing(host: Host) -> None:
    host.venv("/opt/two\nlines")
    host.write("/opt/two\nlines/bin/activate", "true\n")
    answer = look(ask(host, "/opt/two\nlines"))
    assert answer.venv()["state"] == "ran"
    assert answer.parts["end"]["reason"] == "done"


def test_a_limit_of_the_host_ends_it_with_what_there_is(host: Host) -> None:
    host.venv("/opt/ml")
    host.at("/opt/ml/bin/python").unlink()
    host.write("/opt/ml/bin/python", "#!/bin/sh\nsleep 1000\n", executable=True)
    answer = look(ask(host, host_limit=2.0))
    assert answer.parts["end"]["reason"] == "limit"
    assert answer.venv()["state"] == "hung"
    assert "system" in answer.parts
