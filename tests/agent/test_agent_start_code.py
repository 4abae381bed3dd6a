"""Start-up code that moves the import: followed as a real start has it, or told, and the verdict left open.

What packages put there by themselves is no doubt.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from agent_host import COMM_PY, FILES, Host, look, pythons
from support.interpreters import interpreter
from test_agent_site import really, same, seen

from fleetcheck.agent.evidence import Request
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import Venv

HEADERS = "flashinfer/data/include/flashinfer/comm/"
NEWER = {
    **FILES,
    "flashinfer/jit/comm.py": COMM_PY.replace("[9, 10]", "[9, 10, 12]"),
    f"{HEADERS}trtllm_allreduce.cuh": "int a;\n",
    "flashinfer/version.py": "__version__ = '0.6.18'\n",
}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path / "root")
    made.gpu()
    return made


def venv_with_another(host: Host) -> tuple[Path, Path]:
    """Make an environment whose package admits these GPUs, and a copy of it elsewhere; returns both folders."""
    site = host.venv("/opt/ml", python=str(interpreter(host.root.parent / "base")), files=NEWER)
    (host.at("/srv/front")).mkdir(parents=True)
    shutil.copytree(site / "flashinfer", host.at("/srv/front/flashinfer"))
    return site, host.at("/srv/front")


def judged(host: Host) -> Venv:
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",)))
    assert answer.parts["end"]["errors"] == []
    return host_facts(answer.parts).venvs[0]


def verdict(venv: Venv) -> tuple[str | None, str | None, list[str]]:
    assert venv.fusion is not None and venv.flashinfer is not None
    return venv.fusion.verdict, venv.flashinfer.basis, [one.word for one in venv.flashinfer.start_files]


MOVES = {
    "an alias": "P = sys.path\nP.insert(0, {front!r})\n",
    "an alias of a method": "put = sys.path.insert\nput(0, {front!r})\n",
    "a parameter": "def go(where, what={front!r}):\n    where.insert(0, what)\n\n\ngo(sys.path)\n",
    "a call in an assignment": "def go():\n    sys.path.insert(0, {front!r})\n\n\nx = go()\n",
    "getattr": "getattr(sys, 'pa' + 'th').insert(0, {front!r})\n",
    "vars": "vars(sys)['path'].insert(0, {front!r})\n",
    "__dict__": "sys.__dict__['path'].insert(0, {front!r})\n",
    "another module's": "import os as o\no.sys.path.insert(0, {front!r})\n",
    "all names of sys": "from sys import *\npath.insert(0, {front!r})\n",
    "a sum": "sys.path = [{front!r}] + sys.path\n",
    "a starred list": "sys.path = [{front!r}, *sys.path]\n",
    "a slice of all": "sys.path[:] = [{front!r}] + list(sys.path)\n",
    "a list that was kept": "old = sys.path[:]\nsys.path.append('/x')\nsys.path = [{front!r}] + old\n",
    "moved back": "sys.path.append({front!r})\nsys.path.remove({site!r})\nsys.path.append({site!r})\n",
    "popped by its value": "sys.path += [{front!r}]\nsys.path.append(sys.path.pop(sys.path.index({site!r})))\n",
    "popped from the end": "sys.path.insert(-1, {front!r})\n",
    "a list that is another by then": "P = sys.path\nsys.path = P + [{front!r}]\nP.insert(0, '/x')\n",
    "a text that is another by then": "X = '/x'\nX = {front!r}\nsys.path.insert(0, X)\n",
}


@pytest.mark.parametrize("how", MOVES)
def test_what_is_plain_to_follow_is_followed(host: Host, how: str) -> None:
    site, front = venv_with_another(host)
    (site / "sitecustomize.py").write_text("import sys\n" + MOVES[how].format(front=str(front), site=str(site)))
    value = seen(host)
    same(host, value)
    assert not [row for row in value["packages"]["flashinfer"]["start_files"] if row.get("unread")]
    assert (really(host)[3] == str(front / "flashinfer/__init__.py")) == (how != "a list that is another by then")


@pytest.mark.parametrize("version", sorted(pythons()))
def test_a_line_of_a_pth_file_moves_the_environments_own_folder(host: Host, version: str) -> None:
    site = host.venv("/opt/ml", python=pythons()[version])
    shutil.copytree(site / "flashinfer", host.at("/srv/front/flashinfer"))
    (site / "a.pth").write_text(
        f"{host.at('/srv/front')}\nimport sys; sys.path.append(sys.path.pop(sys.path.index({str(site)!r})))\n"
    )
    assert really(host)[3] == str(host.at("/srv/front/flashinfer/__init__.py"))
    same(host, seen(host))


def test_a_large_pth_file_is_read_to_its_end(host: Host) -> None:
    site, front = venv_with_another(host)
    last = f"import sys; sys.path.insert(0, {str(front)!r})\n"
    (site / "a.pth").write_text("# x\n" * 40000 + last)
    same(host, seen(host))
    assert seen(host)["packages"]["flashinfer"]["start_files"] == [
        {"file": str(site / "a.pth").removeprefix(str(host.root)), "line": 40001, "word": "sys.path"}
    ]


UNFOLLOWED: dict[str, tuple[str, int | None]] = {
    "a finder": ("sys.meta_path.insert(0, object())\n", 2),
    "a computed entry": ("sys.path.insert(0, make())\n", 2),
    "a sum that is computed": ("sys.path = make() + sys.path\n", 2),
    "removed by a test": ("for p in list(sys.path):\n    if make(p):\n        sys.path.remove(p)\n", 4),
    "a handler": ("try:\n    import nothing\nexcept ImportError:\n    sys.path.insert(0, '/x')\n", 5),
    "a class": ("class A:\n    def go(self):\n        sys.path.insert(0, '/x')\n\n\nA().go()\n", 4),
    "the body of a class": ("class A:\n    sys.path.insert(0, '/x')\n", 3),
    "a method that is not known": ("sys.path.__iadd__(['/x'])\n", 2),
    "handed over": ("make(sys.path)\n", 2),
    "kept in an object": ("class A:\n    pass\n\n\nA.x = sys.path\n", 6),
    "kept in a list": ("x = [sys.path, 1]\nx[0].insert(0, '/x')\n", 2),
    "list's own method": ("list.insert(sys.path, 0, '/x')\n", 2),
    "its method's method": ("sys.path.insert.__call__(0, '/x')\n", 2),
    "a computed name at once": ("getattr(sys, make()).insert(0, '/x')\n", 2),
    "setattr": ("setattr(sys, 'path', [])\n", 2),
    "a computed name": ("x = getattr(sys, make())\n", 2),
    "a name in a branch": ("X = '/x'\nif make():\n    X = '/y'\nsys.path.insert(0, X)\n", 5),
    "another import": ("import builtins\nbuiltins.__import__ = make\n", 3),
    "called in an expression": ("def go():\n    sys.path.insert(0, '/x')\n\n\nmake() and go()\n", 3),
    "reversed": ("sys.path.reverse()\n", 2),
    "too large": ("x = '''\n" + "x\n" * 40000 + "'''\nfrom sys import path as q\nq.insert(0, '/x')\n", 1),
}


@pytest.mark.parametrize("what", UNFOLLOWED)
def test_what_is_not_followed_is_told_and_leaves_the_verdict_open(host: Host, what: str) -> None:
    site, _ = venv_with_another(host)
    assert verdict(judged(host)) == ("patched", "resolved", [])
    text, line = UNFOLLOWED[what]
    (site / "sitecustomize.py").write_text("import sys\n" + text)
    venv = judged(host)
    assert verdict(venv) == ("unknown", "guessed", ["unread"])
    assert venv.flashinfer is not None and venv.fusion is not None
    assert [one.line for one in venv.flashinfer.start_files] == [line]
    assert "sitecustomize.py" in str(venv.fusion.gate_error)


@pytest.mark.parametrize("lines", [b"import os\n" * 8000, b"import os;" + b"x" * 70000 + b"\n", b"# x\n" * 300000])
def test_what_is_cut_of_a_pth_file_is_told(host: Host, lines: bytes) -> None:
    site, front = venv_with_another(host)
    (site / "a.pth").write_bytes(lines + f"import sys; sys.path.insert(0, {str(front)!r})\n".encode())
    assert verdict(judged(host)) == ("unknown", "guessed", ["unread"])


@pytest.mark.parametrize(
    "name", ["FLASHINFER_CUDA_ARCH_LIST", "FLASHINFER_WORKSPACE_BASE", "FLASHINFER_CSRC", "FLASHINFER_CUBIN_DIR"]
)
def test_a_variable_of_flashinfer_is_told(host: Host, name: str) -> None:
    site, _ = venv_with_another(host)
    (site / "sitecustomize.py").write_text(f"import os\nos.environ[{name!r}] = 'x'\n")
    assert verdict(judged(host))[2] == ["flashinfer"]


@pytest.mark.parametrize("text", ["FLASHINFER", "FLASHINFER_MLA", "VLLM_USE_FLASHINFER_SAMPLER"])
def test_a_backend_of_vllm_is_no_variable_of_flashinfer(host: Host, text: str) -> None:
    site, _ = venv_with_another(host)
    (site / "sitecustomize.py").write_text(f"import os\nos.environ.setdefault('X', {text!r})\n")
    assert verdict(judged(host)) == ("patched", "resolved", [])


COVERAGE = (
    'import sys; exec(\'import os\\n\\nif os.getenv("COVERAGE_PROCESS_START"):\\n try:\\n  import coverage\\n '
    "except:\\n  pass\\n else:\\n  coverage.process_startup()')\n"
)
USUAL: dict[str, dict[str, str]] = {
    "setuptools": {
        "distutils-precedence.pth": "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; "
        "enabled = os.environ.get(var, 'local') == 'local'; "
        "enabled and __import__('_distutils_hack').add_shim();\n",
        "_distutils_hack/__init__.py": "import sys\n\n\ndef add_shim():\n    sys.meta_path.insert(0, object())\n",
    },
    "virtualenv": {
        "_virtualenv.pth": "import _virtualenv",
        "_virtualenv.py": "import sys\n\n\nclass _Finder:\n    pass\n\n\nsys.meta_path.insert(0, _Finder())\n",
    },
    "a namespace": {
        "zope-nspkg.pth": "import sys, types, os;has_mfs = sys.version_info > (3, 5);"
        "p = os.path.join(sys._getframe(1).f_locals['sitedir'], *('zope',));"
        "importlib = has_mfs and __import__('importlib.util');"
        "has_mfs and __import__('importlib.machinery');"
        "m = has_mfs and sys.modules.setdefault('zope', importlib.util.module_from_spec("
        "importlib.machinery.PathFinder.find_spec('zope', [os.path.dirname(p)])));"
        "m = m or sys.modules.setdefault('zope', types.ModuleType('zope'));"
        "mp = (m or []) and m.__dict__.setdefault('__path__',[]);(p not in mp) and mp.append(p)\n",
        "zope/x.py": "",
    },
    "an editable of another package": {
        "__editable__.corp-1.pth": "import __editable___corp_1_finder; __editable___corp_1_finder.install()",
        "__editable___corp_1_finder.py": "import sys\nMAPPING = {'corp': '/srv/corp'}\nNAMESPACES = {}\n"
        "PATH_PLACEHOLDER = '__editable__.corp-1.finder' + '.__path_hook__'\n\n\nclass _Finder:\n    pass\n\n\n"
        "def install():\n    if not any(finder == _Finder for finder in sys.meta_path):\n"
        "        sys.meta_path.append(_Finder)\n    sys.path_hooks.append(_Finder)\n"
        "    if PATH_PLACEHOLDER not in sys.path:\n        sys.path.append(PATH_PLACEHOLDER)\n",
    },
    "coverage": {
        "a1_coverage.pth": COVERAGE,
        "coverage/__init__.py": "from coverage.control import Coverage, process_startup\n",
        "coverage/control.py": "import os\nimport sys\n\n\nclass Coverage:\n    def __init__(self):\n"
        "        self.places = [one for one in sys.path if one]\n"
        "        self.first = sys.path[0] if sys.path else ''\n"
        "\n\ndef process_startup():\n    cps = os.getenv('COVERAGE_PROCESS_START')\n    if cps is None:\n"
        "        return None\n    cov = Coverage()\n    return cov\n",
    },
    "pytest-cov": {
        "pytest-cov.pth": "import os, sys;exec('if \"COV_CORE_SOURCE\" in os.environ:\\n try:\\n  "
        "from pytest_cov.embed import init\\n  init()\\n except Exception as exc:\\n  "
        "sys.stderr.write(\"{0!r}\".format(exc))')\n",
        "pytest_cov/__init__.py": "",
        "pytest_cov/embed.py": "import os\n\n\ndef init():\n    os.environ.get('COV_CORE_CONFIG')\n",
    },
    "Debian's apport": {
        "sitecustomize.py": "# install the apport exception handler if available\ntry:\n"
        "    import apport_python_hook\nexcept ImportError:\n    pass\nelse:\n    apport_python_hook.install()\n",
        "apport_python_hook.py": "import os\nimport sys\n\n\ndef apport_excepthook(exc_type, exc_obj, exc_tb):\n"
        "    from apport.fileutils import likely_packaged\n    binary = os.path.realpath(sys.argv[0])\n"
        "    likely_packaged(binary)\n\n\ndef install():\n    sys.excepthook = apport_excepthook\n",
    },
    "ddtrace": {
        "sitecustomize.py": "import os\nimport sys\n\nfrom ddtrace.internal.module import ModuleWatchdog\n\n"
        "ModuleWatchdog.install()\nbootstrap_dir = os.path.abspath(os.path.dirname(__file__)) + '/bootstrap'\n"
        "if bootstrap_dir in sys.path:\n    index = sys.path.index(bootstrap_dir)\n    del sys.path[index]\n",
        "ddtrace/__init__.py": "from ddtrace.internal.module import ModuleWatchdog\n",
        "ddtrace/internal/__init__.py": "",
        "ddtrace/internal/module.py": "import sys\n\n\nclass ModuleWatchdog:\n    @classmethod\n"
        "    def install(cls):\n        sys.meta_path.insert(0, cls)\n",
    },
    "looks": {
        "sitecustomize.py": "import os, sys\nprint(sys.path, file=sys.stderr)\nx = os.pathsep.join(sys.path)\n"
        "n = len(sys.path)\nseen = set(sys.path)\nif sys.path and '/x' in sys.path:\n    n = 1\n"
        "for one in sys.path:\n    n += 1\nfrozen = getattr(sys, 'frozen', False)\n"
        "text = f'{sys.path!r}'\nfirst = sys.path[-1]\nsys.path_importer_cache.clear()\n"
        "more = sys.path + ['/y']\nmore.insert(0, '/x')\n"
        "import builtins\nmore = builtins.__import__('os')\nif n > 99:\n    builtins.__import__('os')\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("who", USUAL)
def test_what_packages_put_there_is_no_doubt(host: Host, who: str) -> None:
    site, _ = venv_with_another(host)
    for name, text in USUAL[who].items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    assert verdict(judged(host)) == ("patched", "resolved", [])


@pytest.mark.parametrize("version", sorted(pythons()))
@pytest.mark.parametrize("text", [b"/srv/caf\xe9\n", b"import sys  # caf\xe9\n", b"# \xff\n"])
def test_a_pth_file_that_keeps_python_from_starting(host: Host, version: str, text: bytes) -> None:
    """The strict decoding of ``site``: UTF-8 since the locale is, and since 3.13 by itself first."""
    import subprocess

    site = host.venv("/opt/ml", python=pythons()[version], files=NEWER)
    (site / "a.pth").write_bytes(text)
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    command = [str(host.at("/opt/ml/bin/python")), "-c", "print(1)"]
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    assert (done.returncode != 0, done.stdout) == (True, b"")
    answer: Any = look(Request(sysroot=str(host.root), venvs=("/opt/ml",)), env={**env, "HOME": "/root"})
    venv = host_facts(answer.parts).venvs[0]
    assert (venv.state, venv.flashinfer) == ("broken", None)
    assert str(venv.error).endswith(
        "/site-packages/a.pth cannot be decoded as utf-8, so that this Python does not start"
    )
    assert str(host.root) not in str(venv.error)
