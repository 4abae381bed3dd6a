"""The demo's output in README.md: what ``fleetcheck demo`` really prints, cut after the first finding.

Run as a program, it writes the block anew; a test holds the two together.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
COMMAND = Path(sys.executable).with_name("fleetcheck")
BLOCK = re.compile(r"(?<=<!-- demo: begin -->\n)```text\n.*?```\n(?=<!-- demo: end -->)", re.DOTALL)
SHOWN = 4
"""Paragraphs: the summary, the table, what was not checked, the first finding."""


def demo_output() -> str:
    """Run the demo and return the part that the README shows, whatever Python and port it ran on."""
    environment = {"PATH": os.defpath, "HOME": str(Path.home()), "COLUMNS": "120", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [str(COMMAND), "demo"], capture_output=True, text=True, check=True, env=environment, timeout=120
    )
    shown = "\n\n".join(done.stdout.split("\n\n")[:SHOWN])
    shown = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:40022", shown)
    return re.sub(r"/python3\.\d+/", "/python3.11/", shown)


def block() -> str:
    """Return the block as it should stand in the README."""
    return f"```text\n{demo_output()}\n\n[...]\n```\n"


def main() -> None:
    """Write the block into the README."""
    text = README.read_text()
    if not BLOCK.search(text):
        sys.exit("error: README.md holds no block for the demo's output")
    new = block()
    README.write_text(BLOCK.sub(lambda _: new, text))


if __name__ == "__main__":
    main()
