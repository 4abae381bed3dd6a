"""The quickstart, followed word for word: every command of it runs and ends as it says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.audits import COMMAND

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATUS = re.compile(r"    # status (\d+)$", re.MULTILINE)
INSTALLS = ("make demo\n. .venv/bin/activate\n",)


def blocks() -> list[str]:
    return BLOCK.findall((ROOT / "docs/quickstart.md").read_text())


@pytest.mark.skipif(not COMMAND.exists(), reason="needs the installed command: pip install .")
def test_every_command_ends_as_the_page_says(tmp_path: Path) -> None:
    environment = {"PATH": f"{COMMAND.parent}:{os.defpath}", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    told = 0
    for block in blocks():
        if block in INSTALLS:
            continue
        script = STATUS.sub(r"\nsaid=$?; [ $said -eq \1 ] || { echo 'expected \1, got' $said; exit 99; }", block)
        told += len(STATUS.findall(block))
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    assert told == 7
    assert {"fleet.yaml", "run.json", "evidence.jsonl.gz"} <= {path.name for path in tmp_path.iterdir()}


def test_the_page_begins_with_the_demo() -> None:
    assert blocks()[0] in INSTALLS
