"""Nothing is executed that should not be, nothing is written, nothing outlives its connection."""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import signal
import subprocess
import time
import tokenize
from pathlib import Path

import pytest
from agent_host import FILES, Host, look, pythons, read_until, shells, start, this_python, tree

from fleetcheck.agent.bundle import (
    HOST,
    INSIDE,
    agent_text,
    inside_text,
    new_marker,
    program,
    remote_command,
    script,
)
from fleetcheck.agent.evidence import Request
from fleetcheck.agent.frame import Collector


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def poison(place: Path, marker: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"open({str(marker)!r}, 'w').close()\nraise SystemExit('executed')\n")


@pytest.mark.parametrize("version", sorted(pythons()))
def test_the_program_runs_under_each_python(host: Host, version: str) -> None:
    python = pythons()[version]
    host.venv("/opt/ml env", python=python)
    host.smi("echo '0, GPU-1'\n")
    answer = look(Request(sysroot=str(host.root), venvs=("/opt/ml env",)), pythons=(python,))
    assert (answer.stderr, answer.collector.notes) == ("", [])
    assert answer.parts["end"]["errors"] == []
    assert answer.parts["agent"]["python"].startswith(version + ".")
    value = answer.venv()
    assert value["state"] == "ran"
    assert value["interpreter"]["version"].startswith(version + ".")
    assert value["packages"]["flashinfer"]["spec"] == "file"
    assert value["packages"]["flashinfer"]["checked"] == len(FILES)
    assert value["activation"]["python3"]["same"] is True


def old_pythons() -> dict[str, str]:
    """Return the Pythons older than 3.8 that this machine has, and one that only says that it is."""
    found = {}
    for version in ("2.7", "3.6", "3.7"):
        folder = Path("~/.pyenv/versions").expanduser()
        paths = [str(path) for path in sorted(folder.glob(f"{version}.*/bin/python{version}"))]
        path = next(iter(paths), None) or shutil.which(f"python{version}")
        if path is not None and subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0:
            found[version] = path
    return {**found, "pretended": ""}


def pretending(host: Host) -> str:
    """Make an interpreter that runs this one with another version in ``sys.version_info``."""
    code = "import sys; sys.version_info = (3, 7, 3); exec(sys.stdin.read())"
    body = f"#!/bin/sh\nexec {this_python()} -I -c '{code}' \"$@\"\n"
    return str(host.write("/usr/old/python3", body, executable=True))


@pytest.mark.parametrize("version", sorted(old_pythons()))
def test_an_older_python_says_so(host: Host, version: str) -> None:
    path = old_pythons()[version] or pretending(host)
    answer = look(Request(), pythons=(path,))
    assert answer.parts["agent"]["via"] == "sh"
    assert answer.collector.ended


@pytest.mark.parametrize("version", sorted(old_pythons()))
def test_an_environment_of_an_older_python(host: Host, version: str) -> None:
    host.venv("/opt/old")
    host.at("/opt/old/bin/python").unlink()
    host.at("/opt/old/bin/python").symlink_to(old_pythons()[version] or pretending(host))
    value = look(Request(sysroot=str(host.root), venvs=("/opt/old",))).venv()
    if version == "2.7":  # it knows no -I
        assert value["state"] == "broken"
    else:
        wanted = "3.7.3" if version == "pretended" else f"{version}."
        assert (value["state"], value["error"].startswith(wanted)) == ("too-old", True)


def test_nothing_of_the_login_or_of_a_package_is_executed(host: Host, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    site = host.venv("/opt/ml")
    for name in (
        "torch",
        "flashinfer",
        "sglang",
        "vllm",
        "flashinfer/jit",
        "flashinfer_cubin",
        "flashinfer_jit_cache",
    ):
        poison(site / name / "__init__.py", marker)
    (site / "torch/version.py").write_text("__version__ = '2.9.0'\ncuda = '13.0'\n")
    login = tmp_path / "login"
    for name in (
        "json.py",
        "os.py",
        "re.py",
        "site.py",
        "sitecustomize.py",
        "usercustomize.py",
        "flashinfer.py",
        "_json.py",
    ):
        poison(login / name, marker)
        poison(tmp_path / "pythonpath" / name, marker)
    for tool in ("python3", "python", "nvidia-smi", "sed", "cat", "sh"):
        (login / tool).write_text(f"#!/bin/sh\n: >{marker}\n")
        (login / tool).chmod(0o755)
    (login / ".profile").write_text(f": >{marker}\n")
    env = {
        "HOME": str(login), "PATH": f".:{login}::/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}/pythonpath",
        "PYTHONSTARTUP": str(login / "json.py"), "PYTHONINSPECT": "1", "ENV": str(login / ".profile"),
        "BASH_ENV": str(login / ".profile"),
    }  # fmt: skip
    before = tree(tmp_path)
    request = Request(sysroot=str(host.root), venvs=("/opt/ml",), discover=("running", "usual"))
    if Path("/bin/sh").resolve().name == "bash":
        del env["BASH_ENV"]  # bash as sh does not read it; bash itself does, before any script
    answer = look(request, env=env, cwd=login, pythons=("PATH", this_python()))
    assert not marker.exists()
    assert answer.venv()["state"] == "ran"
    assert answer.venv()["packages"]["torch"]["files"][0]["text"].endswith("cuda = '13.0'\n")
    assert answer.venv()["activation"]["env"]["PYTHONPATH"] == f"{tmp_path}/pythonpath"
    assert answer.parts["system"]["env"]["HOME"] == str(login)
    assert tree(tmp_path) == before


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_file_is_opened_for_writing_and_no_device_of_a_gpu(host: Host, tmp_path: Path) -> None:
    host.venv("/opt/ml")
    host.smi("echo '0, GPU-1'\n")
    request = Request(sysroot=str(host.root), venvs=("/opt/ml",), discover=("running", "usual"))
    marker = new_marker()
    log = tmp_path / "log"
    calls = "trace=open,openat,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat2,socket,connect,execve"
    command = ["strace", "-f", "-qq", "-s", "200", "-e", calls, "-o", str(log), "/bin/sh"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(script(request, marker, pythons=(this_python(),)))
        process.stdin.flush()
        collector = Collector(marker, request.max_bytes)
        read_until(process, collector, 120, lambda: collector.ended)
        process.stdin.close()
    assert collector.parts["venv/0"]["state"] == "ran"
    lines = log.read_text(errors="replace").splitlines()
    written = [line for line in lines if re.search(r"O_(WRONLY|RDWR|CREAT)|mkdir|unlink|rename|creat\(", line)]
    assert [line for line in written if '"/dev/null"' not in line] == []
    assert not [line for line in lines if '"/dev/nvidia' in line]
    assert not [line for line in lines if "socket(" in line and "AF_UNIX" not in line]
    started = {match[1] for line in lines if (match := re.search(r'execve\("([^"]+)".*= 0$', line))}
    venv = str(host.at("/opt/ml/bin/python"))
    allowed = {
        "/bin/sh",
        "/usr/bin/sh",
        this_python(),
        venv,
        str(host.at("/usr/bin/nvidia-smi")),
        "/usr/bin/sleep",
        "/bin/sleep",
    }
    assert started <= allowed


def alive(pids: list[int]) -> list[int]:
    """Return those that still run; a zombie does not."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(pid)
    return found


def wait_gone(pids: list[int], bound: float = 20.0) -> None:
    until = time.monotonic() + bound
    while left := alive(pids):
        assert time.monotonic() < until, f"still there: {left}"
        time.sleep(0.02)


STUBBORN = 'trap "" TERM HUP INT PIPE\necho $$ >>"{pids}"\nwhile :; do sleep 1000; done\n'


@pytest.mark.parametrize("end", ["close", "term", "kill"])
@pytest.mark.parametrize("shell", shells())
@pytest.mark.parametrize("place", ["smi", "python", "activate", "host-python", "no-python"])
def test_the_end_of_the_connection_ends_everything(
    host: Host, tmp_path: Path, shell: str, place: str, end: str
) -> None:
    pids = tmp_path / "pids"
    body = STUBBORN.format(pids=pids)
    host.venv("/opt/ml")
    options: dict[str, object] = {}
    if place in ("smi", "no-python"):
        host.smi(body)
        if place == "no-python":
            options["pythons"] = ("/nonexistent/python3",)
            host.at("/opt/ml/bin/python").unlink()
    elif place == "activate":
        host.write("/opt/ml/bin/activate", body.replace("$$", "$(exec sh -c 'echo $PPID')"))
    elif place == "python":
        host.at("/opt/ml/bin/python").unlink()
        host.write("/opt/ml/bin/python", "#!/bin/sh\n" + body, executable=True)
    else:
        options["pythons"] = (str(host.write("/hanging", "#!/bin/sh\n" + body, executable=True)),)
    request = Request(
        sysroot=str(host.root),
        venvs=("/opt/ml",),
        activate_limit=500,
        venv_limit=500,
        smi_limit=500,
        host_limit=900,
    )
    process, _ = start(request, shell=shell, start_new_session=True, **options)
    with process:
        until = time.monotonic() + 30
        while not (pids.exists() and pids.read_text().strip()):
            assert time.monotonic() < until
            time.sleep(0.02)
        family = [int(pid) for pid in pids.read_text().split()]
        assert alive(family)
        family += descendants(process.pid)
        assert process.stdin is not None and process.stdout is not None
        if end != "close":  # sshd does both: it hangs up and closes
            process.send_signal(signal.SIGTERM if end == "term" else signal.SIGKILL)
        process.stdin.close()
        wait_gone(family)
        process.stdout.read()


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found.extend(children.get(one, []))
    return found


def test_a_reader_that_stops_reading_does_not_keep_the_agent(host: Host, tmp_path: Path) -> None:
    host.smi("yes | head -c 65536; yes | head -c 65536 >&2\n")
    process, _ = start(Request(sysroot=str(host.root), host_limit=1.0), start_new_session=True)
    with process:
        wait_gone(descendants(process.pid), bound=40.0)  # the alarm, since nobody reads the pipe


def test_the_text_is_fixed_for_a_request_and_parses_as_python_3_8() -> None:
    request = Request(venvs=('/opt/it\'s "x" $HOME `id` \\',), sysroot="/a b")
    marker = new_marker()
    assert script(request, marker) == script(request, marker)
    assert new_marker() != marker
    assert remote_command(False) == "exec /bin/sh"
    assert remote_command(True) == "exec sudo -n /bin/sh"
    for text in (agent_text(request, marker), inside_text(), program(HOST), program(INSIDE)):
        ast.parse(text, feature_version=(3, 8))
        assert text.isascii()
        documented = [
            node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
        assert not [node.name for node in documented if ast.get_docstring(node)]
        comments = [
            token
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        ]
        assert comments == []


def test_the_whole_script_is_ascii_and_quotes_hold(host: Host, tmp_path: Path) -> None:
    path = '/opt/it\'s $(touch x) `touch y` \\ "q" é'
    host.venv(path)
    host.write(f"{path}/bin/activate", "true\n")
    (tmp_path / "login").mkdir()
    request = Request(sysroot=str(host.root), venvs=(path,))
    answer = look(request, env={**os.environ, "LC_ALL": "C"}, cwd=tmp_path / "login")
    assert (answer.venv()["state"], answer.venv()["path"]) == ("ran", path)
    assert list((tmp_path / "login").iterdir()) == []
