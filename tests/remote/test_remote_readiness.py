"""Host keys that are not known, put together: few commands, none too long to be shown, no host left out."""

from __future__ import annotations

import shlex

from fleetcheck.remote.readiness import LONGEST, Unknown, together


def unknown(host: str, port: int = 22, alias: str | None = None, gateway: str | None = None) -> Unknown:
    return Unknown(host, port, "/k", "/k, /etc/k", alias, gateway)


def test_hosts_alike_share_a_command() -> None:
    found = list(together([unknown("a"), unknown("b"), unknown("c", 2222), unknown("a"), unknown("d")]))
    assert [command for _, command in found] == ["ssh-keyscan a b d >> /k", "ssh-keyscan -p 2222 c >> /k"]
    assert [[one.host for one in group] for group, _ in found] == [["a", "b", "d"], ["c"]]


def test_what_runs_on_a_gateway_or_is_renamed_stands_alone() -> None:
    hosts = [unknown("a"), unknown("b", gateway="g"), unknown("c", gateway="g"), unknown("d", alias="x"),
             unknown("e", alias="x")]  # fmt: skip
    commands = [command for _, command in together(hosts)]
    assert commands[:2] == ["ssh-keyscan a >> /k", "ssh g 'ssh-keyscan b c' >> /k"]
    assert [shlex.split(command)[1] for command in commands[2:]] == ["d", "e"]


def test_no_command_is_longer_than_a_line_that_is_shown() -> None:
    hosts = [unknown(f"gpu{number:04}.rack-{number % 40:02}.lab.example.net") for number in range(300)]
    found = list(together([*hosts, unknown("x" * (2 * LONGEST))]))
    assert [one for group, _ in found for one in group][:300] == hosts
    assert all(len(command) < LONGEST + 50 for _, command in found[:-1])
    assert len(found) < 12
