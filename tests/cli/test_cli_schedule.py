"""``schedule`` with a real crontab program and real unit files."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.crontab import borrowed, listed
from support.program import call


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text("hosts: {gpu1: {}}\n")
    return path


@pytest.fixture
def crontab() -> Iterator[None]:
    with borrowed():
        yield


def test_the_line_has_absolute_paths_and_what_audit_was_given(tmp_path: Path, inventory: Path) -> None:
    done = call(
        tmp_path, "schedule", "-i", inventory.name, "--", "gpu1", "--remind", "24h", "--fail-on", "warning"
    )
    assert (done.returncode, done.stderr) == (0, "")
    words = shlex.split(done.stdout)
    assert words[1:5] == ["3", "*", "*", "*"]
    assert words[5:8] == ["cd", str(tmp_path), "&&"]
    program = next(
        word for word in words if (word.startswith("/") and "python" in word) or word.endswith("/fleetcheck")
    )
    assert os.access(program, os.X_OK)
    assert words[words.index("audit"):] == [
        "audit", "--cron", "--db", f"{tmp_path}/.local/state/fleetcheck/history.db", "-i", str(inventory), "gpu1",
        "--remind", "24h", "--fail-on", "warning",
    ]  # fmt: skip
    assert call(tmp_path, "schedule", "-i", inventory.name, "--", "gpu1").stdout.split()[0] == words[0]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["-i", "-"], "standard input is empty under cron"),
        (["--at", "soon", "-i", "a"], "is not a time of cron"),
        (["-i", "a", "--", "--nonsense"], "No such option"),
        (["--install", "--remove"], "opposites"),
        (["--folder", "x"], "belongs to --systemd"),
        ([], "no inventory"),
    ],
)
def test_wrong_usage(tmp_path: Path, args: list[str], says: str) -> None:
    done = call(tmp_path, "schedule", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


@pytest.mark.usefixtures("crontab")
def test_install_is_idempotent_and_remove_takes_back_exactly_that(tmp_path: Path, inventory: Path) -> None:
    mine = "# mine\n5 5 * * * true\n"
    subprocess.run(["crontab", "-"], input=mine, text=True, check=True)
    first = call(tmp_path, "schedule", "-i", inventory, "--install", "--", "--output", "json:100%.json")
    assert first.returncode == 0
    assert all(line.startswith(("warning: ", "         ")) for line in first.stderr.splitlines())
    backup = Path(first.stdout.splitlines()[0].partition(": ")[2])
    assert backup.read_text() == mine
    after = listed()
    assert after.startswith(mine)
    assert "100\\%.json" in after
    again = call(tmp_path, "schedule", "-i", inventory, "--install", "--", "--output", "json:100%.json")
    assert again.stdout.startswith("Nothing to do")
    call(tmp_path, "schedule", "-i", inventory, "--install", "--name", "second", "--at", "@daily")
    changed = call(tmp_path, "schedule", "-i", inventory, "--install", "--at", "1 2 * * *")
    assert changed.returncode == 0
    assert listed().count("audit --cron") == 2
    assert call(tmp_path, "schedule", "--remove").returncode == 0
    assert call(tmp_path, "schedule", "--remove", "--name", "second").returncode == 0
    assert listed() == mine
    assert call(tmp_path, "schedule", "--remove").stdout.startswith("Nothing to do")


def test_units_are_written_and_taken_back(tmp_path: Path, inventory: Path) -> None:
    folder = tmp_path / "units"
    done = call(tmp_path, "schedule", "-i", inventory, "--systemd", "--folder", folder, "--install", "--",
                "--limit", "run=600")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    service = (folder / "fleetcheck-audit.service").read_text()
    assert "TimeoutStartSec=720\n" in service
    assert "RandomizedDelaySec=" in (folder / "fleetcheck-audit.timer").read_text()
    if shutil.which("systemd-analyze"):
        files = [str(path) for path in folder.iterdir()]
        verify = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
        assert verify.returncode == 0, verify.stderr
    gone = call(tmp_path, "schedule", "--remove", "--systemd", "--folder", folder)
    assert (gone.returncode, list(folder.iterdir())) == (0, [])


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A disk on which files can be made, and nothing be written into them."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "none", small], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        (small / "units").mkdir()
        (small / "state").mkdir()
        with contextlib.suppress(OSError), (small / "full").open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
        yield small
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root, to mount a small disk")
def test_a_full_disk_leaves_no_half_of_a_unit_or_backup(tmp_path: Path, inventory: Path, full: Path) -> None:
    words = ("schedule", "-i", inventory, "--systemd", "--install", "--folder")
    done = call(tmp_path, *words, full / "units")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fleetcheck: {full}/units: the units cannot be written: No space left on device\n"
    assert list((full / "units").iterdir()) == []

    units, state = tmp_path / "units", {"XDG_STATE_HOME": str(full / "state")}
    assert call(tmp_path, *words, units).returncode == 0
    before = {path.name: path.read_bytes() for path in units.iterdir()}
    for command in ((*words, units, "--at", "daily"), ("schedule", "--remove", "--systemd", "--folder", units)):
        done = call(tmp_path, *command, **state)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"fleetcheck: {full}/state/fleetcheck/backups: the units cannot be ")
        assert done.stderr.endswith(": No space left on device\n")
        assert {path.name: path.read_bytes() for path in units.iterdir()} == before
        assert [path for path in (full / "state").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("args", [["-i", "ada:83746512@gpu01"], ["-i", "fleet.yaml", "--", "ada:83746512@gpu01"]])
def test_a_password_goes_into_no_crontab(tmp_path: Path, inventory: Path, args: list[str]) -> None:
    done = call(tmp_path, "schedule", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("schedule: a host's name holds a password; an inventory holds no secrets; ")
    assert "83746512" not in done.stderr
