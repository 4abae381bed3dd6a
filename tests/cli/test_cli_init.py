"""``fleetcheck init``: what it writes loads, and no file is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetcheck.cli.main import run
from fleetcheck.inventory.load import load


def test_names_become_an_inventory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fleet.yaml"
    assert run(["init", "gpu[01-03].lab", "10.0.0.1", "-o", str(path)]) == 0
    assert capsys.readouterr().out == ""
    inventory = load(path)
    assert {target.name for target in inventory.targets} == {"gpu01.lab", "gpu02.lab", "gpu03.lab", "10.0.0.1"}
    assert inventory.targets[0].groups == ("gpus",)
    assert not inventory.waivers


def test_what_is_commented_out_loads_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "gpu[01-03].lab", "--group", "rtx"]) == 0
    out = capsys.readouterr().out
    words = ("venvs: [", "expect:", "  gpus:", "  driver:", "  flashinfer:", "waivers:", "  - {", "maintenance:")
    lines = [
        line.replace("# ", "", 1) if line.lstrip(" #").startswith(tuple(word.lstrip() for word in words)) else line
        for line in out.splitlines()
    ]
    path = tmp_path / "fleet.yaml"
    path.write_text("\n".join(lines) + "\n")
    inventory = load(path)
    assert inventory.targets[0].expect.gpus == 8
    assert len(inventory.waivers) == len(inventory.maintenance) == 1


def test_a_file_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("mine\n")
    assert run(["init", "gpu01", "-o", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert path.read_text() == "mine\n"
    assert run(["init", "gpu01", "-o", str(tmp_path / "no" / "folder.yaml")]) == 2


def test_host_entries_of_an_ssh_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = tmp_path / "more"
    more.write_text("Host gpu3\n  HostName 192.0.2.3\n")
    config = tmp_path / "config"
    config.write_text(
        f"Include {more}\nHost gpu1 gpu2 web\n  User x\nHost *.lab !bad\n  Port 22\nHost *\n  User y\n"
    )
    assert run(["init", "--ssh-config", str(config), "gpu*"]) == 0
    assert 'hosts: "gpu[1-3]"' in capsys.readouterr().out
    assert run(["init", "--ssh-config", str(config), "zzz*"]) == 2
    assert "no host or group matches zzz*" in capsys.readouterr().err
    assert run(["init", "--ssh-config", str(tmp_path / "none"), "gpu*"]) == 2
    assert run(["init", "--ssh-config", str(config)]) == 2
    config.write_text("Host *\n  User x\n")
    assert run(["init", "--ssh-config", str(config), "*"]) == 2
    assert "no Host entry without wildcards" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args", [[], ["-x y"], ["gpu[1-"], ["a b c@d"], ["gpu01", "--group", "all"], ["gpu01", "--group", "x: y"]]
)
def test_bad_names_are_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", *args]) == 2
    assert capsys.readouterr().err
