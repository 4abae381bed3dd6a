"""A thousand hosts, one in twenty faulty in some way: each is accounted for, in one process of bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import faulty
from support.loopback import LoopbackFleet
from support.sshd import NEEDS_SSHD, SSHD

pytestmark = pytest.mark.skipif(SSHD is None, reason=NEEDS_SSHD)

HOSTS = 1000
FAULTY = 50
MEMORY_MIB = 150
AMPLE = 600.0


def test_thousand_hosts(tmp_path: Path) -> None:
    with LoopbackFleet(tmp_path, recorded=True, padding=HOSTS) as fleet:
        audited = faulty.audit(fleet, HOSTS, FAULTY, seconds=AMPLE)
        assert audited.wrong == []
        assert audited.memory < MEMORY_MIB
        assert fleet.sshd.wait_idle()


def test_benchmark_reaches_all_hosts_with_every_client() -> None:
    """A benchmark whose peers fail would flatter us."""
    pytest.importorskip("asyncssh")
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "fleet.py"
    command = [sys.executable, str(script), "--sizes", "2", "--far-side", "both"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=AMPLE)
    assert (ended.returncode, ended.stderr) == (0, "")
    rows = [line.split("|")[1:-1] for line in ended.stdout.splitlines() if line.startswith("| 2 ")]
    assert [row[1].strip() for row in rows] == ["fleetcheck", "ssh", "ssh curve25519", "asyncssh"] * 2
    assert {row[-1].strip() for row in rows} == {"0"}
