"""What ``site`` would do at a start is read as data: nothing of it runs, and the answer is a real start's."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from agent_host import FILES, Host, look, pythons, tree
from support.interpreters import interpreter
from test_agent_safety import alive

from fleetcheck.agent.evidence import Request
from fleetcheck.facts.host import host_facts

REAL = """
import importlib.util, json, sys
spec = importlib.util.find_spec("flashinfer")
print(json.dumps([sys.prefix, sys.base_prefix, sys.path, spec and spec.origin]))
"""
FORK = "import os, time; pid = os.fork(); pid or time.sleep(300); open({0!r}, 'w').write(str(pid))"
HOSTILE = {
    "import torch": "import torch",
    "a file": "import os; open({0!r}, 'w').close()",
    "a child": FORK,
    "a patched os": "import os; os.path.isfile = os.path.isdir = os.path.exists = lambda path: False",
    "fd 4": "import os; os.write(4, b'{{}}\\n{{}}\\n')",
    "an end": "import os; os._exit(0)",
    "a wait": "import time; time.sleep(300)",
    "noise": "import sys; sys.stdout.write('x' * 100000)",
}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def seen(host: Host, path: str = "/opt/ml") -> dict[str, Any]:
    answer = look(Request(sysroot=str(host.root), venvs=(path,)))
    assert answer.parts["end"]["errors"] == []
    return answer.venv()


def really(host: Host, path: str = "/opt/ml") -> list[Any]:
    """Return prefix, base prefix, path and FlashInfer's file as an isolated start of the interpreter has them."""
    command = [str(host.at(path) / "bin/python"), "-I", "-B", "-c", REAL]
    said: list[Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return said


def same(host: Host, value: dict[str, Any], path: str = "/opt/ml") -> None:
    """Ask that what was read as data is what a real start has."""
    prefix, base, entries, origin = really(host, path)
    root = str(host.root)

    def shown(text: str) -> str:
        return text.removeprefix(root)

    found = value["interpreter"]
    assert (found["prefix"], found["base_prefix"]) == (shown(prefix), shown(base))
    assert found["sys_path"] == [shown(one) for one in entries][:64]
    assert value["packages"]["flashinfer"]["origin"] == (origin and shown(origin))


@pytest.mark.parametrize("how", ["pth", "sitecustomize", "usercustomize"])
@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_that_a_start_runs_is_executed(host: Host, tmp_path: Path, what: str, how: str) -> None:
    site = host.venv("/opt/ml", python=str(interpreter(tmp_path / "base")))
    marker = tmp_path / "executed"
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    (site / "torch/version.py").write_text("__version__ = '2.9.0'\ncuda = '13.0'\n")
    line = HOSTILE[what].format(str(marker)) + "\n"
    (site / ("bad.pth" if how == "pth" else f"{how}.py")).write_text(line)
    before = tree(host.root)
    value = seen(host)
    assert not marker.exists(), alive([int(marker.read_text() or 0)])
    assert tree(host.root) == before
    assert (value["state"], value["stderr"], value["activation"]["python3"]["same"]) == ("ran", "", True)
    found = value["packages"]["flashinfer"]
    assert (found["spec"], found["root"]) == ("file", str(site / "flashinfer").removeprefix(str(host.root)))
    assert (found["csrc"][0]["exists"], found["csrc"][0]["missing"], found["checked"]) == (True, [], len(FILES))
    assert value["packages"]["torch"]["files"][0]["text"].endswith("cuda = '13.0'\n")
    assert len(value["interpreter"]["sys_path"]) == len(set(value["interpreter"]["sys_path"])) > 2


@pytest.mark.parametrize("version", sorted(pythons()))
@pytest.mark.parametrize("system", ["false", "true", None])
def test_the_path_is_that_of_a_real_start(host: Host, version: str, system: str | None) -> None:
    site = host.venv("/opt/ml", python=pythons()[version])
    lines = host.at("/opt/ml/pyvenv.cfg").read_text().splitlines()
    more = [] if system is None else [f"Include-System-Site-Packages = {system.title()}"]
    host.at("/opt/ml/pyvenv.cfg").write_text("\n".join([*lines[:1], *more]) + "\n")
    for name in ("a", "b c", "later", "lib/x"):
        host.at(f"/srv/{name}").mkdir(parents=True)
    srv = host.at("/srv")
    (site / "z.pth").write_text(f"{srv}/later\n{srv}/a\n")
    (site / "b.pth").write_text(
        f"# no\n\n  \n{srv}/a\n{srv}/a/../b c  \r\n{srv}/gone\nflashinfer\n../../x\n{site}\n"
    )
    (site / ".hidden.pth").write_text(f"{srv}/lib/x\n")
    (site / "B.pth").write_bytes(f"\ufeff{srv}/lib\n".encode())
    (site / "names.txt").write_text(f"{srv}\n")
    (site / "folder.pth").mkdir()
    same(host, seen(host))


@pytest.mark.parametrize("version", sorted(pythons()))
def test_an_interpreter_without_an_environment(host: Host, version: str) -> None:
    value = look(Request(venvs=(str(Path(pythons()[version]).parents[1]),))).venv()
    python = pythons()[version]
    command = [str(Path(python).parent / "python3"), "-I", "-B", "-c", REAL]
    if not Path(command[0]).exists() or os.path.realpath(command[0]) != os.path.realpath(python):
        pytest.skip("its folder has another python3 too")
    prefix, base, entries, origin = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    found = value["interpreter"]
    assert (found["prefix"], found["base_prefix"], found["sys_path"]) == (prefix, base, entries)
    assert value["packages"]["flashinfer"]["origin"] == origin


def moved(host: Host) -> tuple[Path, Path]:
    """Make an environment whose FlashInfer lies in a folder of its own; returns both."""
    site = host.venv("/opt/ml", python=str(interpreter(host.root.parent / "base")))
    repo = host.at("/srv/repo")
    repo.mkdir(parents=True)
    (site / "flashinfer").rename(repo / "flashinfer")
    return site, repo


FINDER = """import sys
from importlib.util import spec_from_file_location
{0}

class _EditableFinder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in MAPPING:
            return spec_from_file_location(name, MAPPING[name] + "/__init__.py")


def install():
    sys.meta_path.append(_EditableFinder)
"""
EDITABLE: dict[str, dict[str, str]] = {
    "path": {"__editable__.flashinfer_python-0.6.2.pth": "{repo}\n"},
    "easy-install": {"easy-install.pth": "{repo}\n", "flashinfer-python.egg-link": "{repo}\n.\n"},
    "setuptools": {
        "__editable__.x-1.pth": "import __editable___x_1_finder; __editable___x_1_finder.install()",
        "__editable___x_1_finder.py": FINDER.format("MAPPING = {{'flashinfer': {repo!r} '/flashinfer'}}\n"),
    },
    "setuptools, annotated": {
        "__editable__.x-1.pth": "import __editable___x_1_finder; __editable___x_1_finder.install()",
        "__editable___x_1_finder.py": "from __future__ import annotations\n"
        + FINDER.format(
            "MAPPING: dict[str, str] = {{'a': '/nowhere', 'flashinfer': {repo!r} '/flashinfer'}}\n"
            "NAMESPACES: dict[str, list[str]] = {{}}\n"
        ),
    },
    "scikit-build-core": {
        "_x_editable.pth": "import _x_editable\n",
        "_x_editable.py": "import sys\nfrom importlib.util import spec_from_file_location\n\n\nclass Finder:\n"
        "    def __init__(self, files):\n        self.files = files\n\n"
        "    def find_spec(self, name, path=None, target=None):\n        if name in self.files:\n"
        "            return spec_from_file_location(name, self.files[name])\n\n\n"
        "def install(files, others):\n    sys.meta_path.insert(0, Finder(files))\n\n\n"
        "install({{'flashinfer': {repo!r} '/flashinfer/__init__.py'}}, {{}})\n",
    },
    "the package editables": {
        "_x.pth": "import _editable_impl_x\n",
        "_editable_impl_x.py": "from redirector import Finder as F\n\nF.install()\n"
        "F.map_module('flashinfer', {repo!r} '/flashinfer/__init__.py')\n",
        "redirector.py": "import sys\nfrom importlib.util import spec_from_file_location\n\n\nclass Finder:\n"
        "    known = {{}}\n\n    @classmethod\n    def install(cls):\n        sys.meta_path.append(cls)\n\n"
        "    @classmethod\n    def map_module(cls, name, file):\n        cls.known[name] = file\n\n"
        "    @classmethod\n    def find_spec(cls, name, path=None, target=None):\n"
        "        if name in cls.known:\n            return spec_from_file_location(name, cls.known[name])\n",
    },
    "a literal line": {"x.pth": "import sys; sys.path.insert(0, {repo!r})\n"},
    "sitedir": {"x.pth": "import site, os; site.addsitedir(os.path.join(sitedir, '../../../../../srv/repo'))\n"},
    "a function of a package": {
        "x.pth": "import corp.start; corp.start.go({repo!r})\n",
        "corp/__init__.py": "",
        "corp/start.py": "import os, sys\n\n\ndef go(path):\n    if os.path.isdir(path) and True:\n        pass\n"
        "    if path not in sys.path:\n        sys.path[:0] = [path]\n",
    },
    "sitecustomize": {
        "sitecustomize.py": "import os, sys\nHERE = {repo!r}\ntry:\n    for one in (HERE, '/nowhere'):\n"
        "        if os.path.isdir(one):\n            sys.path.append(one)\nfinally:\n    pass\n",
    },
}


@pytest.mark.parametrize("how", EDITABLE)
def test_every_kind_of_editable_install_is_found(host: Host, how: str) -> None:
    site, repo = moved(host)
    for name, text in EDITABLE[how].items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text.format(repo=str(repo)))
    assert really(host)[3] == str(repo / "flashinfer/__init__.py")
    value = seen(host)
    same(host, value)
    assert not [row for row in value["packages"]["flashinfer"]["start_files"] if row.get("unread")]


UNREAD = {
    "a finder": "class F:\n    pass\n\n\nsys.meta_path.insert(0, F)\n",
    "a path that is computed": "sys.path.insert(0, make())\n",
    "an assignment": "sys.path = make() + sys.path\n",
    "under a condition": "if make():\n    sys.path.insert(0, '/x')\n",
    "in a loop": "while make():\n    sys.path[:0] = ['/x']\n",
    "a hook": "import sys as s\ns.path_hooks.insert(0, make)\n",
    "out of a file": "exec(open('/x').read())\n",
}


@pytest.mark.parametrize("what", UNREAD)
def test_what_cannot_be_read_is_told(host: Host, tmp_path: Path, what: str) -> None:
    site = host.venv("/opt/ml", python=str(interpreter(tmp_path / "base")))
    text = "import sys\n" + UNREAD[what]
    (site / "sitecustomize.py").write_text(text)
    rows = seen(host)["packages"]["flashinfer"]["start_files"]
    assert [Path(row["file"]).name for row in rows if row.get("unread")] == ["sitecustomize.py"], rows
    assert text.splitlines()[rows[0]["line"] - 1].strip().startswith(("sys", "s.", "exec"))


def test_a_package_that_only_unread_code_can_lead_to_is_not_called_absent(host: Host) -> None:
    site, _ = moved(host)
    (site / "x.pth").write_text("import own_finder\n")
    (site / "own_finder.py").write_text("import sys\n\nsys.meta_path.append(object())\n")
    found = seen(host)["packages"]["flashinfer"]
    where = str(site / "own_finder.py").removeprefix(str(host.root))
    assert (found["spec"], found["error"].startswith(f"{where}:3 ")) == ("error", True)
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",)))
    assert host_facts(answer.parts).venvs[0].state == "unreadable"


def test_usual_start_files_are_no_doubt(host: Host) -> None:
    site = host.venv("/opt/ml")
    (site / "distutils-precedence.pth").write_text(
        "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; "
        "enabled and __import__('_distutils_hack').add_shim(); \n"
    )
    (site / "_distutils_hack").mkdir()
    (site / "_distutils_hack/__init__.py").write_text("import sys\nsys.meta_path.insert(0, object())\n")
    (site / "_virtualenv.pth").write_text("import _virtualenv")
    (site / "_virtualenv.py").write_text("import sys\nsys.meta_path.insert(0, object())\n")
    (site / "x-nspkg.pth").write_text(
        "import sys, types, os;p = os.path.join(sys._getframe(1).f_locals['sitedir'], *('x',));"
        "m = sys.modules.setdefault('x', types.ModuleType('x'));(p not in m.__path__) and m.__path__.append(p)\n"
    )
    assert seen(host)["packages"]["flashinfer"]["start_files"] == []


def test_odd_start_code_is_bounded(host: Host) -> None:
    site = host.venv("/opt/ml")
    (site / "a.pth").write_text(
        "import deep, wide, ring, nul, bad, calls\nimport sys; sys.path.insert(0, " + "(" * 9000
    )
    (site / "deep.py").write_text("import sys\nsys.path.insert(0, " + "-" * 20000 + "1)\n")
    (site / "wide.py").write_text("import sys\n" + "sys.path.insert(0, '/x')\n" * 9000)
    (site / "ring.py").write_text("import ring\nimport sys\nx = x\nsys.path.insert(0, x)\n")
    (site / "nul.py").write_bytes(b"import sys\0\n")
    (site / "bad.py").write_text("import sys\nsys.path.insert(\n")
    (site / "calls.py").write_text("def a(x):\n    a(x)\n    a(x)\n\n\na(1)\n")
    value = seen(host)
    assert value["state"] == "ran"
    assert len(value["packages"]["flashinfer"]["start_files"]) <= 20


def test_python3_of_a_wrapper_is_asked_for_its_environment(host: Host) -> None:
    """A shim's file tells nothing: the interpreter has to be asked, and runs without ``site``."""
    site = host.venv("/opt/ml")
    marker = host.root.parent / "executed"
    (site / "x.pth").write_text(f"import os; open({str(marker)!r}, 'w').close()\n")
    shims = host.write(
        "/opt/shims/python3", f'#!/bin/sh\nexec {host.at("/opt/ml/bin/python")} "$@"\n', executable=True
    )
    with host.at("/opt/ml/bin/activate").open("a") as script:
        script.write(f'PATH="{shims.parent}:$PATH"\n')
    told = seen(host)["activation"]["python3"]
    assert (told["path"], told["prefix"], told["same"]) == ("/opt/shims/python3", "/opt/ml", True)
    assert not marker.exists()
