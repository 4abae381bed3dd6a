"""Writes the one line of each rule for the HTML page; to be run after a rule changed, without arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fleetcheck.rules.catalog import RULES

FILE = Path(__file__).parents[2] / "fleetcheck/report/page/rules.json"


def lines() -> str:
    """Return the file as it should be."""
    said = {slug: RULES[slug].summary.replace("`", "") for slug in sorted(RULES)}
    return json.dumps(said, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write it."""
    FILE.write_text(lines(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
