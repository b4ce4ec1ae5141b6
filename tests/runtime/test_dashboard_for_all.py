"""Pages of the dashboard are for everybody: axe-core finds no serious fault, phones suffice."""

from __future__ import annotations

import time
from importlib.resources import files
from operator import add

import pytest

from scaler_exec import Client, WorkerDiedError
from scaler_monitoring.dashboard.settings import COOKIE, PATH
from scaler_monitoring.dashboard.template import LINKS
from tests.runtime.browser import DESKTOP, PHONE, watched
from tests.runtime.helpers import BOUND_S, standing_cluster
from tests.runtime.tasks import raise_this, write_and_die

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
FAULTS = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .filter(one => ["serious", "critical"].includes(one.impact))
    .map(one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 200))}`)"""
CUT = """all => all.filter(one => one.scrollWidth > one.clientWidth)
    .map(one => `${one.textContent} is cut`)"""
BROKEN = """all => {
    const lines = one => { const all = new Range(); all.selectNodeContents(one); return all }
    return all.map(one => [one.textContent, lines(one).getClientRects().length])
        .filter(([text, count]) => count > 1 && !text.includes(" ")).map(([text]) => text)
}"""
TABLES = "all => all.filter(one => getComputedStyle(one).display === 'table-cell').length"
SCREENS = "document.documentElement.scrollHeight / innerHeight"
SCREENS_MAX = 3
FUNCTIONS = (abs, bin, bool, callable, float, hash, hex, id, int, oct, repr, str, type)
ERRORS = ("IndexError", "KeyError", "OSError", "RuntimeError", "TypeError", "ValueError")
MESSAGE = "no such currency in the table of rates of the day before " * 3
DEATHS = 4
WORKER = "the page of a worker"
"""Its number is not known before."""
PATHS = [
    *(path for path, _ in LINKS if path != PATH),
    "/functions?name=raise_this",
    "/tasks?failure=raise_this~KeyError",
    "/tasks?task=1:51",
    WORKER,
]


@pytest.fixture(scope="module")
def page(standing, browser):
    """Return a tab of a dashboard with much of all: what was done, failed, died, and is not over."""
    with (
        standing_cluster(2, standing, dashboard=True) as cluster,
        Client(cluster.get_address()) as client,
        watched(browser) as window,
    ):
        for function in FUNCTIONS:
            client.map(function, range(4))
        for name in ERRORS:
            client.submit(raise_this, name, MESSAGE).exception(BOUND_S)
        for _ in range(DEATHS):
            died = client.submit(write_and_die, "no memory left").exception(BOUND_S)
            assert isinstance(died, WorkerDiedError)
        nodes = {"held": (time.sleep, 600), "leaf": (add, 1, 2), "end": (max, ["leaf", "held"])}
        held = client.get(nodes, ["end"], block=False)
        assert cluster.dashboard_link is not None
        yield window.enter(cluster.dashboard_link, "/")
        assert not any(future.done() for future in held.values())


def show(page, path, colours):
    """Let the tab show a page in these colours."""
    base = page.evaluate("location.origin")
    cookie = {"name": COOKIE, "value": f"colours={colours}", "url": base}
    page.context.add_cookies([cookie])
    if path == WORKER:
        found = page.request.get(f"{base}/find?q=|").json()
        path = f"/{found[0]['url']}"
    page.goto(base + path)
    if path != PATH:
        page.locator("p.bad, p.good").first.wait_for()
    if path == "/graphs":
        page.locator("tr[data-key]").first.press("Enter")
        page.get_by_role("heading", name="Nodes that have ended").wait_for()
    assert page.evaluate("document.documentElement.className") == colours


def faults(page):
    """Return what is serious in what the tab shows, or cut, in a window and on a phone."""
    found = []
    page.evaluate(AXE)
    for width, height in (PHONE, DESKTOP):
        page.set_viewport_size({"width": width, "height": height})
        said = page.evaluate(FAULTS) + page.locator("th button:visible").evaluate_all(CUT)
        found += [f"{width} pixels wide: {one}" for one in said]
    return "\n".join(found)


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
def test_no_page_has_a_serious_fault(page, path, colours):
    """Nothing is serious in any page, with what is opened in it."""
    show(page, path, colours)
    assert not faults(page)


@pytest.mark.parametrize("path", PATHS)
def test_phones_have_cards_for_tables(page, path):
    """No table is one on a phone, where its columns would have no room; names are whole."""
    page.set_viewport_size(dict(zip(("width", "height"), PHONE, strict=True)))
    show(page, path, "light")
    if path == "/":
        page.get_by_role("heading", name="News").wait_for()
    assert page.locator("td:visible").evaluate_all(TABLES) == 0
    assert page.locator("td a:visible").evaluate_all(BROKEN) == []
    assert path != "/" or page.evaluate(SCREENS) <= SCREENS_MAX


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_what_all_pages_have_is_without_a_serious_fault(page, colours):
    """Nothing is serious in the settings, the palette and the list of keys."""
    show(page, PATH, colours)
    assert not faults(page)

    show(page, "/clients", colours)
    page.keyboard.press("Control+k")
    page.locator("#found a").first.wait_for()
    assert not faults(page)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert not faults(page)
