"""A real Chromium, and what its pages do unseen.

While it runs, the thread of the tests has an event loop: what needs another, needs another thread.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.install_chromium import find_chromium
from tests.runtime.helpers import BOUND_S, is_gone, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

DESKTOP = (1280, 800)
PHONE = (390, 844)
REMOTE_SCHEMES = {"http", "https", "ws", "wss"}
MARK = "SCALER_TEST_SESSION"
"""The variable by which tests/conftest.py finds orphans; the browser has a value of its own."""


class Window:
    """Tabs that share cookies, as those of one user do, and what they did unseen.

    Attributes:
        errors: What went to the console as an error, uncaught errors, requests that failed.
        requests: Every URL that was asked for, WebSockets included.
    """

    def __init__(self, context: BrowserContext) -> None:
        context.set_default_timeout(BOUND_S * 1000)
        self.context = context
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._ours: set[str] = set()
        self._excused: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda error: self.errors.append(f"uncaught: {error.error}"))
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("requestfailed", self._failed)
        context.on("page", self._page)

    def open(self, url: str) -> Page:
        """Return a new tab that has loaded this; its origin is no foreign one from now on."""
        self.allow(url)
        page = self.context.new_page()
        page.goto(url)
        return page

    def enter(self, link: str, path: str) -> Page:
        """Return a new tab with one page of a dashboard, which nothing but its link opens.

        The browser gets the cookie without the page behind the link, which takes its time to draw.
        """
        self.allow(link)
        self.context.request.get(link, max_redirects=0)
        return self.open(link.partition("/?")[0] + path)

    def allow(self, url: str) -> None:
        """Let pages ask for what has this origin."""
        self._ours.add(urlsplit(url).netloc)

    def excuse(self, part: str) -> None:
        """Expect errors with this in them."""
        self._excused.append(part)

    def complaints(self) -> list[str]:
        """Return each error that is not excused, and each request to a foreign origin."""
        for page in self.context.pages:
            # What the page said before it answers has arrived with the answer.
            page.evaluate("0")
        errors = [one for one in self.errors if not any(part in one for part in self._excused)]
        return errors + [f"foreign: {url}" for url in self.requests if self._is_foreign(url)]

    def _is_foreign(self, url: str) -> bool:
        parts = urlsplit(url)
        return parts.scheme in REMOTE_SCHEMES and parts.netloc not in self._ours

    def _console(self, message) -> None:
        if message.type == "error":
            self.errors.append(f"console: {message.text} ({message.location.get('url')})")

    def _failed(self, request) -> None:
        self.errors.append(f"failed: {request.url}: {request.failure}")

    def _page(self, page: Page) -> None:
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        page.on("crash", lambda page: self.errors.append(f"crashed: {page.url}"))


@contextlib.contextmanager
def watched(browser: Browser, size: tuple[int, int] = DESKTOP) -> Iterator[Window]:
    """Open a window of so many pixels; at the end, fail if there is anything to complain about."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    try:
        window = Window(context)
        yield window
        complaints = window.complaints()
    finally:
        context.close()
    # In words: asserts of this module are not rewritten.
    assert not complaints, "\n".join(complaints)


@contextlib.contextmanager
def chromium(standing: set[int]) -> Iterator[Browser]:
    """Start a browser, and see to it that nothing is left of it.

    Args:
        standing: Gets the process below which all of it runs.
    """
    path = find_chromium()
    if path is None:
        pytest.skip("there is no Chromium: python tests/install_chromium.py")
    mark = uuid.uuid4().hex
    before = set(psutil.Process().children())
    with sync_playwright() as playwright:
        (driver,) = set(psutil.Process().children()) - before
        standing.add(driver.pid)
        browser = playwright.chromium.launch(executable_path=path, env={**os.environ, MARK: mark})
        yield browser
        below = driver.children(recursive=True)
        browser.close()
    wait_until(lambda: not remains([driver, *below], mark), "the browser lives on")


def remains(known: list[psutil.Process], mark: str) -> list[psutil.Process]:
    """Return which of these run, and orphans of the browser that are none of these."""
    return [one for one in known if not is_gone(one.pid)] + [
        one for one in psutil.process_iter() if _mark(one) == mark
    ]


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except psutil.Error:
        return None
