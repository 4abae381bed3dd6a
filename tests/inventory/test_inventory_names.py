"""Inventories that are only names: command line, standard input, files, ClusterShell's groups; and their kind."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fleetcheck.errors import InputError
from fleetcheck.inventory.kinds import form_of
from fleetcheck.inventory.load import load, read


def names(source: str | Path, stdin: str | None = None, *, execute: bool = False) -> list[str]:
    stream = None if stdin is None else io.StringIO(stdin)
    inventory = load(source, stdin=stream, execute=execute)
    assert inventory.kind == "names"
    return [target.name for target in inventory.targets]


def test_names_on_standard_input() -> None:
    assert names("-", "gpu01\ngpu[02-03].lab  # spare\n\n# all\n10.0.0.1, 10.0.0.2\n") == [
        "gpu01", "gpu02.lab", "gpu03.lab", "10.0.0.1", "10.0.0.2",
    ]  # fmt: skip


def test_a_file_of_names_with_and_without_the_at_sign(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("gpu01\ngpu02\n")
    assert names(path) == names(f"@{path}") == ["gpu01", "gpu02"]
    assert names(f"gpu09,@{path}") == ["gpu09", "gpu01", "gpu02"]


def test_every_wrong_name_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("gpu01\ngpu[2-1]\n-x\n@other\n")
    with pytest.raises(InputError) as caught:
        load(f"@{path}")
    assert str(caught.value).splitlines() == [
        f"{path}:2: bad range in gpu[2-1]: 2-1 runs backwards",
        f"{path}:3: -x is no host name",
        f"{path}:4: @other: a file of names names no other file",
    ]


def test_where_a_name_stands(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("gpu01\ngpu02\n")
    loaded = read(path)
    assert loaded.origins(loaded.inventory.targets[1])[0] == ("host", "gpu02", f"{path}:2")


@pytest.fixture
def clustershell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "clustershell"
    (folder / "groups.d").mkdir(parents=True)
    (folder / "groups.conf").write_text(
        f"[Main]\ndefault: racks\nautodir: {folder}/groups.d\n\n[cmd]\nmap: touch {folder}/ran; echo 'n[1-2]'\n"
        "list: echo any\n"
    )
    (folder / "groups.d" / "racks.yaml").write_text("racks:\n  rack4: 'gpu[01-02]'\n  hall: '@rack4,gpu09'\n")
    monkeypatch.setenv("CLUSTERSHELL_CFGDIR", str(folder))
    return folder


def test_groups_of_clustershell(clustershell: Path) -> None:
    assert names("@rack4") == ["gpu01", "gpu02"]
    assert names("@racks:hall,x") == ["gpu01", "gpu02", "gpu09", "x"]
    with pytest.raises(InputError, match="no ClusterShell group is called rack5; did you mean rack4"):
        load("@rack5")
    with pytest.raises(InputError, match="ClusterShell says: "):
        load("@none:rack5")


def test_a_group_that_is_a_command_is_run_only_where_allowed(clustershell: Path) -> None:
    with pytest.raises(InputError, match="source cmd runs a command: allow it with --inventory-exec"):
        load("@cmd:any")
    with pytest.raises(InputError, match="neither a file nor the name of a ClusterShell group"):
        load("@cmd:$(touch x)", execute=True)
    assert not (clustershell / "ran").exists()
    assert names("@cmd:any", execute=True) == ["n1", "n2"]
    assert (clustershell / "ran").exists()


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("", "native"),
        ("groups: {a: {hosts: b}}\n", "native"),
        ("hosts: {a: }\n", "native"),
        ('{"hosts": {"a": {}}}', "native"),
        ("group: {a: {hosts: b}}\n", "native"),
        ("gruops:\n  a:\n    hosts: b\n", "native"),
        ("- gpu01\n", "native"),
        ("[a, b]\n", "native"),
        ("all:\n  hosts:\n    a:\n", "ansible"),
        ("web:\n  # c\n\n  hosts:\n    a:\n", "ansible"),
        ("web: {hosts: {a: }}\n", "ansible"),
        ("plugin: amazon.aws.aws_ec2\n", "ansible"),
        ('{"all": {"hosts": {"a": {}}}}', "ansible"),
        ('{"web": {"hosts": {"a": {}}}}', "ansible"),
        ("# c\n[web]\na\n", "ansible"),
        ("a ansible_port=1\n", "ansible"),
        ("gpu[01:03]\n", "ansible"),
        ("[all.hosts]\na = {}\n", "ansible"),
        ('{"_meta": {"hostvars": {}}}', "ansible-list"),
        ('{"web": {"hosts": ["a"]}}', "ansible-list"),
        ("#!/usr/bin/env python3\n", "script"),
        ("# mine\nHost a\n  Port 1\n", "ssh_config"),
        ("ForwardAgent no\nHost=a\n", "ssh_config"),
        ("Include conf.d/*\n", "ssh_config"),
        ("Match all\n  User x\n", "ssh_config"),
        ("gpu01\ngpu[02-03].lab # x\n", "names"),
        ("10.0.0.1 10.0.0.2\n", "names"),
    ],
)
def test_the_kind_is_told_by_the_content(text: str, form: str) -> None:
    assert form_of(text) == form


def test_a_folder_of_two_kinds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("hosts: {a: }\n")
    (tmp_path / "b.ini").write_text("[x]\nb\n")
    with pytest.raises(InputError) as caught:
        load(tmp_path)
    assert str(caught.value).splitlines()[0] == (
        f"{tmp_path}/a.yaml: a native inventory in a folder of Ansible's ({tmp_path}/b.ini); give them one by one"
    )


@pytest.mark.parametrize("source", ["gpu01:pw@host", "root:pw@gpu01", "ssh://root:pw@gpu01"])
def test_a_password_in_a_name_is_refused_and_not_repeated(source: str) -> None:
    for stdin in (None, source):
        with pytest.raises(InputError) as caught:
            load(source if stdin is None else "-", stdin=None if stdin is None else io.StringIO(stdin))
        assert "pw@" not in str(caught.value)
        assert "password" in str(caught.value)
