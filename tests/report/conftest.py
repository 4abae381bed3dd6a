"""A browser for the tests of the HTML page, and pages that are watched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from support.browser import WIDE, Opened, launched

from fleetcheck.report import html
from fleetcheck.run import Run

FORBIDDEN = """addEventListener("securitypolicyviolation", (event) =>
    console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, launched(playwright) as found:
        yield found


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    """Return a function that opens a run's page; at the end, none may have complained or asked for more."""
    contexts: list[BrowserContext] = []
    said: list[str] = []
    asked: list[str] = []
    files: list[str] = []

    def open_(run: Run, fragment: str = "", **settings: Any) -> Page:
        context = browser.new_context(**{"viewport": WIDE, **settings})
        contexts.append(context)
        context.set_default_timeout(30_000)
        context.add_init_script(FORBIDDEN)
        context.on("request", lambda request: asked.append(request.url.partition("#")[0]))
        context.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        context.on("weberror", lambda error: said.append(str(error.error)))
        file = tmp_path / f"page{len(files)}.html"
        file.write_text(html.render(run), "utf-8")
        files.append(file.as_uri())
        page = context.new_page()
        page.goto(file.as_uri() + fragment)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []
    assert set(asked) <= set(files)
