"""This machine as a host: the same parts, limits and ends as over SSH, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.limits import AMPLE
from support.sshd import descendants, wait_until

from fleetcheck.agent.evidence import Evidence
from fleetcheck.inventory.model import Target
from fleetcheck.remote import engine
from fleetcheck.remote.reach import Reach
from fleetcheck.remote.settings import Settings

HERE = Target(name="here", connection="local", venvs=())


@pytest.fixture(autouse=True)
def nothing_left(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    threads, processes = set(threading.enumerate()), set(descendants(os.getpid()))
    yield
    assert wait_until(lambda: set(threading.enumerate()) <= threads)
    assert wait_until(lambda: set(descendants(os.getpid())) <= processes)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def look(target: Target, **settings: object) -> Evidence:
    with Reach(Settings(**({"ssh_config": "none", "limits": AMPLE} | settings))) as reach:  # type: ignore[arg-type]
        return reach.look(target)


def verdict(evidence: Evidence) -> tuple[str, str | None, str | None]:
    return evidence.outcome, evidence.stage, evidence.detail


def on_path(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program before all others."""
    program = folder / name
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_checked() -> None:
    evidence = look(HERE)
    assert verdict(evidence) == ("checked", None, None), evidence.message
    assert {"agent", "system", "venvs", "smi", "end"} <= evidence.parts.keys()
    assert evidence.parts["agent"]["uid"] == os.getuid()
    assert evidence.address is None


def test_beside_others_in_a_run() -> None:
    other = Target(name="pod", connection="docker", venvs=())
    used = Settings(ssh_config="none", limits=AMPLE)
    found = {target.name: evidence for target, evidence in engine.run([HERE, other], Reach(used), settings=used)}
    assert found["here"].outcome == "checked"
    assert verdict(found["pod"]) == ("unreachable", "resolve", "connection")
    assert found["pod"].attempts == 1
    assert "docker" in (found["pod"].message or "")


HANGS = "#!/bin/sh\ntrap '' TERM HUP INT\nwhile :; do sleep 1; done\n"


def test_limit_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, "nvidia-smi", HANGS, monkeypatch)
    evidence = look(HERE, limits=replace(AMPLE, smi=1))
    assert verdict(evidence) == ("checked", None, None)
    assert evidence.parts["smi"]["query"]["call"]["timed_out"]


def test_limit_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, "sudo", HANGS, monkeypatch)
    evidence = look(HERE.model_copy(update={"sudo": True}), limits=replace(AMPLE, host=1))
    assert verdict(evidence) == ("timeout", "probe", "host-limit")


def test_abort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, "nvidia-smi", HANGS, monkeypatch)
    with contextlib.closing(Reach(Settings(ssh_config="none", limits=AMPLE))) as reach:
        answers: list[Evidence] = []
        thread = threading.Thread(target=lambda: answers.append(reach.look(HERE)))
        thread.start()
        assert wait_until(
            lambda: any(_runs(pid, str(tmp_path / "nvidia-smi")) for pid in descendants(os.getpid()))
        )
        reach.abort()
        thread.join(10)
    assert verdict(answers[0]) == ("timeout", "probe", "interrupted")


def _runs(pid: int, word: str) -> bool:
    try:
        return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n", "sudo"),
        ("#!/bin/sh\nkill -9 $$\n", "lost"),
        ("#!/bin/sh\nwhile :; do echo 00000000000000000000000000000000; done\n", "too-large"),
        ("#!/bin/sh\nwhile :; do echo 00000000000000000000000000000000 >&2; done\n", "too-large"),
    ],
)
def test_sudo_that_does_not_work(text: str, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, "sudo", text, monkeypatch)
    evidence = look(HERE.model_copy(update={"sudo": True}), max_bytes=1 << 16)
    assert verdict(evidence) == ("probe-error", "probe", detail)
