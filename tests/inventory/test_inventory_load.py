"""What an inventory resolves to: sources, groups, the nearest setting, policy, and writing it out again."""

import io
import json
import pickle
from datetime import date
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcheck.errors import InputError, Problem
from fleetcheck.inventory import dump
from fleetcheck.inventory.load import load, parse, read
from fleetcheck.inventory.model import Expect, Inventory, Target, VenvItem
from fleetcheck.inventory.source import Text, decode

INVENTORIES = Path(__file__).parents[2] / "inventories"


def of(text: str) -> Inventory:
    return parse("site.yaml", [Text("site.yaml", text)], []).inventory


def host(inventory: Inventory, name: str) -> Target:
    return next(target for target in inventory.targets if target.name == name)


def test_the_nearest_setting_wins_and_expect_merges_by_key() -> None:
    inventory = of(
        """
defaults: {user: d, port: 1, venvs: [/d], expect: {gpus: 8, driver: ">=1", files: {/a: """
        + "a" * 64
        + """}}}
groups:
  top: {children: [mid], user: t, port: 2, expect: {driver: ">=2", nvcc: "12"}}
  mid: {children: [low], user: m, venvs: [/m, running]}
  low: {hosts: "h[1-2]", expect: {nvcc: "13"}}
hosts:
  h2: {user: h, expect: {files: {/b: """
        + "b" * 64
        + """}}}
  h3: {}
"""
    )
    assert [target.name for target in inventory.targets] == ["h1", "h2", "h3"]
    h1, h2, h3 = inventory.targets
    assert (h1.user, h1.port, h1.groups) == ("m", 2, ("low", "mid", "top"))
    assert h1.venvs == (VenvItem(path="/m"), "running")
    assert (h1.expect.gpus, h1.expect.driver, h1.expect.nvcc) == (8, ">=2", "13")
    assert (h2.user, h2.port, h2.expect.files, h2.expect.nvcc) == ("h", 2, {"/b": "b" * 64}, "13")
    assert (h3.user, h3.port, h3.groups, h3.venvs) == ("d", 1, (), (VenvItem(path="/d"),))
    assert h3.expect == Expect(gpus=8, driver=">=1", files={"/a": "a" * 64})


def test_one_way_through_gateways_takes_the_place_of_the_other() -> None:
    inventory = of(
        """
defaults: {proxy_jump: far}
groups:
  top: {children: [low], proxy_command: nc %h %p}
  low: {hosts: [a, b], user: u}
  other: {hosts: c, proxy_jump: near}
hosts: {b: {proxy_jump: none}, d: }
"""
    )
    ways = {one.name: (one.proxy_jump, one.proxy_command) for one in inventory.targets}
    assert ways == {"a": (None, "nc %h %p"), "b": ("none", None), "c": ("near", None), "d": ("far", None)}


def test_two_ways_in_one_place_are_an_error() -> None:
    with pytest.raises(InputError, match=r"hosts.a: proxy_jump and proxy_command exclude each other; give one"):
        of("hosts: {a: {proxy_jump: x, proxy_command: nc %h %p}}")
    text = "groups:\n  a: {hosts: x, proxy_jump: j}\n  b: {hosts: x, proxy_command: nc %h %p}\n"
    with pytest.raises(InputError, match=r"site.yaml:3:\d+: groups.b.proxy_command: the group a sets another way"):
        of(text)
    of(text + "hosts: {x: {proxy_jump: none}}\n")


def test_nothing_set_leaves_everything_to_ssh_config() -> None:
    assert of("hosts: {gpu01: }").targets == (Target(name="gpu01"),)


def test_unrelated_groups_may_agree_and_a_host_may_settle_it() -> None:
    inventory = of(
        "groups: {a: {hosts: [h, i], port: 2}, b: {hosts: [h, i], port: 2, user: x}}\nhosts: {h: {port: 9}}"
    )
    assert [(target.port, target.user) for target in inventory.targets] == [(9, "x"), (2, "x")]


def test_a_parent_never_disagrees_with_its_child() -> None:
    text = "groups: {p: {hosts: h, children: [c], port: 1}, c: {hosts: h, port: 2}, q: {children: [p], port: 3}}"
    assert of(text).targets[0].port == 2


def test_a_diamond_of_groups() -> None:
    text = "groups: {t: {children: [a, b], port: 1}, a: {children: [c]}, b: {children: [c]}, c: {hosts: h}}"
    assert of(text).targets[0].port == 1
    assert of(text).targets[0].groups == ("a", "b", "c", "t")


def test_the_order_is_that_of_the_file() -> None:
    assert [one.name for one in of("hosts: {z: , b: }\ngroups: {g: {hosts: [y, b, a]}}").targets] == [
        "z",
        "b",
        "y",
        "a",
    ]
    assert [one.name for one in of("groups: {g: {hosts: [y, b, a]}}\nhosts: {z: , b: }").targets] == [
        "y",
        "b",
        "a",
        "z",
    ]


def test_values_stay_as_they_are_written() -> None:
    target = of(
        "hosts: {a: {user: 1000, expect: {driver: 580.10, nvcc: 12.10, compute_capability: 12.0, torch_cuda: 13, "
        'gpu_name: "no", venv_python: 3.10}}}'
    ).targets[0]
    assert target.user == "1000"
    assert target.expect == Expect(
        driver="580.10",
        nvcc="12.10",
        compute_capability="12.0",
        torch_cuda="13",
        gpu_name="no",
        venv_python="3.10",
    )


@pytest.mark.parametrize(
    "text", ["580.95.05", ">=580.95.05", ">=580,<600", "==12.*", "~=0.6.2", "!=0.6.3", "0.6.18rc1"]
)
def test_version_ranges(text: str) -> None:
    assert of(f"hosts: {{a: {{expect: {{driver: '{text}'}}}}}}").targets[0].expect.driver == text


def test_bom_crlf_aliases_and_json_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfhosts:\r\n  a: &x {port: 22}\r\n  b: *x\r\n")
    assert [(one.name, one.port) for one in load(path).targets] == [("a", 22), ("b", 22)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"hosts": {"a": {"port": 22}}}, indent="\t"))
    assert load(str(path)).targets == (Target(name="a", port=22),)


def test_venv_items() -> None:
    text = "hosts: {a: {venvs: [running, usual, ~/env, /opt/*, {path: /v w, expect: {flashinfer: 0.6.2}}]}}"
    assert of(text).targets[0].venvs == (
        "running",
        "usual",
        VenvItem(path="~/env"),
        VenvItem(path="/opt/*"),
        VenvItem(path="/v w", expect=Expect(flashinfer="0.6.2")),
    )


@pytest.mark.parametrize("jump", ["none", "bastion", "me@bastion:2222", "a,b", "me@[2001:db8::1]:22,b.lab"])
def test_proxy_jumps(jump: str) -> None:
    assert of(f"hosts: {{a: {{proxy_jump: '{jump}'}}}}").targets[0].proxy_jump == jump


def test_paths_begin_at_home_or_at_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "a.yaml").write_text(
        "defaults: {known_hosts: hosts.keys}\nhosts:\n  a: {identity_file: ~/.ssh/k}\n  b: {identity_file: /k}\n"
        "  c: {identity_file: '%d/k', known_hosts: none}\n"
    )
    a, b, c = load(tmp_path / "a.yaml").targets
    assert (a.identity_file, a.known_hosts) == ("/home/me/.ssh/k", str(tmp_path / "hosts.keys"))
    assert b.identity_file == "/k"
    assert (c.identity_file, c.known_hosts) == ("%d/k", "none")


def test_waivers_and_maintenance_name_the_hosts_they_mean() -> None:
    inventory = of(
        """
groups: {g: {hosts: "gpu[01-04]"}, sub: {hosts: "gpu[03-05]"}}
waivers:
  - {rule: pcie-width, hosts: [g, "!gpu02"], reason: slot, until: 2027-03-01}
  - {rule: iommu-on, hosts: all, reason: ok, until: "2027-03-02"}
maintenance:
  - {hosts: "g,&sub", reason: fans, until: 2026-12-05}
"""
    )
    assert [(one.hosts, one.until) for one in inventory.waivers] == [
        ("gpu[01,03-04]", date(2027, 3, 1)),
        ("gpu[01-05]", date(2027, 3, 2)),
    ]
    assert [(one.hosts, one.reason) for one in inventory.maintenance] == [("gpu[03-04]", "fans")]


def test_a_folder_is_one_inventory(tmp_path: Path) -> None:
    (tmp_path / "10-groups.yaml").write_text("groups: {site: {children: [b], user: x}, a: {hosts: h1}}\n")
    (tmp_path / "20-more.yml").write_text("groups: {b: {hosts: h2}}\nhosts: {h1: {port: 2}}\n")
    (tmp_path / ".hidden.yaml").write_text("[")
    (tmp_path / "30-old.yaml~").write_text("[")
    (tmp_path / "sub.yaml").mkdir()
    inventory = load(str(tmp_path))
    assert inventory.source == str(tmp_path)
    assert [(one.name, one.port, one.user, one.groups) for one in inventory.targets] == [
        ("h1", 2, None, ("a",)),
        ("h2", None, "x", ("b", "site")),
    ]


def test_standard_input() -> None:
    inventory = load("-", stdin=io.StringIO("hosts: {a: }"))
    assert (inventory.source, inventory.targets) == ("<stdin>", (Target(name="a"),))
    with pytest.raises(InputError, match=r"^<stdin>:2:1: not YAML: "):
        load("-", stdin=io.TextIOWrapper(io.BytesIO(b"a: 1\n\t- b\n")))


def test_names_and_a_file_that_is_called_like_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("gpu[01-02].lab,x").targets == tuple(Target(name=name) for name in ("gpu01.lab", "gpu02.lab", "x"))
    assert load("site").targets == (Target(name="site"),)
    (tmp_path / "site").write_text("hosts: {a: }")
    assert load("site").targets == (Target(name="a"),)


def test_without_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("FLEETCHECK_INVENTORY", raising=False)
    default = tmp_path / "fleetcheck" / "inventory.yaml"
    with pytest.raises(InputError) as caught:
        load(None)
    assert str(caught.value) == (
        "fleetcheck: no inventory: give one with -i (a file, or hosts such as gpu01), "
        f"set $FLEETCHECK_INVENTORY, or write {default}"
    )
    default.parent.mkdir()
    default.write_text("hosts: {a: }")
    assert load(None).targets == (Target(name="a"),)
    monkeypatch.setenv("FLEETCHECK_INVENTORY", "b,c")
    assert [target.name for target in load(None).targets] == ["b", "c"]


def test_places_tell_where_entries_stand(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "groups:\n  g:\n    hosts: [a, b]\nhosts:\n  c:\nwaivers:\n"
        "  - {rule: x, hosts: a, reason: r, until: 2027-01-01}\n"
        "  - rule: y\n    hosts: b\n    reason: r\n    until: 2027-01-01\n"
    )
    loaded = read(path)
    assert loaded.places["hosts", "b"] == (str(path), 3)
    assert loaded.places["hosts", "c"] == (str(path), 5)
    assert loaded.places["groups", "g"] == (str(path), 2)
    assert loaded.places["waivers", 1] == (str(path), 8)


@pytest.mark.parametrize("path", sorted(INVENTORIES.iterdir()), ids=lambda path: path.name)
def test_every_shipped_inventory_loads(path: Path) -> None:
    assert load(path).targets


def test_what_is_loaded_pickles_and_validates_again() -> None:
    inventory = load(INVENTORIES / "rtx-pro-6000.yaml")
    assert pickle.loads(pickle.dumps(inventory)) == inventory
    assert Inventory.model_validate_json(inventory.model_dump_json()) == inventory


def test_the_example() -> None:
    inventory = load(INVENTORIES / "rtx-pro-6000.yaml")
    assert [target.name for target in inventory.targets] == [f"gpu{n:02}.example.net" for n in range(1, 17)]
    assert {target.expect.gpus for target in inventory.targets} == {8}
    assert {target.expect.compute_capability for target in inventory.targets} == {"12.0"}
    last = host(inventory, "gpu16.example.net")
    assert (last.address, last.port, last.groups) == ("192.0.2.16", 2222, ("rtx-pro-6000", "staging"))
    assert [one.hosts for one in inventory.waivers] == ["gpu[03,07].example.net"]


NAMES = st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,2}", fullmatch=True), min_size=1, max_size=6, unique=True)
EXPECT = st.fixed_dictionaries(
    {},
    optional={
        "gpus": st.integers(0, 64),
        "gpu_name": st.sampled_from(["no", "8", "A: b", "x # y", "NVIDIA H200", "é"]),
        "driver": st.sampled_from([">=580.95.05", "580.10", "12"]),
        "compute_capability": st.sampled_from(["12.0", "9.0"]),
        "files": st.dictionaries(st.sampled_from(["/etc/x", "~", "0"]), st.sampled_from(["0" * 64, "a1" * 32])),
    },
)
ITEM = st.sampled_from(["running", "usual", "/a", "/b *", "~/c"])
HOST = st.fixed_dictionaries(
    {},
    optional={
        "address": st.sampled_from(["192.0.2.1", "2001:db8::1", "a.lab"]),
        "port": st.integers(1, 65535),
        "user": st.sampled_from(["no", "1000", "022", "null", "me"]),
        "identity_file": st.sampled_from(["/k", "/k y"]),
        "known_hosts": st.just("/dev/null"),
        "proxy_jump": st.sampled_from(["none", "a,b@c:22"]),
        "proxy_command": st.sampled_from(["none", "nc -x 'a b' %h %p # c"]),
        "ssh_config": st.sampled_from(["none", "/etc/fleet config"]),
        "connection": st.sampled_from(["ssh", "local", "docker"]),
        "rules": st.dictionaries(st.sampled_from(["csrc-*", "pcie-width"]), st.sampled_from(["info", "ignore"])),
        "sudo": st.booleans(),
        "sysroot": st.sampled_from(["/", "/mnt/x", "/mnt/x/"]),
        "venvs": st.lists(ITEM, max_size=3, unique=True),
        "expect": EXPECT,
    },
).map(lambda one: {key: one[key] for key in one if key != "proxy_jump" or "proxy_command" not in one})


@st.composite
def documents(draw: st.DrawFn) -> dict:
    names = draw(NAMES)
    document: dict = {"hosts": {name: draw(HOST) for name in names}, "defaults": draw(HOST)}
    members = draw(st.lists(st.lists(st.sampled_from(names), min_size=1, unique=True), max_size=3))
    document["groups"] = {f"group-{n}": {"hosts": hosts} for n, hosts in enumerate(members)}
    if members:
        document["groups"]["parent"] = {"children": ["group-0"]} | draw(HOST)
    document["waivers"] = [
        {"rule": "csrc-missing", "hosts": draw(st.sampled_from(names)), "reason": "no", "until": date(2027, 1, 1)}
    ]
    return document


@settings(max_examples=100, deadline=None)
@given(documents())
def test_what_is_written_out_resolves_to_the_same(document: dict) -> None:
    first = of(yaml.safe_dump(document, sort_keys=False))
    again = of(dump.to_yaml(first, first.targets))
    assert again == first
    assert dump.to_yaml(again, again.targets) == dump.to_yaml(first, first.targets)


WORDS = st.sampled_from([
    "hosts", "groups", "defaults", "children", "vars", "all", "port", "user", "expect", "gpus", "venvs", "waivers",
    "proxy_command", "ansible_host", "gpu[01-03]", "a,b", "[x]", "{", "}", "[", "]", ":", ": ", "- ", "\n", "  ",
    "\t", "\r\n", "'", '"', "&a ", "*a", "<<", "!!x ", "#", "|", ">", "022", "no", "~", "\ufeff", "@x", "é",
    "Host x", "=",
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS | st.text(max_size=4), max_size=25).map("".join))
def test_random_yaml_is_an_inventory_or_an_input_error(text: str) -> None:
    problems: list[Problem] = []
    texts = decode("site.yaml", text.encode("utf-8", "surrogatepass"), problems)
    try:
        parse("site.yaml", texts, problems)
    except InputError as error:
        assert error.problems
        assert all("\n" not in str(one) for one in error.problems)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS | st.text(max_size=4), max_size=25).map("".join))
def test_random_text_of_any_kind_is_an_inventory_or_an_input_error(text: str) -> None:
    from fleetcheck.inventory.kinds import form_of

    form = form_of(text)
    if form in ("ansible", "script"):
        return  # Ansible's own parsers read it, in a process of their own
    try:
        load("-", stdin=io.StringIO(text))
    except InputError as error:
        assert error.problems


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=6) | st.sampled_from(["a", "gpu[1-3]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["hosts", "a", "port", "groups", "expect", "user", "vars"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_random_json_is_an_inventory_or_an_input_error(value: object) -> None:
    for document in (value, {"_meta": {"hostvars": value}, "g": value}, {"_meta": {"hostvars": {"h": value}}}):
        try:
            load("-", stdin=io.StringIO(json.dumps(document)))
        except InputError as error:
            assert error.problems


def test_one_host_under_two_names_is_remarked() -> None:
    text = "hosts:\n  h: {}\n  h.: {}\n  H: {}\n  k.: {address: 192.0.2.1}\n  k: {}\n  l.: {}\n"
    loaded = parse("site.yaml", [Text("site.yaml", text)], [])
    assert [str(one) for one in loaded.warnings] == [
        "site.yaml:3: h. and h are one host under two names; name it once"
    ]
    assert [str(one) for one in read("n1.,n1").warnings] == [
        "n1.,n1: n1. and n1 are one host under two names; name it once"
    ]
