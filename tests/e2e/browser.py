"""A browser in which a user has logged in to Airflow, and what tests of pages look at."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.e2e.project import REPO
from tidegate_local.platform import Platform

AXE = REPO / "src/tidegate/ui/web/node_modules/axe-core/axe.min.js"
PATIENCE_MS = 30_000
"""A page that other tests run beside shows later what it shows at all."""
HARMFUL = ("serious", "critical")
NETWORK = "Failed to load resource"
"""What Chromium logs of each answer that is a refusal, which pages show."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The Chromium of this machine, or the one that `playwright install chromium` has fetched."""
    found = os.environ.get("TIDEGATE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Browser, platform: Platform) -> Iterator[Page]:
    """A page of a user who has logged in; whatever a script logs as an error fails the test."""
    with logged_in(browser, platform.airflow_url, platform.airflow_login) as context:
        opened = context.pages[0]
        wrong: list[str] = []
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on(
            "console", lambda said: wrong.append(said.text) if said.type == "error" and NETWORK not in said.text else None
        )
        yield opened
        opened.unroute_all(behavior="wait")  # a page that asks every few seconds may be in the middle of a handler
        assert wrong == []


@contextmanager
def logged_in(browser: Browser, address: str, login: tuple[str, str]) -> Iterator[BrowserContext]:
    """A browser of its own whose first page shows Airflow's, at an address without a slash at its end."""
    with browser.new_context(base_url=address, viewport={"width": 1280, "height": 900}) as context:
        opened = context.new_page()
        opened.goto(f"{address}/")
        opened.fill("input[name=username]", login[0])
        opened.fill("input[name=password]", login[1])
        opened.click("button[type=submit]")
        opened.wait_for_url(re.compile(r"^(?!.*login)"))
        expect(opened.get_by_role("link", name="Tidegate", exact=True)).to_be_visible()
        yield context


def go(page: Page, path: str) -> None:
    """Another page of Airflow's UI in the same tab, as a link of the UI does; nothing is loaded anew."""
    page.evaluate("path => { history.pushState({}, '', path); dispatchEvent(new PopStateEvent('popstate')) }", path)


def harmful(page: Page) -> list[tuple[str, str]]:
    """The serious findings of axe in what Tidegate shows."""
    page.add_script_tag(path=AXE)
    found: list[dict[str, Any]] = page.evaluate("axe.run('.tidegate')")["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in HARMFUL]
