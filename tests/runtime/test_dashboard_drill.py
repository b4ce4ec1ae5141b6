"""From one page to the next in a real browser: by links, by keyboard, on a phone."""

from __future__ import annotations

import re
import time

import pytest

from scaler_exec import Client
from tests.runtime.browser import DESKTOP, PHONE
from tests.runtime.helpers import BOUND_S, standing_cluster, wait_until
from tests.runtime.tasks import raise_this

FOCUS_LEADS_TO = """href => {
    let one = document.activeElement
    while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement
    return one?.getAttribute("href") === href
}"""


@pytest.fixture(scope="module")
def run(standing):
    """Return a cluster in which 50 tasks returned, one failed and one runs."""
    with (
        standing_cluster(2, standing, dashboard=True) as cluster,
        Client(cluster.get_address()) as client,
    ):
        assert len(client.map(abs, range(50))) == 50
        client.submit(raise_this, "KeyError", "no such currency").exception(BOUND_S)
        held = client.submit(time.sleep, 600)
        yield cluster
        assert not held.done()


@pytest.fixture
def open_page(run, open_window):
    """Return what opens a page, at its path, and waits until it shows something."""

    def open_page(path, size=DESKTOP):
        page = open_window(size).enter(run.dashboard_link, path)
        page.locator("p.bad, p.good").first.wait_for()
        return page

    return open_page


def query(page):
    """Return what stands in the address: the page knows at once, Playwright once it has heard."""
    return page.evaluate("location.search.slice(1)")


def test_from_a_function_to_its_task_and_worker_and_back(open_page):
    """Links lead on, what is open stands in the URL, and the browser's Back leads back."""
    page = open_page("/functions")
    page.locator("tr", has_text="raise_this").get_by_text("1").first.click()
    page.get_by_role("heading", name="raise_this").wait_for()
    assert query(page) == "name=raise_this"
    page.get_by_role("link", name="KeyError").first.wait_for()

    page.locator("td a[href^=tasks]").first.click()
    page.get_by_text("Remote traceback").wait_for()
    assert "no such currency" in page.locator("pre").first.inner_text()
    task = query(page)
    page.locator("dd a[href^=workers]").first.click()
    page.get_by_role("heading", name=re.compile("^Worker ")).wait_for()

    page.go_back()
    page.get_by_text("Remote traceback").wait_for()
    assert query(page) == task
    page.go_back()
    page.get_by_role("heading", name="raise_this").wait_for()
    page.go_back()
    page.locator("tr", has_text="raise_this").first.wait_for()
    assert query(page) == ""
    page.close()


def test_who_goes_back_before_a_page_is_there_goes_back(open_page):
    """Back works at once: the page is then made for one URL and shown for another."""
    page = open_page("/functions")
    page.locator("tr", has_text="raise_this").get_by_text("1").first.click()
    page.get_by_role("link", name="KeyError").first.click()
    page.get_by_text("Remote traceback").wait_for()

    held = []
    page.route("**/bokeh.min.js*", lambda route: held.append(route))
    with page.expect_request("**/bokeh.min.js*"):
        page.evaluate("history.back()")
    assert query(page) == "name=raise_this"
    page.evaluate("history.back()")
    page.wait_for_function("location.search === ''")
    held[0].continue_()

    page.locator("tr", has_text="raise_this").first.wait_for()
    page.close()


def test_a_link_shows_the_same(open_page):
    """Search, state and order stand in the URL; whoever opens it sees the same."""
    page = open_page("/tasks")
    field = page.get_by_label("Number, function, worker, state or error has in it")
    field.fill("KeyErr")
    page.get_by_role("button", name="took (s)").click()
    wait_until(lambda: query(page) == "search=KeyErr&sort=-took", lambda: query(page))
    page.get_by_text("1 of the last").wait_for()

    other = open_page("/tasks?" + query(page))
    other.get_by_text("1 of the last").wait_for()
    assert other.get_by_label("Number, function").input_value() == "KeyErr"
    sorted_by = other.get_by_label("Tasks", exact=True).locator("th[aria-sort=descending]")
    assert sorted_by.inner_text().startswith("took")
    other.close()
    page.close()


def test_by_keyboard_alone(open_page):
    """Rows are chosen by keys, Escape closes, / searches, ? tells the keys, Ctrl-K jumps."""
    page = open_page("/workers")
    page.locator("tr[data-key]").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=re.compile("^Worker ")).wait_for()
    assert query(page).startswith("worker=")
    page.keyboard.press("Escape")
    page.locator("tr[data-key]").first.wait_for()

    page.keyboard.press("/")
    page.keyboard.type("sleep")
    page.get_by_text("1 of them match").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()
    page.keyboard.press("Escape")

    page.keyboard.press("Control+k")
    page.keyboard.type("raise_th")
    page.locator("#found a", has_text="raise_this").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="raise_this").wait_for()
    page.close()


def test_what_is_drawn_anew_keeps_the_focus(open_page, run):
    """Who has come to a link by keyboard is still there when what it is about has changed."""
    with Client(run.get_address()) as client:
        client.submit(raise_this, "ValueError", "no such rate").exception(BOUND_S)
        page = open_page("/")
        link = page.get_by_role("link", name="ValueError").first
        link.focus()
        link.evaluate("one => { one.dataset.old = 'yes' }")
        client.submit(raise_this, "ValueError", "no such rate").exception(BOUND_S)

        page.locator("a:not([data-old])", has_text="ValueError").first.wait_for()
        page.wait_for_function(FOCUS_LEADS_TO, arg="tasks?failure=raise_this~ValueError")
        page.close()


def test_a_phone_has_what_matters(open_page):
    """A phone shows each worker as a card with what matters most."""
    page = open_page("/workers", PHONE)
    card = page.locator("tr", has_text="sleep").first
    card.wait_for()
    shown = [
        one.get_attribute("data-title") for one in card.locator("td").all() if one.is_visible()
    ]
    assert {"worker", "task", "cpu", "rss"} <= set(shown)
    page.close()
