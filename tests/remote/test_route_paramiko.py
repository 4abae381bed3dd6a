"""Without ssh: Paramiko's parser gives the same routes for plain configs, and says what it leaves out."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fleetcheck.inventory.model import Target
from fleetcheck.remote.route import Resolver, RouteError
from fleetcheck.remote.settings import Settings

NO_SSH = "no ssh program was found, so Paramiko's parser reads the ssh config"


def without_ssh(config: Path | str) -> Resolver:
    return Resolver(Settings(ssh_config=str(config)), ssh="no-such-ssh")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh (package openssh-client)")
@pytest.mark.parametrize(
    "target",
    [Target(name="gpu1"), Target(name="GPU2"), Target(name="gpu1", address="192.0.2.9", port=24, user="op")],
)
def test_the_same_route_as_by_ssh(tmp_path: Path, target: Target) -> None:
    (tmp_path / "key").touch()
    config = tmp_path / "config"
    config.write_text(
        f"Host gpu1\n HostName 192.0.2.7\n Port 2222\n HostKeyAlias rack\nHost *\n User root\n"
        f" IdentityFile {tmp_path}/key\n"
        f" UserKnownHostsFile {tmp_path}/known_%k {tmp_path}/b\n GlobalKnownHostsFile {tmp_path}/global\n"
        f" IdentityAgent {tmp_path}/agent\n ProxyCommand nc %h %p %r 100%%\n"
        " ConnectTimeout 3\n IdentitiesOnly yes\n"
    )
    ours, theirs = without_ssh(config).route(target), Resolver(Settings(ssh_config=str(config))).route(target)
    assert (ours.source, theirs.source) == ("paramiko", "ssh")
    assert ours.warnings == (NO_SSH,)
    assert replace(ours, source="ssh", warnings=()) == theirs


def test_what_it_does_not_know_is_left_out_and_said(tmp_path: Path) -> None:
    config, ran = tmp_path / "config", tmp_path / "ran"
    (tmp_path / "more").write_text("User included\n")
    config.write_text(
        f'Include {tmp_path}/more\nMatch host gpu1 exec "touch {ran}"\n User executed\n'
        "Match tagged x\n User tagged\n"
        "Match host gpu1\n User matched\n"
    )
    route = without_ssh(config).route(Target(name="gpu1"))
    assert route.user == "matched"
    assert not ran.exists()
    assert [warning.partition(": ")[0] for warning in route.warnings] == [
        NO_SSH,
        *(f"{config}:{n}" for n in (1, 2, 4)),
    ]


def test_no_config_needs_no_warning() -> None:
    route = without_ssh("none").route(Target(name="gpu1", user="root", port=24))
    assert (route.host, route.port, route.user, route.source, route.warnings) == ("gpu1", 24, "root", "none", ())
    assert route.known_hosts_files[-2:] == ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


@pytest.mark.parametrize("text", ["nonsense\n", "Port many\n", "Host 'unclosed\n", None])
def test_a_bad_config_is_one_sentence(tmp_path: Path, text: str | None) -> None:
    config = tmp_path / "config"
    if text is not None:
        config.write_text(text)
    with pytest.raises(RouteError, match=r"the ssh config .*(cannot be read|does not exist)"):
        without_ssh(config).route(Target(name="gpu1"))
