"""``fleetcheck hosts``, as its own process: what it prints, where errors go, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

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
