"""``scan:`` is a setting as all others: the nearest wins, lists replace, errors say what is allowed."""

from __future__ import annotations

import json

import pytest

from fleetcheck.errors import InputError
from fleetcheck.inventory import dump
from fleetcheck.inventory.load import parse
from fleetcheck.inventory.model import Inventory, Target
from fleetcheck.inventory.source import Text
from fleetcheck.remote.reach import request_for
from fleetcheck.remote.settings import Settings


def of(text: str) -> Inventory:
    return parse("site.yaml", [Text("site.yaml", text)], []).inventory


SITE = """
defaults: {scan: /etc/a}
groups:
  top: {children: [low], scan: [/t, "/t/*.sh"]}
  low: {hosts: "h[1-2]", scan: [~/l]}
  other: {hosts: "h[3-4]"}
hosts:
  h2: {scan: []}
  h4: {scan: [/own]}
"""


def test_the_nearest_list_replaces() -> None:
    inventory = of(SITE)
    assert [target.scan for target in inventory.targets] == [("~/l",), (), ("/etc/a",), ("/own",)]
    assert Target(name="h").scan == ()


def test_it_is_written_out_and_asked_for() -> None:
    inventory = of(SITE)
    again = of(dump.to_yaml(inventory, inventory.targets))
    assert again.targets == inventory.targets
    told = json.loads(json.dumps(dump.to_json(inventory, inventory.targets)))
    assert [one["scan"] for one in told["targets"]] == [["~/l"], [], ["/etc/a"], ["/own"]]
    assert request_for(inventory.targets[0], Settings(), 60.0).scan == ("~/l",)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[relative]", "scan[0]: given relative; allowed: a path, folder or glob that begins with / or ~"),
        ("[/a, /a]", "/a is listed twice"),
        ("{a: b}", "allowed: a path, folder or glob"),
        ("7", "allowed: a path, folder or glob"),
        ("", "allowed: a path, folder or glob"),
    ],
)
def test_what_is_wrong_is_said(value: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        of(f"hosts:\n  h1: {{user: a}}\n  h2:\n    scan: {value}\n")
    assert said in str(caught.value.problems[0])
