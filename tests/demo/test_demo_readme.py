"""The README shows what the demo prints."""

from __future__ import annotations

import pytest
from support.readme import BLOCK, COMMAND, README, block


@pytest.mark.skipif(not COMMAND.exists(), reason="needs the installed command: pip install .")
def test_the_readme_shows_the_demo_as_it_is() -> None:
    (shown,) = BLOCK.findall(README.read_text())
    assert shown == block(), "run `make readme`"
