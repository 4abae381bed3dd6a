"""A thousand hosts, one in twenty faulty in some way: each is accounted for, in one process of bounded memory."""

from __future__ import annotations

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
