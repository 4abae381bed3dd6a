"""The local files of a route: keys, the agent's socket, and which known_hosts files are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_route_config import resolver, write

from fleetcheck.inventory.model import Target

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh (package openssh-client)")


def test_a_key_whose_private_half_is_elsewhere_stays(tmp_path: Path) -> None:
    (tmp_path / "token.pub").touch()
    route = resolver(write(tmp_path, f"IdentityFile {tmp_path}/token\n")).route(Target(name="gpu1"))
    assert route.identity_files == (f"{tmp_path}/token",)


def test_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, off, named = (write(tmp_path, ""), tmp_path / "off", tmp_path / "named")
    off.write_text("IdentityAgent none\n")
    named.write_text("IdentityAgent $OTHER_AGENT\n")
    target = Target(name="gpu1")
    assert [resolver(config).route(target).identity_agent for config in (plain, off, named)] == [None] * 3
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("OTHER_AGENT", "/run/other")
    agents = [resolver(config).route(target).identity_agent for config in (plain, off, named)]
    assert agents == ["/run/agent", None, "/run/other"]


@pytest.mark.parametrize("value", ["none", "/dev/null"])
def test_where_the_config_keeps_no_host_keys_the_state_folder_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = write(tmp_path, f"UserKnownHostsFile {value}\nGlobalKnownHostsFile {tmp_path}/global\n")
    files = resolver(config).route(Target(name="gpu1")).known_hosts_files
    assert files == (f"{tmp_path}/state/fleetcheck/known_hosts", f"{tmp_path}/global")


def test_known_hosts_of_the_command_line_and_of_the_inventory(tmp_path: Path) -> None:
    config = write(tmp_path, f"UserKnownHostsFile {tmp_path}/theirs\n")
    found = resolver(config, known_hosts=("/one", "/two"))
    assert found.route(Target(name="gpu1")).known_hosts_files == ("/one", "/two")
    assert found.route(Target(name="gpu1", known_hosts="/mine")).known_hosts_files == ("/mine",)


def test_a_path_with_a_space(tmp_path: Path) -> None:
    (tmp_path / "a b").touch()
    config = write(tmp_path, f'UserKnownHostsFile "{tmp_path}/a b" {tmp_path}/c\n')
    assert resolver(config).route(Target(name="gpu1")).known_hosts_files[:2] == (
        f"{tmp_path}/a b",
        f"{tmp_path}/c",
    )
