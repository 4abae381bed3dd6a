"""``fleetcheck hosts``, as its own process: what it prints, where errors go, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fleetcheck.inventory.load import load

EXAMPLE = Path(__file__).parents[2] / "inventories" / "rtx-pro-6000.yaml"


def hosts(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    program = "from fleetcheck.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, "hosts", *arguments],
        input=given,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_table_has_a_row_a_host() -> None:
    done = hosts("-i", str(EXAMPLE), "staging")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["host", "address", "user", "via", "groups", "venvs", "expect"]
    assert lines[2].startswith("gpu15.example.net")
    assert lines[3].split()[:4] == ["gpu16.example.net", "192.0.2.16:2222", "audit", "audit@bastion.example.net"]
    assert lines[-1] == "2 hosts"


def test_json() -> None:
    done = hosts("-i", str(EXAMPLE), "--format", "json", "gpu12*")
    document = json.loads(done.stdout)
    assert [one["name"] for one in document["targets"]] == ["gpu12.example.net"]
    assert document["targets"][0]["expect"]["gpus"] == 8
    assert document["maintenance"] == [
        {"hosts": "gpu12.example.net", "reason": "new power supply", "until": "2026-12-05"}
    ]
    assert document["waivers"] == []


def test_yaml_is_an_inventory_again() -> None:
    done = hosts("-i", str(EXAMPLE), "--format", "yaml")
    again = hosts("-i", "-", "--format", "yaml", given=done.stdout)
    assert again.stdout == done.stdout
    assert yaml.safe_load(done.stdout)["groups"]["staging"] == {"hosts": "gpu[15-16].example.net"}


def test_yaml_loads_to_the_same_targets(tmp_path: Path) -> None:
    path = tmp_path / "again.yaml"
    path.write_text(hosts("-i", str(EXAMPLE), "--format", "yaml").stdout)
    again, first = load(path), load(EXAMPLE)
    assert (again.targets, again.waivers, again.maintenance) == (first.targets, first.waivers, first.maintenance)


def test_errors_are_lines_on_standard_error_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("hosts:\n  a: {port: 0}\n  b: {prt: 1}\n")
    done = hosts("-i", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert lines[0] == f"{path}:2:13: hosts.a.port: given 0; allowed: a whole number from 1 to 65535"
    assert lines[1].startswith(f"{path}:3:7: hosts.b.prt: unknown key; did you mean port?")
    assert len(lines) == 2


def test_a_pattern_that_matches_nothing() -> None:
    done = hosts("-i", "gpu01,gpu02", "gpu03")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gpu01,gpu02: no host or group matches gpu03; nearest: gpu02, gpu01\n"


def test_an_unreadable_inventory() -> None:
    done = hosts("-i", "/nowhere.yaml")
    assert (done.returncode, done.stderr) == (2, "/nowhere.yaml: cannot be read: No such file or directory\n")


def test_help_needs_neither_pydantic_nor_yaml() -> None:
    program = (
        "import sys\nfrom fleetcheck.cli.main import run\nrun(['hosts', '--help'])\n"
        "print(sorted({'pydantic', 'yaml', 'ClusterShell', 'tabulate'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert done.stderr == "[]\n"
    assert "PATTERN" in done.stdout


SITE = """\
defaults: {user: audit}
groups:
  site: {children: [serving], port: 2222}
  serving: {hosts: "gpu[01-02]", expect: {gpus: 8}}
hosts:
  gpu02: {user: root}
  gpu03:
"""


def test_where_each_value_of_one_host_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    done = hosts("-i", str(path), "--explain", "--format", "json", "gpu02")
    rows = {row["key"]: (row["value"], row["place"]) for row in json.loads(done.stdout)}
    assert rows["host"] == ("gpu02", f"{path}:4:13")
    assert rows["groups"] == ("serving, site", f"{path}:4:3, {path}:3:3")
    assert rows["user"] == ("root", f"{path}:6:11")
    assert rows["port"] == ("2222", f"{path}:3:31")
    assert rows["expect.gpus"] == ("8", f"{path}:4:43")
    assert rows["proxy_jump"] == ("", "ssh config")
    assert rows["venvs"] == ("running, usual", "default")
    lines = hosts("-i", str(path), "--explain", "gpu01").stdout.splitlines()
    assert lines[0].split() == ["key", "value", "from"]
    assert [line.split() for line in lines if line.startswith("user")] == [["user", "audit", f"{path}:1:12"]]


def test_only_one_host_is_explained() -> None:
    done = hosts("-i", "gpu01,gpu02", "--explain")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--explain is for one host; 2 are selected." in done.stderr


def test_the_graph_of_groups(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    done = hosts("-i", str(path), "--format", "graph")
    assert done.stdout == (
        "all: 3 hosts\n  site: 2 hosts\n    serving: 2 hosts, gpu[01-02]\n  without a group: 1 host, gpu03\n"
    )
    assert hosts("-i", str(path), "--format", "graph", "gpu03").stdout == (
        "all: 1 host\n  without a group: 1 host, gpu03\n"
    )


def test_warnings_are_lines_on_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_bytes(b"\xef\xbb\xbfhosts:\r\n  gpu01: {user:\troot}\r\n")
    done = hosts("-i", str(path), "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["targets"][0]["user"] == "root"
    assert done.stderr.splitlines() == [
        f"warning: {path}:1:1: a byte-order mark (BOM); it is left out; save the file without",
        f"warning: {path}:1:7: lines end in CRLF; save the file with LF",
        f"warning: {path}:2:16: a tab; YAML aligns by spaces alone, write spaces",
    ]


def test_a_waiver_of_an_unknown_rule(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "hosts: {gpu01: }\nwaivers:\n  - {rule: csrc-mising, hosts: gpu01, reason: r, until: 2099-01-01}\n"
    )
    done = hosts("-i", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"{path}:3:6: waivers[0].rule: no rule is called csrc-mising; did you mean csrc-missing"
    )


def test_errors_of_every_kind_are_shown_at_once(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "groups:\n"
        "  a:\n"
        "    hosts: g[1-2].lab\n"
        "    password: hunter2\n"
        "    rules: {csrc-mising: error, 'csrc-*': ignore}\n"
        "hosts: {h1: {port: 1, port: 2}}\n"
        "waivers:\n"
        "  - {rule: csrc-mising, hosts: g1, reason: r, until: 2099-13-01}\n"
        "  - {rule: csrc-missing, hosts: nobody, reason: r, until: 2099-01-01}\n"
        "  - {rule: fusion-refuse, hosts: a, reason: r, until: 2099-01-01}\n"
        "maintenance:\n"
        "  - {hosts: [a, nobody], reason: , until: soon, colour: red}\n"
    )
    done = hosts("-i", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    day = "allowed: a day, written YYYY-MM-DD"
    unknown = "did you mean csrc-missing, "
    seen = [line.removeprefix(f"{path}:") for line in done.stderr.splitlines()]
    wanted = [
        "4:5: groups.a.password: an inventory holds no secrets",
        f"5:13: groups.a.rules.csrc-mising: there is no rule or family 'csrc-mising'; {unknown}",
        "6:23: the key port is given twice (first in line 6)",
        f"8:6: waivers[0].rule: no rule is called csrc-mising; {unknown}",
        "8:25: waivers[0].hosts: no host or group matches g1; nearest: g1.lab",
        f"8:54: waivers[0].until: given 2099-13-01; {day}",
        "9:26: waivers[1].hosts: no host or group matches nobody",
        "10:6: waivers[2].rule: no rule is called fusion-refuse; did you mean fusion-refused",
        "12:6: maintenance[0].hosts: no host or group matches nobody",
        "12:26: maintenance[0].reason: given nothing; allowed: text",
        f"12:43: maintenance[0].until: given soon; {day}",
        "12:49: maintenance[0].colour: unknown key; allowed: hosts, reason, until",
    ]
    assert [line[: len(start)] for line, start in zip(seen, wanted, strict=True)] == wanted


@pytest.mark.parametrize("lost", ["host: g3", "hosts: 5-", "hosts: g[1-"])
def test_a_name_that_may_be_among_what_was_not_read_is_no_error(tmp_path: Path, lost: str) -> None:
    path = tmp_path / "site.yaml"
    part = "  - {hosts: g3, reason: r, until: 2099-01-01}\n"
    path.write_text(f"hosts: {{h1: }}\ngroups:\n  a:\n    {lost}\nmaintenance:\n{part}")
    done = hosts("-i", str(path))
    assert done.returncode == 2
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == [f"{path}:4:5"]


def through_a_pipe(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``fleetcheck hosts -i <(COMMAND)`` as a shell does."""
    script = 'text=$1; shift; exec "$@" -i <(printf %s "$text")'
    command = ["bash", "-c", script, "bash", text, sys.executable, "-m", "fleetcheck", "hosts", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_process_substitution() -> None:
    for text in ("hosts: {g1: }\ngroups: {a: {hosts: 'g[2-3]'}}\n", "g1\ng[2-3]\n", "{'hosts': {'g[1-3]': {}}}\n"):
        done = through_a_pipe(text, "--format", "json")
        assert (done.returncode, done.stderr) == (0, "")
        assert [target["name"] for target in json.loads(done.stdout)["targets"]] == ["g1", "g2", "g3"]


def test_a_relative_path_in_a_pipe_begins_where_the_user_is() -> None:
    done = through_a_pipe("hosts: {g1: {identity_file: key}}\n", "--format", "json")
    assert json.loads(done.stdout)["targets"][0]["identity_file"] == str(Path.cwd() / "key")


def test_what_another_program_reads_cannot_come_through_a_pipe() -> None:
    for text, says in (
        ("[web]\ng1 x=1\n", "Ansible reads an inventory from a path"),
        ("Host g1\n", "ssh reads its config from a file"),
        ("#!/bin/sh\n", "an executable cannot come through a pipe"),
    ):
        done = through_a_pipe(text, "--inventory-exec")
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_nodeset_with_a_step_is_no_path() -> None:
    done = hosts("-i", "gpu[0-6/3]", "--format", "json")
    assert [target["name"] for target in json.loads(done.stdout)["targets"]] == ["gpu0", "gpu3", "gpu6"]
