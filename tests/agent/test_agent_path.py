"""Which FlashInfer an activated shell imports: PYTHONPATH of the activation, and files that Python runs first.

None of what they lead to is executed by the look.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from agent_host import Host, look
from support.interpreters import interpreter
from test_agent_safety import poison

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program import startfiles
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import FlashInfer

TRAPS = ("ast", "csv", "hashlib", "glob", "json", "sitecustomize", "usercustomize", "torch/__init__", "zlib")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def copy_of(site: Path, place: Path) -> Path:
    """Put a copy of the package into a folder of modules that must not run; returns the folder."""
    shutil.copytree(site / "flashinfer", place / "flashinfer")
    (place / "flashinfer/version.py").write_text("__version__ = '0.6.17'\n")
    return place


def seen(host: Host, login: str = "") -> tuple[dict[str, Any], FlashInfer]:
    """Return the package as it came back, and what is said of it."""
    env = {**os.environ, "HOME": "/root", "PYTHONPATH": login}
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml",)), env=env)
    assert answer.parts["end"]["errors"] == []
    found = host_facts(answer.parts).venvs[0].flashinfer
    assert found is not None
    value: dict[str, Any] = answer.venv()["packages"]["flashinfer"]
    return value, found


def test_the_activation_decides_and_nothing_of_it_runs(host: Host, tmp_path: Path) -> None:
    site = host.venv("/opt/ml")
    front = copy_of(site, host.at("/srv/front"))
    marker = tmp_path / "executed"
    for name in TRAPS:
        poison(front / f"{name}.py", marker)
    (site / "flashinfer/jit/env.py").write_text("edited, (so that ast is needed)\nFLASHINFER_CSRC_DIR = 1 + 1\n")
    (front / "flashinfer/jit/env.py").write_text(
        "import pathlib\nFLASHINFER_CSRC_DIR = pathlib.Path('/srv/own')\n"
    )
    with host.at("/opt/ml/bin/activate").open("a") as script:
        script.write(f"export PYTHONPATH=relative:/srv/empty:{front}:$PYTHONPATH\n")
    value, found = seen(host, "/srv/login")
    assert not marker.exists()
    assert (found.root, found.version, found.env_record) == ("/srv/front/flashinfer", "0.6.17", "no-record")
    assert found.csrc_dir == "/srv/own"
    assert found.hidden is not None
    assert (found.hidden.by, found.hidden.path.endswith("/site-packages/flashinfer")) == ("activation", True)
    assert (found.install, found.distributions, found.modified, found.shadows) == ("source", (), (), ())
    assert [(row["file"], row["word"]) for row in value["start_files"]] == []


@pytest.mark.parametrize("module", ["flashinfer.py", "flashinfer.abi3.so"])
@pytest.mark.parametrize("by", ["activation", "start-up"])
def test_a_module_in_front_is_told_with_what_put_it_there(
    host: Host, tmp_path: Path, by: str, module: str
) -> None:
    site = host.venv("/opt/ml", python=str(interpreter(tmp_path / "base")))
    front = host.write(f"/srv/front/{module}", "raise SystemExit('executed')\n").parent
    if by == "activation":
        with host.at("/opt/ml/bin/activate").open("a") as script:
            script.write(f"export PYTHONPATH={front}\n")
    else:
        (site / "x.pth").write_text(f"import sys; sys.path.insert(0, {str(front)!r})\n")
    _, found = seen(host)
    assert found.hidden is not None
    assert (found.hidden.by, found.hidden.path.endswith("/site-packages/flashinfer")) == (by, True)
    assert (found.root, found.csrc_dir, found.env_error) == (
        f"/srv/front/{module}", None, "jit/env.py is not there"
    )  # fmt: skip
    assert [one.word for one in found.start_files] == ([] if by == "activation" else ["sys.path"])


def test_what_the_login_has_in_front_is_told_apart(host: Host) -> None:
    site = host.venv("/opt/ml")
    login = copy_of(site, host.at("/srv/login"))
    with host.at("/opt/ml/bin/activate").open("a") as script:
        script.write("export PYTHONPATH=/srv/empty:$PYTHONPATH\n")
    value, found = seen(host, str(login))
    assert (found.root, found.hidden) == (value["root"], None)
    assert str(found.root).startswith("/opt/ml/lib")
    assert [(one.by, one.path) for one in found.shadows] == [("PYTHONPATH", "/srv/login/flashinfer")]


def test_an_activation_that_changes_nothing(host: Host) -> None:
    host.venv("/opt/ml")
    value, found = seen(host, "/srv/a:/srv/b")
    assert (value["hidden"], value["start_files"], value["shadows"]) == (None, [], [])
    assert found.basis == "resolved"


def test_start_files_are_read_by_their_lines_that_run(host: Host) -> None:
    site = host.venv("/opt/ml")
    (site / "a.pth").write_text("# import flashinfer\n/srv/flashinfer\nimport os; x = 1  # flashinfer\n")
    (site / "b.pth").write_text("import os\nimport late, flash_late as f; x = 1\n")
    (site / "flash_late.py").write_text("import deeper\n\n\nx = 'flashinfer'  # FLASHINFER_CSRC_DIR\n")
    (site / "deeper/__init__.py").parent.mkdir()
    (site / "deeper/__init__.py").write_text("\nfrom os import environ\nenviron['FLASHINFER_CSRC_DIR'] = ''\n")
    (site / "c.txt").write_text("import flashinfer\n")
    (site / ".hidden.pth").write_text("import sys; sys.flashinfer = 1\n")
    (site / "late.py").write_text("x = 1\n")
    value, found = seen(host)
    told = [(Path(row["file"]).name, row["line"], row["word"]) for row in value["start_files"]]
    # Releases before gh-113659 run a file whose name begins with a dot: what this one does is what counts.
    hidden = first_module(host, "import sys; print(hasattr(sys, 'flashinfer'))") == ["False"]
    late = [("flash_late.py", 4, "flashinfer"), ("__init__.py", 3, "FLASHINFER_CSRC_DIR")]
    assert told == ([] if hidden else [(".hidden.pth", 1, "flashinfer")]) + late
    assert found.basis == "guessed"
    assert [one.word for one in found.start_files][-2:] == ["flashinfer", "FLASHINFER_CSRC_DIR"]


PROSE = '''"""What flashinfer does with sys.path and FLASHINFER_CSRC_DIR.

import flash_late
'''


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("sitecustomize.py", PROSE + '"""\nx = 1  # flashinfer\n', []),
        ("sitecustomize.py", 'def f():\n    """Mends flashinfer."""\n\n\nclass A:\n    "flashinfer"\n', []),
        ("sitecustomize.py", PROSE + '"""\nx = """\na # flashinfer\n"""\n', [(6, "flashinfer")]),
        ("sitecustomize.py", 'import os\nos.environ["#FLASHINFER_CSRC_DIR"] = ""\n', [(2, "FLASHINFER_CSRC_DIR")]),
        ("sitecustomize.py", "def f():\n    import flashinfer.jit as j\n", [(2, "flashinfer")]),
        ("sitecustomize.py", "f(flashinfer=1)\n\nglobal flashinfer\n", [(1, "flashinfer"), (3, "flashinfer")]),
        ("sitecustomize.py", "not python: flashinfer\n# flashinfer\n", [(1, "flashinfer")]),
        ("a.pth", "import os; 'flashinfer'; x = 1  # flashinfer\n", []),
        ("a.pth", "import os; x = '# flashinfer'\n", [(1, "flashinfer")]),
        ("a.pth", "/srv\nimport flash_doc\n", []),
        ("a.pth", "import flash_doc, flash_late\n", [(4, "flashinfer")]),
    ],
)  # fmt: skip
def test_words_of_comments_and_docstrings_do_not_count(
    host: Host, tmp_path: Path, name: str, text: str, told: list[tuple[int, str]]
) -> None:
    site = host.venv("/opt/ml", python=str(interpreter(tmp_path / "base")))
    (site / "flash_late.py").write_text("\n\n\nx = 'flashinfer'\n")
    (site / "flash_doc.py").write_text(PROSE + '"""\n')
    (site / name).write_text(text)
    value, found = seen(host)
    assert [(row["line"], row["word"]) for row in value["start_files"]] == told
    assert (found.basis == "guessed") == any(word == "FLASHINFER_CSRC_DIR" for _, word in told)


def first_module(host: Host, code: str) -> list[str]:
    """Return what the environment's real interpreter prints."""
    command = [str(host.at("/opt/ml/bin/python")), "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_change_of_the_path_counts_where_something_came_in_front(host: Host, tmp_path: Path) -> None:
    site = host.venv("/opt/ml", python=str(interpreter(tmp_path / "base")))
    (site / "sitecustomize.py").write_text("import sys\nsys.path.append('/nothing')\n")
    _, quiet = seen(host)
    assert (quiet.start_files, quiet.hidden) == ((), None)
    front = copy_of(site, host.at("/srv/front"))
    (site / "sitecustomize.py").write_text(f"import sys\nsys.path.insert(0, {str(front)!r})\n")
    _, told = seen(host)
    assert [(one.line, one.word) for one in told.start_files] == [(2, "sys.path")]
    assert told.hidden is not None
    assert (told.root, told.hidden.by) == ("/srv/front/flashinfer", "start-up")
    assert first_module(host, "import sitecustomize as s, sys; print(s.__file__, sys.path[1], sep='\\n')") == [
        str(site / "sitecustomize.py"), str(front)
    ]  # fmt: skip


def test_a_sitecustomize_of_the_standard_library_comes_before_an_environments(host: Host, tmp_path: Path) -> None:
    base = tmp_path / "base"
    python = interpreter(base, "import sys\nsys.flashinfer = 1\n")
    library = next(base.glob("lib/python3.*"))
    site = host.venv("/opt/ml", python=str(python))
    front = copy_of(site, host.at("/srv/front"))
    own = f"import sys\nsys.path.insert(0, {str(front)!r})\nFLASHINFER_CSRC_DIR = 1\n"
    (site / "sitecustomize.py").write_text(own)
    asked = "import sitecustomize as s, sys; print(s.__file__, sys.flashinfer, {0!r} in sys.path, sep='\\n')"
    runs = str(library / "sitecustomize.py")
    assert first_module(host, asked.format(str(front))) == [runs, "1", "False"]
    _, told = seen(host)
    assert [(one.file, one.line, one.word) for one in told.start_files] == [(runs, 2, "flashinfer")]
    assert (told.hidden, str(told.root).startswith("/opt/ml/lib")) == (None, True)
    (library / "sitecustomize.py").unlink()
    _, told = seen(host)
    assert (told.root, {one.file for one in told.start_files}) == (
        "/srv/front/flashinfer", {"/" + str((site / "sitecustomize.py").relative_to(host.root))}
    )  # fmt: skip


def test_odd_start_files_are_bounded(host: Host) -> None:
    site = host.venv("/opt/ml")
    (site / "big.py").write_text("x = 'flashinfer'\n" * 100)
    (site / "big.pth").write_text("import big, ring\n" * 20000)
    (site / "ring.py").write_text("import ring, ring2\n")
    (site / "ring2.py").write_text("import ring\n")
    (site / "loop.pth").symlink_to("loop.pth")
    (site / "folder.pth").mkdir()
    value, _ = seen(host)
    assert len(value["start_files"]) == startfiles.MOST_TOLD
    assert {Path(row["file"]).name for row in value["start_files"]} == {"big.py"}
