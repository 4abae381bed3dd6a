"""ssh configs against the real ``ssh -G``: which hosts they name, and what is used for each."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from fleetcheck.errors import InputError
from fleetcheck.inventory.load import Loaded, load, read
from fleetcheck.inventory.model import Target
from fleetcheck.inventory.selection import select
from fleetcheck.remote.route import Resolver
from fleetcheck.remote.settings import Settings

SSH = shutil.which("ssh")
needs_ssh = pytest.mark.skipif(SSH is None, reason="needs ssh (package openssh-client)")

CONFIGS: dict[str, tuple[str, list[str]]] = {
    "include-globs": (
        "Include {folder}/conf.d/*.conf {folder}/absent\nHost gpu03\n  Port 2203\nHost *\n  User audit\n",
        ["gpu01", "gpu02", "gpu03"],
    ),
    "match": (
        (
            "Host gpu01 gpu02\n  HostName %h.example.net\nMatch originalhost gpu02 user root\n  Port 2222\n"
            "Match host gpu01.example.net\n  Port 2223\nMatch all\n  User root\n"
        ),
        ["gpu01", "gpu02"],
    ),
    "proxy-chains": (
        (
            "Host inner\n  ProxyJump op@mid:2022\nHost mid\n  ProxyJump outer\nHost direct\n  ProxyJump none\n"
            "Host two\n  ProxyJump outer,mid\nHost outer *\n  User jump\n"
        ),
        ["inner", "mid", "direct", "two", "outer"],
    ),
    "proxy-command": (
        (
            "Host a\n  ProxyCommand nc -X connect -x proxy:80 %h %p\nHost b\n  ProxyCommand none\n  ProxyJump x\n"
            "Host *\n  ProxyCommand ssh -W %h:%p hop\n"
        ),
        ["a", "b"],
    ),
    "tokens": (
        (
            "Host gpu01\n  HostName %h.lab\n  IdentityFile {folder}/%n-%r\n  HostKeyAlias rack7\n"
            "  UserKnownHostsFile {folder}/known_%k\n  User ops\n"
        ),
        ["gpu01"],
    ),
    "negation": (
        "Host gpu01 gpu02 gpu03\n  User one\nHost gpu* !gpu02\n  Port 2222\nHost !gpu01 *\n  IdentitiesOnly yes\n",
        ["gpu01", "gpu02", "gpu03"],
    ),
    "equals-signs": (
        (
            'Host=gpu01\nPort=2222\n  User = "audit"\nHost = "gpu02"  gpu03\n\tHostName\t=\t192.0.2.3\n'
            '\tIdentityFile="{folder}/a key"\n'
        ),
        ["gpu01", "gpu02", "gpu03"],
    ),
    "crlf": (
        "Host gpu01\r\n  HostName 192.0.2.1\r\n  Port 2222\r\n\r\n# a comment\r\nHost gpu02\r\n  User audit\r\n",
        ["gpu01", "gpu02"],
    ),
}


def write(folder: Path, name: str) -> Path:
    (folder / "conf.d").mkdir()
    (folder / "conf.d" / "10-a.conf").write_text("Host gpu01\n  HostName 192.0.2.1\nHost web*\n")
    (folder / "conf.d" / "20-b.conf").write_text(f"Include {folder}/conf.d/deeper\n")
    (folder / "conf.d" / "deeper").write_text("Host gpu02 *.example.net\n  HostName 192.0.2.2\n")
    for key in ("a key", "gpu01-ops"):
        (folder / key).touch()
    path = folder / "site.config"
    path.write_bytes(CONFIGS[name][0].replace("{folder}", str(folder)).encode())
    return path


def ssh_says(path: Path, name: str) -> dict[str, list[str]]:
    done = subprocess.run([SSH or "", "-G", "-F", str(path), name], check=True, capture_output=True, text=True)
    said: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        keyword, _, value = line.partition(" ")
        said.setdefault(keyword, []).append(value.strip())
    return said


@needs_ssh
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_used_is_what_ssh_says(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    inventory = load(path)
    assert [target.name for target in inventory.targets] == CONFIGS[name][1]
    resolver = Resolver(Settings())  # no config of the run: each host brings its own
    for target in inventory.targets:
        said, route = ssh_says(path, target.name), resolver.route(target)
        assert (route.host, str(route.port), route.user) == (said["hostname"][0], said["port"][0], said["user"][0])
        assert route.host_key_alias == said.get("hostkeyalias", [None])[0]
        assert route.identities_only == (said["identitiesonly"] == ["yes"])
        jump = said.get("proxyjump", ["none"])[0]
        assert ",".join(route.proxy_jump) == ("" if jump == "none" else jump)
        command = said.get("proxycommand", ["none"])[0]
        filled = command.replace("%h", route.host).replace("%p", str(route.port))
        assert route.proxy_command == (None if command == "none" else filled)
        mine = [one.replace("%n", target.name).replace("%r", route.user) for one in said.get("identityfile", [])]
        assert route.identity_files == tuple(one for one in mine if Path(one).expanduser().exists())


@needs_ssh
def test_the_files_of_a_host_are_those_that_ssh_reads(tmp_path: Path) -> None:
    (target,) = load(write(tmp_path, "tokens")).targets
    route = Resolver(Settings()).route(target)
    assert route.identity_files == (f"{tmp_path}/gpu01-ops",)
    assert route.known_hosts_files[0] == f"{tmp_path}/known_rack7"


def config(folder: Path, text: str) -> Path:
    path = folder / "config"
    path.write_text(text)
    return path


def test_a_pattern_is_demanded(tmp_path: Path) -> None:
    inventory = load(config(tmp_path, "Host gpu01 gpu02\n  User x\n"))
    with pytest.raises(
        InputError, match="an ssh config names every host that you ever reach; say which are meant"
    ):
        select(inventory, [])
    assert [target.name for target in select(inventory, ["all"])] == ["gpu01", "gpu02"]
    assert [target.name for target in select(inventory, ["gpu01"])] == ["gpu01"]


def places(loaded: Loaded, name: str) -> dict[str, str]:
    (target,) = select(loaded.inventory, [name])
    return {one.key: one.place for one in loaded.origins(target)}


def test_where_a_name_stands(tmp_path: Path) -> None:
    path = write(tmp_path, "include-globs")
    loaded = read(path)
    assert places(loaded, "gpu02")["host"] == f"{tmp_path}/conf.d/deeper:1"
    assert places(loaded, "gpu03")["host"] == f"{path}:2"
    assert places(loaded, "gpu03")["port"] == "ssh config"
    assert loaded.inventory.targets[0] == Target(name="gpu01", ssh_config=str(path))


def test_a_config_without_a_host(tmp_path: Path) -> None:
    path = config(tmp_path, "Host *\n  User x\nHost gpu?\n")
    with pytest.raises(InputError, match="an ssh config without a Host entry that names a host"):
        load(path)


def test_a_ring_of_includes_ends(tmp_path: Path) -> None:
    path = config(tmp_path, f"Include {tmp_path}/config\nHost gpu01\n")
    with pytest.raises(InputError, match="Include goes deeper than 16 files"):
        load(path)


def test_what_cannot_be_followed(tmp_path: Path) -> None:
    path = config(tmp_path, "Include ${FLEETCHECK_ABSENT}/x ~nobody-of-that-name/y\nHost 'gpu01\n")
    with pytest.raises(InputError) as caught:
        load(path)
    lines = [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]
    assert [line.split(":")[0] for line in lines] == ["1", "1", "2"]


def test_relative_includes_begin_at_the_users_ssh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "more").write_text("Host gpu07\n")
    entry = pwd.getpwuid(os.getuid())
    moved = pwd.struct_passwd((*entry[:5], str(home), entry[6]))
    monkeypatch.setattr("pwd.getpwuid", lambda _uid: moved)
    (home / ".ssh" / "config").write_text("Include more\n")
    (target,) = load(home / ".ssh" / "config").targets
    assert target == Target(name="gpu07")  # the user's own config: ssh reads it anyway


def test_standard_input_is_no_config(capsys: pytest.CaptureFixture[str]) -> None:
    import io

    with pytest.raises(InputError, match="ssh reads its config from a file; give its path"):
        load("-", stdin=io.StringIO("Host gpu01\n  User x\n"))


def test_a_password_is_refused_and_not_repeated(tmp_path: Path) -> None:
    path = config(tmp_path, "Host gpu01\n  ProxyCommand sshpass -p hunter2-x9 ssh -W %h:%p hop\n")
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:2: proxycommand: holds a password; an inventory holds no")
    assert "hunter2" not in str(caught.value)


def test_an_include_that_is_a_pipe_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    os.mkfifo(tmp_path / "conf.d" / "10-pipe.conf")
    (tmp_path / "conf.d" / "20-b.conf").write_text("Host gpu02\n")
    made = read(config(tmp_path, f"Include {tmp_path}/conf.d/*.conf\nHost gpu01\n"))
    assert [target.name for target in made.inventory.targets] == ["gpu02", "gpu01"]
    assert [str(one) for one in made.warnings] == [
        f"{tmp_path}/conf.d/10-pipe.conf: is no regular file, and was not read"
    ]
