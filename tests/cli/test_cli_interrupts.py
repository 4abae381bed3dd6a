"""An interrupt while the report is written: the first is held until all is whole, the second ends the program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.program import SECONDS, START, environ
from support.sshd import wait_until

# A test runner that runs in the background hands down a SIGINT that is ignored.
LISTENING = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {START}"


@contextmanager
def writing(folder: Path, *, form: str = "json") -> Iterator[subprocess.Popen[str]]:
    """Yield an audit that has looked at its host and waits for whoever reads its HTML, a FIFO."""
    (folder / "fleet.yaml").write_text("hosts: {gpu1: {address: 127.0.0.1, port: 1}}\n")
    os.mkfifo(folder / "page")
    words = ["audit", "-i", "fleet.yaml", "--ssh-config", "none", "--known-hosts", "/dev/null", "--format", form]
    words += ["--output", "evidence:e", "--output", "html:page"]
    with subprocess.Popen(
        [sys.executable, "-c", LISTENING, *words], env=environ(folder), cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            # The evidence is put in its place when the last host was looked at.
            assert wait_until(lambda: (folder / "e").exists() or process.poll() is not None)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_the_first_interrupt_waits_for_the_report(tmp_path: Path, sent: signal.Signals) -> None:
    with writing(tmp_path) as process:
        process.send_signal(sent)
        page = (tmp_path / "page").read_text()
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (130, "")
    assert page.rstrip().endswith("</html>")
    document = json.loads(out)
    assert (document["run"]["complete"], document["hosts"][0]["outcome"]) == (True, "unreachable")


def test_a_monitoring_system_gets_the_verdict_that_it_was_told(tmp_path: Path) -> None:
    with writing(tmp_path, form="nagios") as process:
        process.send_signal(signal.SIGTERM)
        (tmp_path / "page").read_text()
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out.count("FLEETCHECK"), err) == (3, 1, "")


def test_the_second_interrupt_ends_the_program(tmp_path: Path) -> None:
    with writing(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err.strip()) == (130, "fleetcheck: interrupted")
    assert not list(tmp_path.glob(".*.part"))
