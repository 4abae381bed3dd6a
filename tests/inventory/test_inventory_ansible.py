"""Ansible inventories against the real ``ansible-inventory``: hosts, groups, connection values, refusals."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.ansible_inventories import EXECUTABLE, INVENTORIES, write

from fleetcheck.errors import InputError
from fleetcheck.inventory import ansible_run, ansible_vars, dump, ssh_args
from fleetcheck.inventory.load import Loaded, load, read
from fleetcheck.inventory.model import Expect, Target, VenvItem

PROGRAM = ansible_run.find()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs ansible-inventory (package ansible-core)")


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Shut the developer's ansible.cfg out."""
    config = tmp_path_factory.mktemp("ansible") / "ansible.cfg"
    config.write_text("[defaults]\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(config))


def listing(path: Path) -> dict[str, Any]:
    """Return what Ansible itself lists."""
    done = subprocess.run([PROGRAM or "", "-i", str(path), "--list"], check=True, capture_output=True, text=True)
    document: dict[str, Any] = json.loads(done.stdout, object_hook=lambda one: one.get("__ansible_unsafe", one))
    return document


def groups_of(document: dict[str, Any], host: str) -> set[str]:
    """Return every group of a host, by asking each group for all that it holds."""

    def holds(group: str) -> bool:
        entry = document.get(group, {})
        return host in entry.get("hosts", ()) or any(holds(child) for child in entry.get("children", ()))

    return {group for group in document if group not in ("_meta", "all", "ungrouped") and holds(group)}


def hosts_of(document: dict[str, Any], group: str) -> list[str]:
    """Return the hosts of a group and of its children."""
    entry = document.get(group, {})
    return [
        *entry.get("hosts", ()),
        *(host for child in entry.get("children", ()) for host in hosts_of(document, child)),
    ]


@pytest.mark.parametrize("name", INVENTORIES)
def test_hosts_groups_and_connection_values_are_those_of_ansible(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    document = listing(path)
    inventory = load(path, execute=name in EXECUTABLE)
    assert sorted(one.name for one in inventory.targets) == sorted(set(hosts_of(document, "all")))
    for target in inventory.targets:
        given = document["_meta"]["hostvars"].get(target.name, {})
        assert set(target.groups) == groups_of(document, target.name)
        port = given.get("ansible_ssh_port", given.get("ansible_port"))
        key = given.get("ansible_ssh_private_key_file")
        expected = {
            "address": given.get("ansible_ssh_host", given.get("ansible_host")),
            "port": None if port is None else int(port),
            "user": given.get("ansible_ssh_user", given.get("ansible_user")),
            "sudo": given.get("fleetcheck_sudo", given.get("ansible_become", False)) in (True, "yes", "true"),
            "local": given.get("ansible_connection") == "local",
        }
        found = {
            "address": target.address, "port": target.port, "user": target.user, "sudo": target.sudo,
            "local": target.connection == "local",
        }  # fmt: skip
        assert found == expected, target.name
        if key is not None:
            assert target.identity_file == os.path.expanduser(key)  # noqa: PTH111  as Ansible does
        expect = given.get("fleetcheck_expect", {})
        assert target.expect == Expect(**expect)


@pytest.mark.parametrize("name", INVENTORIES)
def test_the_listing_itself_gives_the_same(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    text = json.dumps(listing(path), indent=4)
    file = tmp_path / "listing"
    file.write_text(text)
    targets = load(path, execute=name in EXECUTABLE).targets
    assert load(file).targets == targets
    assert load("-", stdin=io.StringIO(text)).targets == targets


@pytest.mark.parametrize("name", INVENTORIES)
def test_what_is_written_out_as_yaml_loads_to_the_same(name: str, tmp_path: Path) -> None:
    inventory = load(write(tmp_path, name), execute=name in EXECUTABLE)
    file = tmp_path / "again.yaml"
    file.write_text(dump.to_yaml(inventory, inventory.targets))
    assert load(file).targets == inventory.targets


def by_name(name: str, tmp_path: Path) -> tuple[Loaded, dict[str, Target]]:
    loaded = read(write(tmp_path, name), execute=name in EXECUTABLE)
    return loaded, {target.name: target for target in loaded.inventory.targets}


def test_ways_through_gateways(tmp_path: Path) -> None:
    _, hosts = by_name("yaml-without-all", tmp_path)
    assert [hosts[name].proxy_jump for name in ("worker1", "head")] == ["jump@bastion.example.net:2222", None]
    loaded, hosts = by_name("proxy-command", tmp_path)
    assert hosts["10.0.0.11"].proxy_jump == "ec2-user@198.51.100.20"
    assert hosts["10.0.1.5"].proxy_command == "nc -X connect -x proxy:3128 %h %p"
    said = [str(one) for one in loaded.warnings]
    assert said == [f"{tmp_path}/hosts.ini: 10.0.0.[11-13]: {ansible_vars.HOST_KEYS}"]
    loaded, hosts = by_name("ssh-arguments", tmp_path)
    assert (hosts["a1"].ssh_config, hosts["a1"].identity_file) == ("/etc/fleet/ssh_config", "/etc/keys/a")
    assert (hosts["a2"].proxy_jump, hosts["a3"].proxy_jump) == ("hop1,hop2", "none")
    assert [str(one) for one in loaded.warnings] == [f"{tmp_path}/hosts.ini: a3: {ansible_vars.HOST_KEYS}"]


def test_the_interpreter_is_an_environment_where_it_is_not_the_systems(tmp_path: Path) -> None:
    _, hosts = by_name("local-and-others", tmp_path)
    assert hosts["localhost"].venvs == (VenvItem(path="/opt/venvs/tools"), "running", "usual")
    assert hosts["gpu01"].venvs == ("running", "usual")


@pytest.mark.parametrize(
    ("text", "found", "unused"),
    [
        ("-o ProxyJump=a", {"proxy_jump": "a"}, []),
        ("-oProxyJump=a -J b", {"proxy_jump": "a"}, []),
        ("-o 'ProxyJump a'", {"proxy_jump": "a"}, []),
        ("-J a -o ProxyCommand='nc %h %p'", {"proxy_jump": "a"}, []),
        ("-o ProxyCommand=none", {"proxy_jump": "none"}, []),
        ("-o ProxyCommand='ssh -W %h:%p a'", {"proxy_jump": "a"}, []),
        ("-o ProxyCommand='ssh -W [%h]:%p -p 2222 -l me a'", {"proxy_jump": "me@a:2222"}, []),
        ("-o ProxyCommand='ssh -i k -W %h:%p a'", {"proxy_command": "ssh -i k -W %h:%p a"}, []),
        ("-o ProxyCommand='ssh a nc %h %p'", {"proxy_command": "ssh a nc %h %p"}, []),
        ("-Cqi k -F none", {"identity_file": "k", "ssh_config": "none"}, []),
        ("-F /dev/null", {"ssh_config": "none"}, []),
        ("-o User=u -o Port=2 -p 3", {"user": "u", "port": "2"}, []),
        ("-o BindAddress=192.0.2.1 -b x word", {}, ["-o BindAddress", "-b", "word"]),
        ("-i a -i b", {"identity_file": "a"}, ["a second -i"]),
    ],
)
def test_ssh_arguments(text: str, found: dict[str, str], unused: list[str]) -> None:
    args = ssh_args.parse(text)
    assert (args.found, args.unused, args.host_keys) == (found, unused, False)


def test_host_key_settings_for_a_gateway_are_taken_out() -> None:
    args = ssh_args.parse("-o ProxyCommand='ssh -i k -o StrictHostKeyChecking=no -W %h:%p a'")
    assert (args.found, args.host_keys) == ({"proxy_command": "ssh -i k -W %h:%p a"}, True)


def test_arguments_that_are_none() -> None:
    with pytest.raises(ValueError, match="cannot be split into arguments: no closing quotation"):
        ssh_args.parse("-o 'ProxyJump=a")
    with pytest.raises(ValueError, match="-J lacks its value"):
        ssh_args.parse("-J")


def given(tmp_path: Path, text: str, name: str = "hosts", **keys: Any) -> Loaded:
    path = tmp_path / name
    path.write_text(text)
    return read(path, **keys)


def errors(tmp_path: Path, text: str, name: str = "hosts") -> list[str]:
    with pytest.raises(InputError) as caught:
        given(tmp_path, text, name)
    return [line.replace(f"{tmp_path}/", "") for line in str(caught.value).splitlines()]


def test_templates_that_only_name_a_variable_are_filled_in(tmp_path: Path) -> None:
    text = """\
all:
  vars: {ansible_host: '{{ inventory_hostname_short }}.{{ zone }}', zone: lab, ansible_port: '{{ p }}', p: 22}
  hosts: {gpu01.x: , gpu02.x: }
"""
    loaded = given(tmp_path, text, "site.yml")
    assert [(one.address, one.port) for one in loaded.inventory.targets] == [("gpu01.lab", 22), ("gpu02.lab", 22)]


def test_other_templates_are_an_error_that_says_so(tmp_path: Path) -> None:
    text = """\
all:
  hosts:
    gpu01: {ansible_host: "{{ lookup('env', 'X') }}"}
    gpu02: {ansible_user: '{{ who }}'}
"""
    first, second = errors(tmp_path, text, "site.yml")
    assert first == (
        "site.yml: gpu01: ansible_host: {{ lookup('env', 'X') }} is a template, "
        "which ansible-inventory does not fill in; write the value"
    )
    assert second == (
        "site.yml: gpu02: ansible_user: {{ who }} is a template, "
        "and no variable of the host gives who; write the value"
    )


def test_bad_values_name_the_variable_and_fold_the_hosts(tmp_path: Path) -> None:
    head = "[gpu]\ngpu[01:03] ansible_port=022\n[gpu:vars]\n"
    text = head + "fleetcheck_venv=/v\nfleetcheck_expect={'gpus': 'x', 'y': 1}\n"
    lines = errors(tmp_path, text)
    assert lines[0].startswith(
        "hosts: gpu[01-03]: fleetcheck_venv: unknown variable; did you mean fleetcheck_venvs"
    )
    assert lines[1:] == [
        "hosts: gpu[01-03]: ansible_port: given 022; allowed: a whole number from 1 to 65535",
        "hosts: gpu[01-03]: fleetcheck_expect.gpus: given x; allowed: a whole number from 0 to 64",
        "hosts: gpu[01-03]: fleetcheck_expect.y: unknown key",
    ]


def test_a_user_called_no(tmp_path: Path) -> None:
    assert errors(tmp_path, "all: {hosts: {gpu01: {ansible_user: no}}}\n", "site.yml") == [
        "site.yml: gpu01: ansible_user: given false; allowed: text; quote it if it is meant"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\ufeff[gpu]\ngpu01\n", "a byte-order mark (BOM); Ansible takes it for a part of the first line"),
        ("all:\n  children:\n    no:\n      hosts:\n        gpu01:\n", "Invalid empty/false group name"),
        ("[gpu]\ngpu01\ngpu02 broken\n", "Expected key=value host variable assignment, got: broken"),
        ("[gpu]\n", ""),
    ],
)
def test_an_inventory_without_hosts_is_an_error_with_ansibles_own_words(
    tmp_path: Path, text: str, said: str
) -> None:
    lines = errors(tmp_path, text)
    assert lines[-1] == "hosts: ansible-inventory gives no host; this is no fleet"
    assert said in "\n".join(lines)


def test_fewer_hosts_come_with_ansibles_warning(tmp_path: Path) -> None:
    folder = tmp_path / "inv"
    folder.mkdir()
    (folder / "a.ini").write_text("[gpu]\ngpu01\n")
    (folder / "b.ini").write_text("[gpu]\ngpu02 broken\n")
    loaded = read(folder)
    assert [target.name for target in loaded.inventory.targets] == ["gpu01"]
    assert any("got: broken" in one.message for one in loaded.warnings)
    assert any("b.ini" in one.message and "Unable to parse" in one.message for one in loaded.warnings)


SECRET = "hunter2-x9"
HOLDING = {
    "ini": f"gpu01 ansible_password={SECRET}\n",
    "ini-group": f"[gpu]\ngpu01\n[gpu:vars]\nansible_become_pass={SECRET}\n",
    "yaml": f"all: {{hosts: {{gpu01: {{ansible_ssh_pass: {SECRET}}}}}}}\n",
    "json": json.dumps({"_meta": {"hostvars": {"g": {"ansible_sudo_pass": SECRET}}}, "all": {"hosts": ["g"]}}),
    "nested": f"all: {{hosts: {{gpu01: {{bmc: {{user: x, password: {SECRET}}}}}}}}}\n",
    "number": "gpu01 ansible_password=83746512\n",
    "sshpass": f"gpu01 ansible_ssh_common_args='-o ProxyCommand=\"sshpass -p {SECRET} ssh -W %h:%p b\"'\n",
    "key": 'all: {hosts: {gpu01: {ansible_ssh_private_key: "-----BEGIN RSA PRIVATE KEY-----\\nhunter2-x9"}}}\n',
}  # fmt: skip


@pytest.mark.parametrize("kind", HOLDING)
def test_a_password_is_refused_and_not_repeated(kind: str, tmp_path: Path) -> None:
    lines = errors(tmp_path, HOLDING[kind])
    assert any(line.endswith(ansible_vars.SECRETS) for line in lines)
    assert SECRET not in "\n".join(lines)
    assert "83746512" not in "\n".join(lines)


@pytest.mark.parametrize(
    "text", [f"[gpu]\ngpu01\n[gpu:vars]\nansible_password {SECRET}\n", f"gpu01 password {SECRET}\n[x]\n"]
)
def test_a_line_that_ansible_cannot_read_is_not_repeated_with_its_password(text: str, tmp_path: Path) -> None:
    lines = errors(tmp_path, text)
    assert "ansible-inventory gives no host; this is no fleet" in lines[-1]
    assert SECRET not in "\n".join(lines)


def test_a_whole_file_that_is_encrypted_holds_no_readable_password(tmp_path: Path) -> None:
    vault = PROGRAM.replace("ansible-inventory", "ansible-vault") if PROGRAM else ""
    key = tmp_path / "key"
    key.write_text("k\n")
    folder = tmp_path / "inv" / "group_vars" / "all"
    folder.mkdir(parents=True)
    (tmp_path / "inv" / "hosts").write_text("[gpu]\ngpu01\n")
    secret = folder / "vault.yml"
    secret.write_text(f"ansible_become_pass: {SECRET}\n")
    with pytest.raises(InputError, match="ansible_become_pass: an inventory holds no secrets"):
        read(tmp_path / "inv")
    subprocess.run(
        [vault, "encrypt", "--vault-password-file", str(key), str(secret)], check=True, capture_output=True
    )
    Path(os.environ["ANSIBLE_CONFIG"]).write_text(f"[defaults]\nvault_password_file = {key}\n")
    assert [target.name for target in load(tmp_path / "inv").targets] == ["gpu01"]


def test_a_password_that_the_inventory_does_not_hold_is_left_alone(tmp_path: Path) -> None:
    text = """\
all:
  hosts: {gpu01: }
  vars:
    ansible_become_pass: "{{ vault_become }}"
    vault_become: !vault |
      $ANSIBLE_VAULT;1.1;AES256
      6162
    ask_pass: false
"""
    assert given(tmp_path, text, "site.yml").inventory.targets == (Target(name="gpu01"),)


def test_an_executable_is_run_only_where_allowed(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    script = tmp_path / "inv"
    script.write_text(
        f'#!/bin/sh\ntouch {mark}\necho \'{{"_meta": {{"hostvars": {{}}}}, "g": {{"hosts": ["a"]}}}}\'\n'
    )
    refusal = f"{script}: Ansible would run this executable file; allow it with --inventory-exec"
    for mode in (0o644, 0o755):
        script.chmod(mode)
        with pytest.raises(InputError) as caught:
            read(script)
        assert str(caught.value) == refusal
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "hosts").write_text("gpu01\n[x]\ngpu02\n")
    script.rename(folder / "inv")
    with pytest.raises(InputError, match="allow it with --inventory-exec"):
        read(folder)
    assert not mark.exists()
    assert [one.name for one in load(folder, execute=True).targets] == ["gpu01", "gpu02", "a"]
    assert mark.exists()


def test_where_ansible_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    (line,) = errors(tmp_path, "[gpu]\ngpu01\n")
    assert line == (
        "hosts: an Ansible inventory, and ansible-inventory is not installed: "
        "install fleetcheck[ansible] or ansible-core"
    )


def test_what_is_no_listing(tmp_path: Path) -> None:
    assert errors(tmp_path, '{"gpu": {"hosts": ["a"]}}') == [
        "hosts: no _meta.hostvars; this is not what `ansible-inventory --list` prints"
    ]
    text = json.dumps({"_meta": {"hostvars": {}}, "gpu": {"hosts": ["a"], "vars": {"ansible_port": 1}}})
    assert errors(tmp_path, text) == [
        "hosts: gpu: holds vars; give what `ansible-inventory --list` prints without --export"
    ]
    assert errors(tmp_path, '{"_meta": {"hostvars": {}}, "gpu": {"hosts": [') == [
        "hosts:1:47: not JSON: Expecting value"
    ]


def test_where_each_value_comes_from(tmp_path: Path) -> None:
    loaded, hosts = by_name("folder-with-vars", tmp_path)
    places = {one.key: one.place for one in loaded.origins(hosts["gpu02"])}
    root = tmp_path / "production"
    assert places["address"] == f"ansible_host in {root}/host_vars/gpu02.yml:1:1"
    assert places["user"] == f"ansible_user in {root}/host_vars/gpu02.yml:2:1"
    assert places["port"] == f"ansible_port in {root}/group_vars/gpu/main.yml:1:1"
    assert places["identity_file"] == f"ansible_ssh_private_key_file in {root}/group_vars/all.yml:2:1"
    assert places["known_hosts"] == "ssh config"
    loaded, hosts = by_name("yaml-nested", tmp_path)
    places = {one.key: one.place for one in loaded.origins(hosts["gpu02.lab"])}
    assert places["port"] == f"ansible_port in {tmp_path}/site.yml:15:15"
    assert places["user"] == f"ansible_user in {tmp_path}/site.yml:4:5"
    file = tmp_path / "listing.json"
    file.write_text(json.dumps(listing(tmp_path / "production"), indent=4))
    loaded = read(file)
    (place,) = [one.place for one in loaded.origins(loaded.inventory.targets[0]) if one.key == "port"]
    number = int(place.split(":")[-2])
    assert "ansible_port" in file.read_text().splitlines()[number - 1]
