"""Debian's Chromium, driven by Playwright without a browser of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, Playwright, ViewportSize

WIDE: ViewportSize = {"width": 1280, "height": 860}
NARROW: ViewportSize = {"width": 390, "height": 844}
Opened = Callable[..., Page]
"""Opens the page of a run at a fragment, in a window with the settings of Playwright's ``new_context``."""
NEEDED = "needs chromium: apt-get install chromium"


def chromium() -> str | None:
    """Return the path of the system's Chromium, None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def launched(playwright: Playwright) -> Iterator[Browser]:
    """Start it without a window; root has no sandbox of its own (``--no-sandbox``). It ends with the context."""
    browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
    try:
        yield browser
    finally:
        browser.close()


def names(page: Page) -> list[str]:
    """Return the hosts that the matrix shows, in their order."""
    return page.locator("#matrix tbody th").all_inner_texts()


def look_at(page: Page, host: str) -> None:
    """Open one host and wait for its facts."""
    page.locator("#matrix").get_by_role("link", name=host, exact=True).click()
    page.locator("#host-facts .sentence").wait_for()
