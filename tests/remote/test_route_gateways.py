"""Gateways: the order in which ssh passes them, each with its own settings; circles end in a sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fleetcheck.inventory.model import Target
from fleetcheck.remote.route import Resolver, Route, RouteError, hop_target
from fleetcheck.remote.settings import Settings

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh (package openssh-client)")


def passed(tmp_path: Path, config: str, **keys: str) -> tuple[Route, ...]:
    """Return the gateways on the way to ``gpu1`` under this config."""
    file = tmp_path / "config"
    file.write_text(config)
    resolver = Resolver(Settings(ssh_config=str(file)))
    return resolver.gateways(resolver.route(Target(name="gpu1", **keys)))


def test_each_gateway_has_its_own_settings(tmp_path: Path) -> None:
    config = "Host gate\n HostName 192.0.2.1\n User op\n Port 2022\nHost gpu*\n ProxyJump gate,me@second:23\n"
    gate, second = passed(tmp_path, config)
    assert (gate.name, gate.host, gate.user, gate.port) == ("gate", "192.0.2.1", "op", 2022)
    assert (second.host, second.user, second.port) == ("second", "me", 23)
    assert gate.proxy_jump == second.proxy_jump == ()


def test_only_the_first_may_have_gateways_of_its_own(tmp_path: Path) -> None:
    config = (
        "Host gpu*\n ProxyJump first,second\nHost first\n ProxyJump outer\n"
        "Host outer\n ProxyCommand nc -x proxy %h %p\nHost second\n ProxyJump elsewhere\n"
    )
    found = passed(tmp_path, config)
    assert [gate.name for gate in found] == ["outer", "first", "second"]
    assert [gate.proxy_command for gate in found] == ["nc -x proxy outer 22", None, None]


def test_the_inventory_names_them_or_none(tmp_path: Path) -> None:
    config = "Host gpu*\n ProxyJump gate\n"
    assert [gate.name for gate in passed(tmp_path, config, proxy_jump="a, b")] == ["a", "b"]
    assert passed(tmp_path, config, proxy_jump="none") == ()
    assert passed(tmp_path, "Host gpu*\n ProxyJump none\nHost *\n ProxyJump gate\n") == ()


@pytest.mark.parametrize(
    "config",
    [
        "Host *\n ProxyJump gate\n",  # the gate is behind itself; ssh: jumphost loop
        "Host gpu* b\n ProxyJump a\nHost a\n ProxyJump b\n",
        "Host *\n ProxyJump a,a\n",
        "Match all\n ProxyJump gate\n",
        "".join(f"Host {'gpu1' if n == 0 else f'g{n}'}\n ProxyJump g{n + 1}\n" for n in range(20)),
    ],
)
def test_circles_and_endless_chains_are_one_sentence(tmp_path: Path, config: str) -> None:
    with pytest.raises(RouteError, match=r"circle|more than 8 gateways|jumphost loop"):
        passed(tmp_path, config)


@pytest.mark.parametrize(
    ("text", "host", "user", "port"),
    [
        ("gate", "gate", None, None),
        ("op@gate:2022", "gate", "op", 2022),
        ("op@realm@gate", "gate", "op@realm", None),
        ("[2001:db8::1]:22", "2001:db8::1", None, 22),
        ("op@[2001:db8::1]", "2001:db8::1", "op", None),
        ("2001:db8::1", "2001:db8::1", None, None),
        ("ssh://op@gate:2022/", "gate", "op", 2022),
    ],
)
def test_what_a_gateway_may_read(text: str, host: str, user: str | None, port: int | None) -> None:
    assert hop_target(text) == Target(name=host, user=user, port=port)


@pytest.mark.parametrize(
    "text", ["", "@gate", "gate:", "gate:0", "gate:65536", "gate:x", "-oX", "a b", "$(x)", "-l@gate"]
)
def test_what_no_gateway_may_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="not a gateway"):
        hop_target(text)
    if text:
        with pytest.raises(RouteError, match="not a gateway"):
            passed(tmp_path, "", proxy_jump=text)
