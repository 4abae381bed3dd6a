"""Real processes, really looked at: whose packages each serves with, and what is said where one may not look."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from agent_host import Host, look, this_python
from serving_host import LIBRARY, SERVE, environment, root_only, serving

from fleetcheck.agent.bundle import inside_text
from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program.commands import flags_of
from fleetcheck.agent.program.container import look_contained
from fleetcheck.agent.program.disk import disk_view
from fleetcheck.agent.program.system import sha256_of
from fleetcheck.agent.program.values import Root, dumps
from fleetcheck.facts.host import host_facts
from fleetcheck.facts.records import HostFacts, Process

SECRET = "hunter2-do-not-tell"


def seen(pid: int, **request: Any) -> tuple[Process, HostFacts, dict[str, Any]]:
    """Look at this very machine, and return the process with that number as it is typed."""
    answer = look(Request(**request))
    assert answer.collector.notes == []
    facts = host_facts(answer.parts)
    assert facts.processes is not None
    found = [process for process in facts.processes if process.pid == pid]
    assert len(found) == 1, answer.parts["processes"]
    return found[0], facts, answer.parts


def test_packages_of_another_environment_are_told_from_those_of_its_name(tmp_path: Path) -> None:
    named, other = tmp_path / "named", tmp_path / "other"
    environment(named)
    site = environment(other)
    library = site / LIBRARY
    with serving(named / "bin/python", maps=[library], env={"VIRTUAL_ENV": str(named)}) as process:
        found, _, _ = seen(process.pid)
    assert (found.venv, found.venv_basis) == (str(other), "mapped")
    assert found.named_venv == str(named)
    assert found.mapped == (str(site),)
    assert found.flashinfer_root == f"{site}/flashinfer"
    assert [library.path for library in found.libraries] == [str(library)]
    assert (found.place, found.unseen) == ("host", ())


def test_the_interpreter_that_was_started_is_followed_to_where_it_lies(tmp_path: Path) -> None:
    site = environment(tmp_path / "v2")
    (tmp_path / "current").symlink_to("v2")
    with serving(tmp_path / "current/bin/python", maps=[site / LIBRARY]) as process:
        _, facts, parts = seen(process.pid)
    (item,) = (one for one in parts["processes"]["items"] if one["pid"] == process.pid)
    assert (item["argv_prefix"], item["argv_real"]) == (str(tmp_path / "current"), str(tmp_path / "v2"))
    assert (parts["processes"]["hidden"], facts.processes_hidden) == (None, None)


def test_a_library_that_is_gone_or_replaced(tmp_path: Path) -> None:
    site = environment(tmp_path / "ml")
    module = tmp_path / "home/.cache/flashinfer/0.6.2/120a/cached_ops/trtllm_comm/trtllm_comm.so"
    module.parent.mkdir(parents=True)
    module.write_bytes(b"old" * 1000)
    kept = site / LIBRARY
    with serving(tmp_path / "ml/bin/python", maps=[module, kept]) as process:
        module.unlink()
        module.write_bytes(b"new" * 1000)
        found, _, _ = seen(process.pid)
    states = {library.path: (library.deleted, library.replaced) for library in found.libraries}
    assert states == {str(module): (True, True), str(kept): (False, False)}
    assert found.venv == str(tmp_path / "ml")


def test_a_renamed_child_is_attributed_by_its_launcher(tmp_path: Path) -> None:
    folder = tmp_path / "ml"
    site = environment(folder)
    main = (
        f"import subprocess\nsubprocess.Popen([{this_python()!r}, '-I', '-S', '-c', {SERVE!r}, 'x' * 99]).wait()\n"
    )
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "launch_server.py").write_text(main)
    (package / "__init__.py").write_text("")
    env = {
        "PATH": "/usr/bin:/bin", "SERVE_TITLE": "sglang::scheduler_TP0", "SERVE_PATHS": str(site / LIBRARY),
        "PYTHONPATH": str(tmp_path), "HF_TOKEN": SECRET, "SGLANG_FLASHINFER_TEST": "1",
        "FLASHINFER_CUBINS_REPOSITORY": f"https://me:{SECRET}@mirror.invalid/cubins",
    }  # fmt: skip
    arguments = [
        str(folder / "bin/python"), "-B", "-m", "sglang.launch_server", "--tp", "8", "--model-path", SECRET,
        "--enable-flashinfer-allreduce-fusion", "--api-key", SECRET,
    ]  # fmt: skip
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        answer = look(Request())
        parent.stdin.close()
        parent.wait(timeout=60)
    facts = host_facts(answer.parts)
    assert facts.processes is not None
    (child,) = [process for process in facts.processes if process.launcher == parent.pid]
    assert (child.title, child.server) == ("sglang::scheduler_TP0", "sglang")
    assert (child.venv, child.venv_basis, child.named_venv) == (str(folder), "mapped", str(folder))
    assert child.flags == {"--tp": "8", "--enable-flashinfer-allreduce-fusion": ""}
    (launcher,) = [process for process in facts.processes if process.pid == parent.pid]
    assert (launcher.server, launcher.venv, launcher.venv_basis) == ("sglang", str(folder), "argv")
    assert launcher.environment["SGLANG_FLASHINFER_TEST"] == "1"
    assert launcher.environment["FLASHINFER_CUBINS_REPOSITORY"] == "https://mirror.invalid/cubins"
    assert SECRET not in repr(answer.parts)


def other_user() -> str | None:
    """Return an ordinary user of this machine."""
    import pwd

    names = [entry.pw_name for entry in pwd.getpwall() if entry.pw_name in ("nobody", "daemon")]
    return names[0] if names else None


def world_readable(folder: Path) -> None:
    for path in (folder, *folder.parents):
        if path != Path("/") and os.access(path, os.W_OK) and path.owner() == "root":
            path.chmod(path.stat().st_mode | 0o055)


@pytest.mark.skipif(root_only() is not None, reason="needs root to start a process of another user")
def test_a_process_of_another_user_is_seen_by_root_and_missed_aloud_without(tmp_path: Path) -> None:
    user = other_user()
    if user is None:
        pytest.skip("needs the user nobody or daemon")
    python = shutil.which("python3", path="/usr/bin")
    if python is None:
        pytest.skip("needs /usr/bin/python3, which every user can start")
    world_readable(tmp_path)
    site = environment(tmp_path / "ml")
    with serving(python, maps=[site / LIBRARY], user=user, cwd="/") as process:
        found, _, _ = seen(process.pid)
        assert (found.user, found.venv, found.venv_basis) == (user, str(tmp_path / "ml"), "mapped")
        third = "daemon" if user == "nobody" else "nobody"
        answer = look(Request(), user=third, cwd="/", pythons=(python,))
    part = answer.parts["processes"]
    assert [one["pid"] for one in part["items"]] == []
    assert {one["error"] for one in part["unread"] if one["pid"] == process.pid} == {"EACCES"}
    told = host_facts(answer.parts).processes_unread
    assert any(f"process {process.pid} of {user}: EACCES" == line for line in told)


@pytest.mark.skipif(root_only() is not None, reason="needs root to make a mount namespace")
def test_a_private_mount_namespace(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    before = ["unshare", "-m", "--propagation", "private"]
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make mount namespaces (CAP_SYS_ADMIN)")
    site = environment(tmp_path / "ml")
    hidden = environment(tmp_path / "hidden")
    (hidden / "flashinfer/version.py").write_text("__version__ = '0.6.18'\n")
    (hidden / "flashinfer/jit/link.py").symlink_to("/etc/shadow")
    relative = site.relative_to(tmp_path / "ml")
    mounted = [
        *before, "/bin/sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', str(tmp_path / "hidden"),
        str(tmp_path / "ml"),
    ]  # fmt: skip
    library = tmp_path / "ml" / relative / LIBRARY
    python = tmp_path / "ml/bin/python"
    with serving(python, maps=[library], before=mounted) as process:
        found, facts, _ = seen(process.pid, discover=("running",), venvs=(str(tmp_path / "ml"),))
    inner = f"/proc/{process.pid}/root{tmp_path}/ml"
    assert (found.place, found.venv, found.venv_basis) == ("namespace", inner, "mapped")
    ours = [venv for venv in facts.venvs if str(tmp_path) in venv.path]
    versions = {venv.path: venv.flashinfer.version for venv in ours if venv.flashinfer is not None}
    assert versions == {str(tmp_path / "ml"): "0.6.2", inner: "0.6.18"}
    origins = {venv.path: venv.origin for venv in facts.venvs}
    assert origins[inner] == "running"
    with serving(python, maps=[library], before=before) as process:
        found, _, _ = seen(process.pid, discover=("running",))
    assert (found.place, found.venv, found.unseen) == ("namespace", str(tmp_path / "ml"), ())


def test_a_process_that_vanishes_and_one_that_serves_nothing(tmp_path: Path) -> None:
    environment(tmp_path / "ml")
    with serving(tmp_path / "ml/bin/python") as process:
        answer = look(Request())
    assert process.pid not in [one["pid"] for one in answer.parts["processes"]["items"]]
    assert answer.parts["processes"]["error"] is None


CONTAINER = """set -e
mount -t tmpfs none "$1"
mkdir "$1/proc" "$1/opt"
for name in usr bin lib lib64; do
    if [ -L "/$name" ]; then ln -s "$(readlink "/$name")" "$1/$name"
    elif [ -d "/$name" ]; then mkdir "$1/$name"; mount --bind "/$name" "$1/$name"; fi
done
mount -t proc none "$1/proc"
cp -r "$2" "$1/opt/real"
ln -s /opt/real "$1/opt/ml"
root=$1 how=$3
shift 3
if [ "$how" = chroot ]; then exec chroot "$root" "$@"; fi
mkdir "$root/old"
cd "$root"
pivot_root . old
umount -l old
exec "$@"
"""


@pytest.mark.skipif(root_only() is not None, reason="needs root to make a container")
@pytest.mark.parametrize("how", ["chroot", "pivot_root"])
def test_a_container_is_read_under_its_own_root(tmp_path: Path, how: str) -> None:
    if shutil.which("unshare") is None or shutil.which("python3", path="/usr/bin") is None:
        pytest.skip("needs unshare and /usr/bin/python3")
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make mount namespaces (CAP_SYS_ADMIN)")
    secret = tmp_path / "secret"
    secret.write_text(f"__version__ = '{SECRET}'\n")
    site = environment(tmp_path / "ml")
    inside = Path("/opt/ml") / site.relative_to(tmp_path / "ml")
    (site / "flashinfer/compilation_context.py").symlink_to(secret)  # an absolute link, to a file of the host
    (site / "flashinfer/jit/env.py").rename(tmp_path / "ml/env.py")
    (site / "flashinfer/jit/env.py").symlink_to("/opt/real/env.py")  # and one that leads somewhere in there alone
    for name in ("hashlib", "csv", "ast"):
        (site / f"{name}.py").write_text("raise SystemExit('executed')\n")
    (tmp_path / "root").mkdir()
    before = ["unshare", "-m", "--propagation", "private", "/bin/sh", "-c", CONTAINER, "sh"]
    before += [str(tmp_path / "root"), str(tmp_path / "ml"), how]
    env = {"VIRTUAL_ENV": "/opt/ml", "HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    with serving("/usr/bin/python3", maps=[inside / LIBRARY], before=before, env=env) as process:
        found, facts, parts = seen(process.pid, discover=("running",))
    place = f"/proc/{process.pid}/root/opt/ml"
    (venv,) = [venv for venv in facts.venvs if venv.path == place]
    assert (found.place, found.venv, found.venv_basis) == ("container", place, "mapped")
    assert (venv.state, venv.origin) == ("ok", "running")
    assert venv.flashinfer is not None
    assert (venv.flashinfer.version, venv.flashinfer.env_error) == ("0.6.2", None)
    assert venv.flashinfer.csrc_dir == "/opt/data/csrc"  # where the linked file would start from, in there
    assert SECRET not in repr(parts)
    assert {file.name for file in found.files} >= {"jit/env.py", "jit/comm.py"}
    cache = next(item for item in parts["caches"]["items"] if item["pid"] == process.pid)
    assert cache["error"] == "ENOENT"


def test_files_that_a_module_of_that_name_hides_are_not_in_memory(tmp_path: Path) -> None:
    site = environment(tmp_path / "ml")
    (tmp_path / "front").mkdir()
    view = disk_view(Root(""), [str(tmp_path / "front")], [str(site)], [], {})
    assert (view["root"], "jit/env.py" in {file["name"] for file in view["files"]}) == (f"{site}/flashinfer", True)
    (tmp_path / "front/flashinfer.py").touch()
    view = disk_view(Root(""), [str(tmp_path / "front")], [str(site)], [], {})
    assert (view["root"], view["files"]) == (None, [])


STARTS = {
    "a path": {"x.pth": "/opt/ml/repo\n"},
    "a line": {"x.pth": "import site; site.addsitedir('/opt/ml/repo')\n"},
    "a table": {
        "__editable__.x-1.pth": "import __editable___x_1_finder; __editable___x_1_finder.install()",
        "__editable___x_1_finder.py": "MAPPING = {'flashinfer': '/opt/ml/repo/flashinfer'}\n",
    },
    "code": {"sitecustomize.py": "import sys\nsys.path.insert(0, '/opt/ml/repo')\n"},
    "the interpreter's packages": {},
}


@pytest.mark.skipif(root_only() is not None, reason="needs root to make a container")
@pytest.mark.parametrize("how", STARTS)
def test_what_a_start_adds_in_a_container_is_read(tmp_path: Path, how: str) -> None:
    if shutil.which("unshare") is None or shutil.which("python3", path="/usr/bin") is None:
        pytest.skip("needs unshare and /usr/bin/python3")
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make mount namespaces (CAP_SYS_ADMIN)")
    site = environment(tmp_path / "ml")
    repo = tmp_path / "ml/repo"
    if how == "the interpreter's packages":
        repo = tmp_path / "ml/base" / site.relative_to(tmp_path / "ml")
        config = "home = /opt/ml/base/bin\ninclude-system-site-packages = true\n"
        (tmp_path / "ml/pyvenv.cfg").write_text(config)
    repo.mkdir(parents=True)
    shutil.copytree(site / "flashinfer", repo / "flashinfer")
    (repo / "flashinfer/version.py").write_text("__version__ = '0.6.18'\n")
    for name, text in STARTS[how].items():
        (site / name).write_text(text)
    if how != "code":
        (site / "flashinfer").rename(site / "sglang")  # a folder that the search goes by
    (tmp_path / "root").mkdir()
    before = ["unshare", "-m", "--propagation", "private", "/bin/sh", "-c", CONTAINER, "sh"]
    before += [str(tmp_path / "root"), str(tmp_path / "ml"), "chroot"]
    env = {"VIRTUAL_ENV": "/opt/ml", "HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    inside = Path("/opt/ml") / site.relative_to(tmp_path / "ml")
    with serving("/usr/bin/python3", maps=[inside / LIBRARY], before=before, env=env) as process:
        _, facts, _ = seen(process.pid, discover=("running",))
    (venv,) = [venv for venv in facts.venvs if venv.path == f"/proc/{process.pid}/root/opt/ml"]
    assert (venv.state, venv.error) == ("ok", None)
    assert venv.flashinfer is not None
    root = "/opt/ml" / repo.relative_to(tmp_path / "ml") / "flashinfer"
    assert (venv.flashinfer.root, venv.flashinfer.version) == (str(root), "0.6.18")
    assert (venv.flashinfer.hidden is not None) == (how == "code")


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (['{"pass_config": {"fuse_allreduce_rms": true, "x": "s3cret"}}'], {"fuse_allreduce_rms": "true"}),
        (["-cc.pass_config.fuse_allreduce_rms=True"], {"fuse_allreduce_rms": "true"}),
        (["-O.pass_config.enable_fi_allreduce_fusion", "false"], {"enable_fi_allreduce_fusion": "false"}),
        (
            ["--compilation-config.pass-config.fi-allreduce-fusion-max-size-mb", "0.5", "-cc", '{"a": 1}'],
            {"fi_allreduce_fusion_max_size_mb": "0.5"},
        ),
        (['{"pass_config":{"fi_allreduce_fusion_max_size_mb":64}}'], {"fi_allreduce_fusion_max_size_mb": "64"}),
        (["-cc.pass_config.fi_allreduce_fusion_max_size_mb=s3cret"], {}),
        (["--x.fuse_allreduce_rms=true", "fuse_allreduce_rms"], {}),
    ],
)
def test_what_vllm_is_told_of_its_passes(words: list[str], flags: dict[str, str]) -> None:
    assert flags_of(["vllm", "serve", "--compilation-config", *words]) == flags


def test_a_stuck_process_is_told_and_its_memory_not_touched(tmp_path: Path) -> None:
    host = Host(tmp_path / "root")
    numbers = "1 77 77 0 -1 4194560 5 0 0 0 1 1 0 0 20 0 1 0 500 {size} 900 18446744073709551615"
    for pid, state, comm, size in (
        (77, "D", "python3", 4096), (78, "D", "postgres", 4096), (79, "I", "kworker/0:1", 0),
        (80, "S", "python3", 9),
    ):  # fmt: skip
        host.write(f"/proc/{pid}/stat", f"{pid} ({comm}) {state} {numbers.format(size=size)}\n")
        os.mkfifo(host.at(f"/proc/{pid}/cmdline"))
    host.at("/proc/80/cmdline").unlink()
    host.write("/proc/80/cmdline", "/opt/ml/bin/python\0-m\0sglang.launch_server\0--tp=8\0")
    answer = look(Request(sysroot=str(host.root), discover=("running",)))
    part = answer.parts["processes"]
    assert answer.parts["end"]["errors"] == []
    assert part["unread"] == [{"pid": 77, "user": None, "error": "state D"}]
    (item,) = part["items"]
    assert (item["pid"], item["server"], item["flags"]) == (80, "sglang", {"--tp": "8"})
    assert item["started"] == pytest.approx(1700000000 + 500 / os.sysconf("SC_CLK_TCK"))
    assert (item["maps_error"], item["env_error"]) == ("ENOENT", "ENOENT")
    found = host_facts(answer.parts).processes
    assert found is not None
    assert (found[0].venv, found[0].venv_basis, found[0].place) == ("/opt/ml", "argv", "unknown")
    assert "mapped files: ENOENT" in found[0].unseen


@pytest.mark.parametrize("content", [b"", b"\0" * 9, b"\xff\xfe\0", b"x" * 300_000, b"sglang::\0"])
@pytest.mark.parametrize("name", ["stat", "cmdline", "maps", "environ", "cgroup", "status"])
def test_broken_entries_are_values(tmp_path: Path, name: str, content: bytes) -> None:
    host = Host(tmp_path / "root")
    files = {
        "stat": b"80 (python3) S 1 1 1 0 -1 0 5 0 0 0 1 1 0 0 20 0 1 0 500 4096 9 1\n",
        "cmdline": b"/opt/ml/bin/python\0-m\0vllm\0serve\0",
        "maps": b"7f00-7f01 r--s 0 08:01 55   /opt/ml/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so\n",
        "environ": b"VIRTUAL_ENV=/opt/ml\0",
        "cgroup": b"0::/system.slice/docker-0123.scope\n",
    }
    for one, text in {**files, name: content}.items():
        host.write(f"/proc/80/{one}", text)
    answer = look(Request(sysroot=str(host.root), discover=("running",)))
    assert answer.parts["end"]["errors"] == []
    facts = host_facts(answer.parts)
    assert facts.processes is not None
    if name not in ("cmdline", "stat"):
        assert [process.venv for process in facts.processes] == ["/opt/ml"]


@pytest.mark.skipif(root_only() is not None, reason="needs root to become another user")
def test_without_the_right_a_container_is_unreadable_and_says_why(tmp_path: Path) -> None:
    item = {
        "index": 0, "path": "/proc/1/root/opt/ml", "item": "running", "origin": "running", "pid": os.getpid(),
        "inside": "/opt/ml",
    }  # fmt: skip
    # Loaded before the rights are gone: another user may not read where this Python lies.
    source = inside_text().encode()
    assert dumps(csv.QUOTE_ALL) and sha256_of(source)
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:  # a child of its own: it gives up its rights for good
        try:
            os.setresuid(65534, 65534, 65534)
            os.write(tell, look_contained(Root(""), item, source, 10.0).encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as pipe:
        value = json.loads(pipe.read())
    os.waitpid(pid, 0)
    assert value["state"] == "unreadable"
    assert re.search(r"^in a container: .*(EPERM|EACCES)", value["error"])
