"""The first moments of the program and its last: an interrupt at any of them, a standard output that fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.program import PROGRAM, SECONDS, environ, look, recording

from fleetcheck.cli.main import SUMMARIES

MODULE = (sys.executable, "-m", "fleetcheck")
AT = """
import os, runpy, signal, sys
left = int(sys.argv.pop(1))
def hook(event, arguments):
    global left
    # What is imported before fleetcheck.__main__ runs is Python's own start.
    if event == "import" and "fleetcheck.cli" in (arguments[0], *sys.modules):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
sys.argv[0] = "fleetcheck"
runpy.run_module("fleetcheck", run_name="__main__", alter_sys=True)
"""
"""Interrupts itself at the import of a given number."""


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Let children heed SIGINT: a test runner in the background hands down that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 300])
def test_an_interrupt_at_an_import_is_a_quiet_130(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-c", AT, str(number), "hosts", "-i", "gpu[01-16]"]
    done = subprocess.run(
        command, env=environ(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() in ("", "fleetcheck: interrupted")


def test_an_interrupt_at_any_moment_shows_nothing_of_ours(tmp_path: Path) -> None:
    ends = set()
    for number in range(40):
        with subprocess.Popen(
            [*MODULE, "hosts", "-i", "gpu[01-16]"], env=environ(tmp_path), cwd=tmp_path, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            try:
                process.wait(number * 0.01)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=SECONDS)
        # Before our first line runs, Python itself answers: by its death, or by a traceback of its own start.
        assert "fleetcheck/" not in said
        assert "internal error" not in said
        ends.add(process.returncode)
    assert ends <= {0, 130, -signal.SIGINT, 1}
    assert 130 in ends


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    script = f"trap '' INT; {sys.executable} -c \"$1\" 5 hosts -i gpu01"
    done = subprocess.run(
        ["sh", "-c", script, "sh", AT],
        env=environ(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


COMMANDS = [
    *([name, "--help"] for name in SUMMARIES), ["--help"], ["--version"], ["rules"], ["rules", "csrc-missing"],
    ["completion", "zsh"], ["hosts", "-i", "gpu[01-02]"], ["hosts", "-i", "gpu[01-02]", "--format", "yaml"],
    ["hosts", "-i", "gpu01", "--explain"], ["init", "gpu[01-02]"], ["replay", "e"],
    ["replay", "e", "--format", "jsonl"],
    ["compare", "a", "b", "--run", "e2"], ["baseline", "a", "--run", "e"], ["report", "run.json"],
    ["show", "a", "run.json"], ["schedule", "-i", "site.yaml"],
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    recording(folder / "e", [look("a")])
    recording(folder / "e2", [look("a"), look("b", 7)])
    with (folder / "run.json").open("wb") as out:
        subprocess.run(
            [*PROGRAM, "replay", "e", "--format", "json"], cwd=folder, env=environ(folder), stdout=out, check=True
        )
    (folder / "site.yaml").write_text("hosts: {gpu01: }\n")
    return folder


def ended(site: Path, words: list[str], redirection: str) -> tuple[int, list[str]]:
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *MODULE, *words]
    done = subprocess.run(
        shell, env=environ(site), cwd=site, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_standard_output_that_takes_nothing(site: Path, words: list[str]) -> None:
    assert ended(site, words, ">/dev/full") == (2, ["fleetcheck: standard output: No space left on device"])
    assert ended(site, words, ">&-") == (2, ["fleetcheck: standard output is closed"])


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_reader_that_left(site: Path, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*MODULE, *words], env=environ(site), cwd=site, stdin=subprocess.DEVNULL, stdout=writing,
        stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode in (0, 1), done.stderr) == (True, "")


def test_closed_streams_are_not_lent_to_files(site: Path) -> None:
    # The history would be file 0, 1 or 2, and a message would go into it.
    assert ended(site, ["hosts", "-i", "site.yaml"], "<&- >out 2>&-") == (0, [])
    assert "gpu01" in (site / "out").read_text()
