"""Routes against ssh itself: what `ssh -G` decides, how often it is asked, and what it leaves to be expanded."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetcheck.inventory.model import Target
from fleetcheck.remote.route import Resolver, Route, RouteError
from fleetcheck.remote.settings import Settings

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh (package openssh-client)")


def resolver(config: Path | str | None, **keys: object) -> Resolver:
    return Resolver(replace(Settings(ssh_config=str(config)), **keys))  # type: ignore[arg-type]


def write(tmp_path: Path, text: str) -> Path:
    """Return a config with this text. ssh takes its home from passwd: only -F shuts the developer's out."""
    config = tmp_path / "config"
    config.write_text(text)
    return config


@pytest.fixture
def counted(tmp_path: Path) -> tuple[str, Path]:
    """The real ssh behind a script that notes each call, and the file of notes."""
    calls, script = tmp_path / "calls", tmp_path / "counted-ssh"
    calls.touch()
    script.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec {shutil.which("ssh")} "$@"\n')
    script.chmod(0o755)
    return str(script), calls


def test_what_the_config_decides(tmp_path: Path) -> None:
    key = tmp_path / "id_gpu1"
    key.touch()
    (tmp_path / "id_gpu1-cert.pub").touch()
    config = write(
        tmp_path,
        f"""
Include {tmp_path}/more
Match host gpu1
    Port 2200
Host gpu1
    HostName 192.0.2.7
    User root
    IdentitiesOnly yes
    IdentityAgent {tmp_path}/agent
    UserKnownHostsFile {tmp_path}/known {tmp_path}/known2
    GlobalKnownHostsFile {tmp_path}/global
    HostKeyAlias rack7
    HashKnownHosts yes
    ConnectTimeout 7
Match all
    ProxyJump op@hop:2022,second
""",
    )
    (tmp_path / "more").write_text(f"Host gpu*\n  IdentityFile {key}\n")
    assert resolver(config).route(Target(name="gpu1")) == Route(
        name="gpu1", host="192.0.2.7", port=2200, user="root",
        identity_files=(str(key),), certificate_files=(f"{key}-cert.pub",),
        identity_agent=f"{tmp_path}/agent", identities_only=True,
        known_hosts_files=(f"{tmp_path}/known", f"{tmp_path}/known2", f"{tmp_path}/global"),
        host_key_alias="rack7", proxy_jump=("op@hop:2022", "second"), proxy_command=None,
        connect_timeout=7.0, hash_known_hosts=True, source="ssh",
    )  # fmt: skip


def test_inventory_keys_win(tmp_path: Path) -> None:
    config = write(
        tmp_path,
        f"Host *\n HostName 192.0.2.1\n Port 1\n User u\n IdentityFile {tmp_path}/absent\n ProxyCommand nc %h %p\n"
        f" UserKnownHostsFile {tmp_path}/theirs\n",
    )
    (tmp_path / "audit").touch()
    target = Target(
        name="gpu1", address="192.0.2.9", port=2222, user="root", identity_file=str(tmp_path / "audit"),
        known_hosts=str(tmp_path / "ours"), proxy_jump="bastion:2022",
    )  # fmt: skip
    route = resolver(config).route(target)
    assert (route.host, route.port, route.user) == ("192.0.2.9", 2222, "root")
    assert route.identity_files == (str(tmp_path / "audit"),)
    assert route.identities_only
    assert route.known_hosts_files == (str(tmp_path / "ours"),)
    assert (route.proxy_jump, route.proxy_command) == (("bastion:2022",), None)
    assert route.warnings == ()
    direct = resolver(config).route(target.model_copy(update={"proxy_jump": "none"}))
    assert (direct.proxy_jump, direct.proxy_command) == ((), None)
    theirs = resolver(config).route(Target(name="gpu1"))
    assert theirs.proxy_command == "nc 192.0.2.1 1"
    assert theirs.warnings == (f"the identity file {tmp_path}/absent does not exist",)


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ("", True),
        ("User root\nHost *\n HostName %h.lab\n IdentityFile ~/.ssh/%h\n ProxyCommand nc %h %p\n", True),
        ("Include {folder}/inner\n", True),
        ("Host=*\n  Port = 2222\n# Match all\n", True),
        ("Match all\n User root\n", False),
        ("Host gpu1\n User root\n", False),
        ("Host * !gpu1\n User root\n", False),
        ("Host *\n UserKnownHostsFile ~/.ssh/known_%h\n", False),
        ("CanonicalizeHostname yes\nCanonicalDomains invalid\n", False),
        ("Host *\n Include {folder}/deep\n", False),
    ],
)
def test_ssh_is_asked_once_where_hosts_cannot_differ(
    tmp_path: Path, counted: tuple[str, Path], text: str, once: bool
) -> None:
    (tmp_path / "inner").write_text("Host *\n User inner\n")
    (tmp_path / "deep").write_text(f"Include {tmp_path}/deeper\n")
    (tmp_path / "deeper").write_text("Host gpu7\n User root\n")
    ssh, calls = counted
    config = write(tmp_path, text.format(folder=tmp_path))
    found = Resolver(Settings(ssh_config=str(config)), ssh=ssh)
    for _ in range(2):
        for number in range(5):
            found.route(Target(name=f"gpu{number}"))
    assert len(calls.read_text().splitlines()) == (1 if once else 6)  # by name: and the one that found so


def test_many_threads_ask_once(tmp_path: Path, counted: tuple[str, Path]) -> None:
    ssh, calls = counted
    found = Resolver(Settings(ssh_config=str(write(tmp_path, "Match all\n User root\n"))), ssh=ssh)
    gate = threading.Barrier(8)

    def ask(_: int) -> list[Route]:
        gate.wait(30)
        return [found.route(Target(name=f"gpu{number}")) for number in range(3)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert len(calls.read_text().splitlines()) == 4


VALUES = {
    "HostName": ["%h", "%h.lab", "192.0.2.7", "HOST.%h"],
    "User": ["root", "op"],
    "Port": ["22", "2222"],
    "IdentityFile": ["{f}/key", "{f}/%h_%p_%r", "~/%n-%u", "none", "${HOME}/%%/%d", "{f}/%k.%L"],
    "CertificateFile": ["{f}/key-cert.pub", "none"],
    "IdentityAgent": ["none", "SSH_AUTH_SOCK", "{f}/agent", "$NOT_SET"],
    "UserKnownHostsFile": ["none", "/dev/null", "{f}/known {f}/other", '"{f}/a b" {f}/c', "~/known"],
    "GlobalKnownHostsFile": ["none", "{f}/global"],
    "HostKeyAlias": ["rack", "none"],
    "ProxyJump": ["none", "hop", "op@hop:22,[2001:db8::1]:2200", "%h-gate"],
    "ProxyCommand": ["none", "nc %h %p", "ssh -W '[%h]:%p' %r@hop-%n 100%%"],
    "ConnectTimeout": ["5", "none"],
    "IdentitiesOnly": ["yes", "no"],
}
SETTINGS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda keyword: st.sampled_from(VALUES[keyword]).map(lambda value: f"{keyword} {value}")
)
TARGETS = st.builds(
    Target,
    name=st.sampled_from(["gpu1", "GPU2.lab", "192.0.2.5", "2001:db8::5", "fe80::1%eth0"]),
    address=st.sampled_from([None, None, "192.0.2.9", "Other.Lab", "fe80::2%eth1"]),
    port=st.sampled_from([None, None, 2022]),
    user=st.sampled_from([None, None, "audit"]),
    proxy_jump=st.sampled_from([None, None, "none", "bastion"]),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SETTINGS, max_size=7), TARGETS)
def test_asked_once_or_by_name_the_route_is_the_same(tmp_path: Path, lines: list[str], target: Target) -> None:
    """`Match all` changes nothing but that ssh is asked for each name: so its own expansions check ours."""
    (tmp_path / "key").touch()
    (tmp_path / "key-cert.pub").touch()
    config, by_name = tmp_path / "config", tmp_path / "by-name"
    config.write_text("Host *\n" + "\n".join(lines).replace("{f}", str(tmp_path)) + "\n")
    by_name.write_text(config.read_text() + "Match all\n")
    assert resolver(config).route(target) == resolver(by_name).route(target)


def test_files_and_commands_are_those_that_ssh_uses(tmp_path: Path) -> None:
    """`ssh -v` tells which keys it looks for and which ProxyCommand it runs; the command ends at once."""
    command = tmp_path / "proxy"
    command.write_text("#!/bin/sh\nexit 1\n")
    command.chmod(0o755)
    names = ["a_%h_%p_%r", "b_%n_%u_%%", "c_%L_%l_%i_%k"]
    text = "".join(f"IdentityFile {tmp_path}/{name}\n" for name in names)
    text += f"IdentityFile ${{TEST_KEYS}}/d\nHost *\n HostName %h.lab\n ProxyCommand {command} %h %p %r %n 100%%\n"
    config = write(tmp_path, text)
    environment = {**os.environ, "TEST_KEYS": str(tmp_path / "variable")}
    ssh = ["ssh", "-v", "-F", str(config), "-p", "2222", "-l", "audit", "-o", "BatchMode=yes", "GPU1", "true"]
    said = subprocess.run(
        ssh, capture_output=True, text=True, timeout=60, check=False, env=environment, stdin=subprocess.DEVNULL
    ).stderr
    looked_for = [
        line.split("identity file ")[1].rpartition(" type ")[0] for line in said.splitlines() if " type -1" in line
    ]
    ran = [line.partition("Executing proxy command: exec ")[2] for line in said.splitlines() if "exec " in line]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_KEYS", environment["TEST_KEYS"])
        route = resolver(config).route(Target(name="GPU1", port=2222, user="audit"))
    missing = [warning.split()[3] for warning in route.warnings]
    assert missing == [path for path in looked_for if not path.endswith("-cert")]
    assert len(missing) == 4
    assert [route.proxy_command] == ran


def test_what_is_not_honoured_is_said(tmp_path: Path) -> None:
    config = write(tmp_path, "KnownHostsCommand /bin/true %H\nBindAddress 127.0.0.1\nAddressFamily inet6\n")
    warnings = resolver(config).route(Target(name="gpu1")).warnings
    assert [warning.split()[0] for warning in warnings] == ["knownhostscommand", "bindaddress", "addressfamily"]


def test_without_any_config(tmp_path: Path) -> None:
    route = resolver("none").route(Target(name="gpu1", user="root"))
    assert (route.host, route.port, route.user, route.source) == ("gpu1", 22, "root", "ssh")
    assert not route.hash_known_hosts


def test_a_route_pickles_and_hashes(tmp_path: Path) -> None:
    route = resolver("none").route(Target(name="gpu1"))
    assert pickle.loads(pickle.dumps(route)) == route
    assert len({route, resolver("none").route(Target(name="gpu1"))}) == 1


@pytest.mark.parametrize(
    "target",
    [
        Target(name="-oProxyCommand=touch"),
        Target(name="gpu1", address="-oProxyCommand=touch"),
        Target(name="gpu1;touch x"),
        Target(name="gpu1", address="$(touch x)"),
        Target(name="gpu1", user="-l"),
        Target(name="gpu1", user="root`touch x`"),
        Target(name="gpu1\x07"),
    ],
)
def test_names_that_ssh_would_refuse_never_reach_it(
    tmp_path: Path, counted: tuple[str, Path], target: Target
) -> None:
    ssh, calls = counted
    with pytest.raises(RouteError, match="name that ssh would take"):
        Resolver(Settings(ssh_config=str(write(tmp_path, "Match all\n"))), ssh=ssh).route(target)
    assert calls.read_text() == ""


def test_a_bad_config_is_one_sentence_with_its_line(tmp_path: Path) -> None:
    config = write(tmp_path, "User root\nNoSuchKeyword yes\n")
    with pytest.raises(RouteError) as caught:
        resolver(config).route(Target(name="gpu1"))
    assert (
        str(caught.value)
        == f"gpu1: ssh cannot resolve it: {config}: line 2: Bad configuration option: nosuchkeyword"
    )
    with pytest.raises(RouteError, match="Can't open user config file"):
        resolver(tmp_path / "absent").route(Target(name="gpu1"))


def test_a_token_without_a_value_is_one_sentence(tmp_path: Path) -> None:
    config = write(tmp_path, "IdentityFile ${NO_SUCH_VARIABLE}/key\n")
    with pytest.raises(RouteError, match=r"gpu1: no value for the variable in"):
        resolver(config).route(Target(name="gpu1"))


def test_a_user_in_the_name_is_left_to_ssh(tmp_path: Path) -> None:
    route = resolver(write(tmp_path, "Host *\n HostName %h.lab\n")).route(Target(name="op@gpu1"))
    assert (route.name, route.host, route.user) == ("op@gpu1", "gpu1.lab", "op")


def test_config_of_the_inventory_for_one_host(tmp_path: Path) -> None:
    run, own = tmp_path / "run", tmp_path / "own"
    run.write_text("User run\nProxyJump from-run\n")
    own.write_text("User own\nHost gpu1\n  ProxyJump hop\nMatch host hop\n  Port 2200\n")
    found = resolver(run)
    assert found.route(Target(name="gpu1")).user == "run"
    target = Target(name="gpu1", ssh_config=str(own))
    route = found.route(target)
    assert route.user == "own"
    assert [(hop.name, hop.port, hop.user) for hop in found.gateways(route, target.ssh_config)] == [
        ("hop", 2200, "own")
    ]
    assert found.route(Target(name="gpu1", ssh_config="none")).proxy_jump == ()


def test_config_of_the_inventory_that_is_missing(tmp_path: Path) -> None:
    found = resolver("none")
    with pytest.raises(RouteError, match="gpu1"):
        found.route(Target(name="gpu1", ssh_config=str(tmp_path / "absent")))
    assert found.route(Target(name="gpu2")).host == "gpu2"


def test_proxy_command_of_the_inventory(tmp_path: Path) -> None:
    found = resolver(write(tmp_path, "ProxyJump bastion\nPort 2222\n"))
    route = found.route(Target(name="gpu1", user="root", proxy_command="nc -x %r@%h %p 100%%"))
    assert (route.proxy_command, route.proxy_jump) == ("nc -x root@gpu1 2222 100%", ())
    none = found.route(Target(name="gpu1", proxy_command="none"))
    assert (none.proxy_command, none.proxy_jump) == (None, ())
    with pytest.raises(RouteError, match="unknown token %q"):
        found.route(Target(name="gpu1", proxy_command="nc %q"))


def test_certificate_of_the_config_beside_the_key_of_the_inventory(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key", tmp_path / "elsewhere.pub"
    key.touch()
    certificate.touch()
    found = resolver(write(tmp_path, f"IdentityFile {tmp_path}/other\nCertificateFile {certificate}\n"))
    route = found.route(Target(name="gpu1", identity_file=str(key)))
    assert (route.identity_files, route.certificate_files) == ((str(key),), (str(certificate),))
