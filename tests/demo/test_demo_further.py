"""The demo's page offers commands: each works as it stands there, in a folder of one's own."""

from __future__ import annotations

import html
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.readme import COMMAND

from fleetcheck.demo.hosts import HOSTS, UNREACHABLE


@pytest.mark.skipif(not COMMAND.exists(), reason="needs the installed command: pip install .")
def test_what_the_page_offers_works_as_it_stands_there(tmp_path: Path) -> None:
    path = f"{COMMAND.parent}:{os.defpath}"
    environment = {"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip

    assert run("fleetcheck demo --quiet --output html:page.html").returncode == 0
    text = (tmp_path / "page.html").read_text("utf-8")
    offered = [html.unescape(one) for one in re.findall(r"<code[^>]*>(fleetcheck .*?)</code>", text)]
    assert len(offered) >= 5
    assert not [one for one in offered if "INVENTORY" in one or " -i " in one]
    codes = {}
    for command in dict.fromkeys(offered):
        line = command.replace("HOST", next(iter(HOSTS))).replace("RULE", "csrc-decoy")
        done = run(line)
        codes[line] = done.returncode
        assert done.stdout and not done.stderr.startswith("error"), (line, done.stderr)
    # The demo says 0 where it ran; a host that was not checked is told with 3, as by every other command.
    assert set(codes.values()) == {0, 3}
    assert codes[f"fleetcheck show {UNREACHABLE} demo.json"] == 3
