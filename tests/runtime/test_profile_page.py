"""The page Profile in a real browser: what tasks are at, as long as somebody looks."""

from __future__ import annotations

import json
import threading
import time

import pytest

from scaler_cluster.ids import SNAPSHOT
from scaler_cluster.wire.feed import Snapshot
from scaler_exec import Client, SchedulerClusterCombo
from scaler_monitoring.feed import Feed
from tests.runtime.helpers import BOUND_S, wait_until

ALL_TEXT = """() => {
    const found = []
    const walk = node => {
        if (node.nodeType === 3) found.push(node.textContent.trim())
        else if (!["STYLE", "SCRIPT"].includes(node.tagName) && node.hidden !== true)
            for (const child of (node.shadowRoot ?? node).childNodes) walk(child)
    }
    walk(document.querySelector("main"))
    return found.filter(Boolean).join(" ")
}"""
LOOK_S = 1.2
"""Workers are asked once a second."""


def inner(path):
    while not path.exists():
        time.sleep(0.02)


def outer(path):
    """Run until there is a file."""
    inner(path)


@pytest.fixture(scope="module")
def cluster(standing):
    """Return a cluster that runs nothing."""
    with SchedulerClusterCombo(1, dashboard=True) as one:
        yield one


@pytest.fixture
def own_cluster(standing):
    """Return a cluster whose dashboard no other test has looked at."""
    with SchedulerClusterCombo(1, dashboard=True) as one:
        yield one


@pytest.fixture
def end(cluster, tmp_path):
    """Return the file that ends a task that runs."""
    path = tmp_path / "end"
    with Client(cluster.get_address()) as client:
        task = client.submit(outer, path)
        yield path
        path.touch()
        task.result(BOUND_S)


@pytest.fixture
def page(cluster, open_window):
    """Return the page in a tab."""
    one = open_window().enter(cluster.dashboard_link, "/profile")
    one.locator("p.good").wait_for()
    return one


def wait_for(page, *texts):
    """Wait until all of these stand in the page."""
    wait_until(
        lambda: all(text in page.evaluate(ALL_TEXT) for text in texts),
        lambda: f"the page does not say all of {texts}: {page.evaluate(ALL_TEXT)}",
        timeout=20.0,
    )


def questions(cluster):
    """Return how often workers were asked what tasks are at, as the scheduler counts."""
    with Feed(cluster.get_monitor_address(), (SNAPSHOT,)) as feed:
        message = feed.next(BOUND_S)
    assert isinstance(message, Snapshot)
    return message.sent.get("Sample", 0)


def bars(page):
    """Return the names of the bars of the flame graph, from the top."""
    return page.evaluate(
        """() => Bokeh.documents[0].roots()[0].references().values().filter(
            one => one.type === "ColumnDataSource" && one.data.ink !== undefined
        ).map(one => Array.from(one.data.name)).next().value"""
    )


def tap(page, row):
    """Click the middle of a bar that has its whole row."""
    box = page.locator(".bk-Figure").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 5 + 19 * (row + 0.5))


@pytest.mark.slow
def test_a_task_is_seen_from_the_flame_graph_to_its_stack(end, page):
    """The page draws what tasks are at, zooms where one clicks, and shows the stack of one."""
    wait_for(page, "samples of", "inner", "outer")
    wait_until(lambda: bars(page) == ["outer", "outer", "inner"], lambda: f"not {bars(page)}")
    tap(page, 2)
    page.get_by_role("button", name="Zoom out").wait_for()
    wait_until(lambda: page.get_by_label("Functions of tasks").input_value() == "outer", "no zoom")
    page.get_by_role("button", name="Zoom out").click()
    wait_until(lambda: page.get_by_label("Functions of tasks").input_value() == "all", "no way out")

    page.locator("tr[role=row]", has_text="1:0").first.locator("td").last.click()
    wait_for(page, "Stack", "in inner", "time.sleep(0.02)")
    page.close()


@pytest.mark.slow
def test_what_is_seen_is_saved(end, page):
    """The link of the page saves a file for speedscope, which others do not get."""
    wait_for(page, "samples of", "inner")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Save this").click()
    saved = json.loads(waiting.value.path().read_text())
    url = waiting.value.url
    page.close()

    assert waiting.value.suggested_filename == "profile.speedscope.json"
    assert "outer" in [one["name"] for one in saved["profiles"]]
    assert {"outer", "inner"} <= {one["name"] for one in saved["shared"]["frames"]}
    answer = other_visitor(url)
    assert "<form" in answer
    assert "outer" not in answer


def other_visitor(url):
    """Return what somebody without the token is answered."""
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=BOUND_S) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


@pytest.mark.slow
def test_nobody_is_asked_unless_the_page_is_open(own_cluster, open_window):
    """Other pages have nobody sampled; the page does, and no more soon after it is closed."""
    cluster = own_cluster
    link = cluster.dashboard_link
    page = open_window().open(link)
    page.locator("p.good").wait_for()
    assert questions(cluster) == 0
    page.goto(link.partition("/?")[0] + "/profile")
    wait_until(lambda: questions(cluster) > 1, "nobody is asked", timeout=BOUND_S)
    page.get_by_role("button", name="Pause").click()
    rest(cluster)
    page.get_by_role("button", name="Pause").click()
    paused = questions(cluster)
    wait_until(lambda: questions(cluster) > paused + 1, "nobody is asked", timeout=BOUND_S)
    page.close()
    rest(cluster)


def rest(cluster):
    """Wait until workers are not asked any more for two intervals."""
    counts = [questions(cluster)]
    deadline = time.monotonic() + BOUND_S
    over = threading.Event()
    while len(counts) < 3 or counts[-1] != counts[-3]:
        assert time.monotonic() < deadline, counts
        over.wait(LOOK_S)
        counts.append(questions(cluster))
