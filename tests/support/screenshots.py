"""Shoots the HTML page of a mixed fleet in Chromium: ``python tests/support/screenshots.py FOLDER``.

For 40 and 1,000 hosts, light and dark, 1280 and 390 pixels wide: the fleet, one host opened, and for 40 hosts the
whole page; then the time from the request to the first picture.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import Browser, Page, sync_playwright
from support.browser import launched
from support.mixed_fleet import fleet, name

from fleetcheck.report import formats

SIZES = (40, 1000)
WIDTHS = {1280: 860, 390: 844}
OPENED = {"edited": name(3), "lost": name(18)}
PAINTED = """() => new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"""


def views(browser: Browser, address: str, theme: str, width: int) -> Iterator[tuple[str, Page, bool]]:
    """Yield what is to be shot: its name, the page, and whether all of it is wanted, beyond the window."""
    context = browser.new_context(
        viewport={"width": width, "height": WIDTHS[width]}, color_scheme=theme, device_scale_factor=1
    )  # type: ignore[arg-type]  # its Literal
    page = context.new_page()
    page.goto(address)
    yield "fleet", page, False
    yield "whole", page, True
    page.goto(f"{address}#verdict=findings&severity=error&sort=host")
    yield "filtered", page, False
    for kind, host in OPENED.items():
        page.goto(f"{address}#host={host}")
        page.locator("#host-facts .block").first.wait_for()
        yield kind, page, False
    page.locator("#host").evaluate("(one) => one.querySelector('.topology').scrollIntoView()")
    yield "topology", page, False
    page.set_viewport_size({"width": width, "height": 5200})
    yield "host", page, False
    context.close()


def main() -> int:
    """Shoot into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, launched(playwright) as browser:
        for size in SIZES:
            file = folder / f"fleet-{size}.html"
            file.write_text(formats.render(fleet(size), "html"), "utf-8")
            for theme in ("light", "dark"):
                for width in WIDTHS:
                    for kind, page, whole in views(browser, file.as_uri(), theme, width):
                        if size == SIZES[0] or kind in ("fleet", "filtered"):
                            page.screenshot(path=folder / f"{size}-{theme}-{width}-{kind}.png", full_page=whole)
            page = browser.new_page()
            times = []
            for _ in range(5):
                page.goto(file.as_uri())
                times.append(page.evaluate(PAINTED))
            print(f"{size} hosts, {file.stat().st_size / 1e6:.2f} MB: opened in {statistics.median(times):.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
