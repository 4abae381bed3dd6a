"""Completion as the shells ask for it: the real scripts, in the shells that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

START = "from fleetcheck.cli.main import main; main()"
INVENTORY = "groups:\n  rtx: {hosts: 'gpu[01-03].lab'}\n  h200: {hosts: 'h[1-2]'}\nhosts: {gpu09.lab: }\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "site.yaml"
    path.write_text(INVENTORY)
    return path


def run(*arguments: str, program: str = START, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True, capture_output=True, text=True, timeout=60, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def completed(*words: str, program: str = START) -> list[str]:
    text = " ".join(("fleetcheck", *words))
    out = run(program=program, COMP_WORDS=text, COMP_CWORD=str(len(words)), _FLEETCHECK_COMPLETE="bash_complete")
    return [line.partition(",")[2] for line in out.splitlines() if line]


def test_hosts_and_groups(site: Path) -> None:
    chosen = ("hosts", "-i", str(site))
    assert completed(*chosen, "gpu") == ["gpu01.lab", "gpu02.lab", "gpu03.lab", "gpu09.lab"]
    assert completed(*chosen, "h") == ["h200", "h1", "h2"]
    assert completed(*chosen, "a") == ["all"]
    assert completed(*chosen, "rtx,!gpu02") == ["rtx,!gpu02.lab"]


def test_the_usual_inventory_is_meant_without_one(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCHECK_INVENTORY", str(site))
    assert completed("hosts", "r") == ["rtx"]
    monkeypatch.delenv("FLEETCHECK_INVENTORY")
    assert completed("hosts", "r") == []


def test_a_changed_inventory_is_read_again(site: Path) -> None:
    assert completed("hosts", "-i", str(site), "x") == []
    site.write_text(INVENTORY.replace("gpu09.lab", "xgpu"))
    assert completed("hosts", "-i", str(site), "x") == ["xgpu"]
    site.write_text("hosts: {: }")
    assert completed("hosts", "-i", str(site), "x") == []


def test_options_and_formats(site: Path) -> None:
    assert completed("hosts", "--inventory-") == ["--inventory-exec"]
    assert completed("hosts", "--format", "g") == ["graph"]
    assert "completion" in completed("")


def test_names_that_are_known_need_no_heavy_import(site: Path) -> None:
    heavy = {"fabric", "paramiko", "pydantic", "yaml", "ClusterShell", "tabulate"}
    watched = (
        "import atexit, sys\nfrom fleetcheck.cli.main import main\n"
        f"atexit.register(lambda: print('plain,heavy', *sorted({heavy!r} & set(sys.modules))))\nmain()"
    )
    chosen = ("hosts", "-i", str(site), "gpu09")
    assert completed(*chosen) == ["gpu09.lab"]
    assert completed(*chosen, program=watched) == ["gpu09.lab", "heavy"]


def test_a_command_that_loads_an_inventory_keeps_its_names(site: Path) -> None:
    run("hosts", "-i", str(site))
    (file,) = (site.parent / "cache" / "fleetcheck" / "names").iterdir()
    assert "gpu09.lab" in file.read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_asks_the_program(shell: str) -> None:
    script = run("completion", shell)
    assert f"_FLEETCHECK_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, capture_output=True)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder for PATH that holds the program."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "fleetcheck"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{START}' \"$@\"\n")
    script.chmod(0o755)
    return folder


def shell(name: str, script: str, program: Path) -> list[str]:
    environment = {**os.environ, "PATH": f"{program}:{os.environ['PATH']}", "HOME": str(program)}
    done = subprocess.run(
        [name, "-c", script], check=True, capture_output=True, text=True, timeout=60, env=environment
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_real_bash(site: Path, program: Path) -> None:
    words = f"(fleetcheck hosts -i {site} gpu0)"
    script = (
        f"source <(fleetcheck completion bash); COMP_WORDS={words}; COMP_CWORD=4; "
        "_fleetcheck_completion fleetcheck; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    assert shell("bash", script, program) == ["gpu01.lab", "gpu02.lab", "gpu03.lab", "gpu09.lab"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_a_real_fish(site: Path, program: Path) -> None:
    script = f"fleetcheck completion fish | source; complete -C 'fleetcheck hosts -i {site} r'"
    assert shell("fish", script, program) == ["rtx\tgroup"]
