"""A recording in a real browser: its slider leads to any moment, and all pages show that one."""

from __future__ import annotations

import pytest

from scaler_cluster.wire import feed as f
from scaler_monitoring.dashboard.settings import PATH
from scaler_monitoring.dashboard.template import LINKS
from scaler_monitoring.recording import Recorder
from tests.runtime.browser import DESKTOP, PHONE
from tests.runtime.helpers import wait_until
from tests.runtime.test_dashboard_for_all import AXE, FAULTS

LENGTH_S = 100
ALONE_S, LEFT_S, BACK_S = 30, 60, 70
"""A second worker and function come; all workers leave; one is back."""


def at(second):
    """Return what a scheduler had to say at a second: one task is done in each."""
    time, clock = 1e9 + second, 10.0 + second
    function = "early" if second < ALONE_S else "late"
    workers = [f.Worker(b"W1", b"M", "host", "one", pid=1, up_s=clock)]
    if second >= ALONE_S:
        workers.append(f.Worker(b"W2", b"M", "host", "two", pid=2, up_s=second - ALONE_S))
    if LEFT_S <= second < BACK_S:
        workers = []
    counts = [f.Function("early", done=min(second, ALONE_S), submitted=LENGTH_S)]
    if second >= ALONE_S:
        counts.append(f.Function("late", done=second - ALONE_S, submitted=LENGTH_S))
    done = f.Done(clock - 0.2, b"W1", 1, second, 1, function, 0.3)
    line = f.LogLine(clock - 0.2, b"W1", "host", 1, "one", source="stdout", text=f"line {second}.")
    graphs = [f.Graph(1, 1, "graph", nodes=LENGTH_S, done=second, is_whole=True)]
    yield f.Events("run", second + 1, clock - 0.1, {}, [done])
    yield f.Logs("run", second + 1, clock - 0.1, time, lines=[line])
    yield f.Snapshot(
        "run", second + 1, clock=clock, time=time, interval_s=1.0,
        tasks=f.Tasks(done=second, ready=5, submitted=200),
        workers=workers, functions=counts, graphs=graphs,
        machines=[f.Machine(b"M", "host", cpus=4)],
    )  # fmt: skip


@pytest.fixture
def replay(shell, tmp_path):
    """Return the link of a dashboard that shows a recording of LENGTH_S seconds."""
    with Recorder(str(tmp_path / "run.rec")) as recorder:
        for second in range(LENGTH_S + 1):
            for message in at(second):
                recorder.apply(message, 500.0 + second)
    program = shell.start(f"scaler_ui --replay {tmp_path / 'run.rec'} --port 0 -bi 0.1")
    return program.address("dashboard at ")


def slider(page):
    """Return the slider of a page."""
    return page.get_by_role("slider", name="Moment of the recording")


def shows(page, moment):
    """Wait until an Overview shows this moment, in all that it says of it."""
    done = page.locator("div.tile", has_text="Done").first.locator("dd")
    expected = f"at={moment}.0", str(moment), f"{clock(moment)} of {clock(LENGTH_S)}", f"{moment}"

    def state():
        said = slider(page).get_attribute("aria-valuetext"), slider(page).input_value()
        return (query(page), done.inner_text().split()[0], *said)

    wait_until(lambda: state() == expected, state)


def has(locator, count):
    """Wait until there are so many of these."""
    wait_until(lambda: locator.count() == count, locator.count)


def clock(seconds):
    """Return a moment as the page says it."""
    return f"{seconds // 60:02}:{seconds % 60:02}"


def query(page):
    """Return what stands in the address: the page knows at once."""
    return page.evaluate("location.search.slice(1)")


def test_the_keyboard_leads_to_any_moment(replay, open_window):
    """Arrows, Page keys, Home and End move it; counts, banner and URL are those of the moment."""
    page = open_window().enter(replay, "/")
    shows(page, LENGTH_S)
    page.get_by_text("as it ended at 2001").wait_for()
    assert page.locator("p.bad").count() == 0

    slider(page).focus()
    for key, moment in (
        ("Home", 0), ("PageUp", 10), ("ArrowRight", 11), ("ArrowUp", 12), ("ArrowLeft", 11),
        ("ArrowDown", 10), ("End", 100), ("PageDown", 90), ("Home", 0), ("ArrowLeft", 0),
    ):  # fmt: skip
        page.keyboard.press(key)
        shows(page, moment)
    page.get_by_text("as it was at 2001").wait_for()
    assert slider(page).evaluate("one => one === document.activeElement")
    page.close()


def test_a_mouse_drags_it(replay, open_window):
    """It is dragged to where the mouse is let go of; the health line is the one of then."""
    page = open_window().enter(replay, "/")
    shows(page, LENGTH_S)
    box = slider(page).bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] - 3, y)
    page.mouse.down()
    for share in (0.9, 0.2, 0.8, 0.65):
        page.mouse.move(box["x"] + box["width"] * share, y, steps=5)
    page.mouse.up()

    page.locator("p.bad", has_text="0 workers").first.wait_for()
    wait_until(lambda: 62 < float(query(page).partition("=")[2]) < 68, lambda: query(page))
    page.close()


def test_all_pages_show_the_moment_and_links_keep_it(replay, open_window):
    """A link with a moment shows it, in the page that it leads to and in those after that."""
    window = open_window()
    page = window.enter(replay, "/?at=20")
    shows(page, 20)

    page.get_by_role("link", name="Functions", exact=True).click()
    page.locator("tr", has_text="early").get_by_text("20", exact=True).first.wait_for()
    assert page.locator("tr", has_text="late").count() == 0
    page.get_by_role("link", name="Workers", exact=True).click()
    page.locator("tr[data-key]").first.wait_for()
    assert page.locator("tr[data-key]").count() == 1
    page.get_by_role("link", name="Task stream", exact=True).click()
    page.get_by_text("It follows the moment that is shown.").wait_for()
    page.locator(".chips span", has_text="early").first.wait_for()
    assert page.locator(".chips span", has_text="late").count() == 0
    slider(page).press("End")
    page.locator(".chips span", has_text="late").first.wait_for()
    slider(page).press("Home")
    has(page.locator(".chips span", has_text="late"), 0)
    for _ in range(2):
        slider(page).press("PageUp")
    page.locator(".chips span", has_text="early").first.wait_for()
    page.get_by_role("link", name="Tasks", exact=True).click()
    tasks = page.get_by_label("Tasks", exact=True).locator("tr[data-key]")
    has(tasks, 21)
    wait_until(lambda: query(page) == "at=20.0", lambda: query(page))

    page.goto(page.url.partition("/tasks")[0] + "/logs?at=40")
    has(page.locator("div.lines p"), 41)
    # The script that follows the slider may be later than what is shown.
    wait_until(lambda: slider(page).input_value() == "40", slider(page).input_value)
    assert "line 40." in page.locator("div.lines p").last.inner_text()
    slider(page).press("ArrowLeft")
    has(page.locator("div.lines p"), 40)
    page.close()


def test_all_tabs_show_one_moment(replay, open_window):
    """What one tab chooses, the others show, whatever they show of it."""
    window = open_window()
    first, second = window.enter(replay, "/"), window.enter(replay, "/tasks")
    shows(first, LENGTH_S)
    tasks = second.get_by_label("Tasks", exact=True).locator("tr[data-key]")
    has(tasks, 100)

    slider(first).press("Home")
    shows(first, 0)
    has(tasks, 1)
    slider(second).press("PageUp")
    has(tasks, 11)
    shows(first, 10)
    for page in (first, second):
        page.close()


def test_it_is_played(replay, open_window):
    """Play goes on from the moment at the speed that is chosen, Pause stays, the end ends it."""
    page = open_window().enter(replay, "/?at=50")
    shows(page, 50)
    page.get_by_label("Speed").select_option("10x")
    page.get_by_role("button", name="Play").click()
    wait_until(lambda: float(query(page).partition("=")[2]) >= 60, lambda: query(page))
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Play").wait_for()
    slider(page).press("ArrowLeft")
    page.get_by_label("Speed").select_option("60x")
    page.get_by_role("button", name="Play").click()
    shows(page, LENGTH_S)
    page.get_by_role("button", name="Play").wait_for()

    # From the end it begins anew, slowly: a busy machine might miss all of it.
    page.get_by_label("Speed").select_option("1x")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    wait_until(lambda: float(query(page).partition("=")[2]) < LENGTH_S, lambda: query(page))
    page.close()


def test_back_leads_to_the_moment_before(replay, open_window):
    """The browser's Back leads to the URL that was, and so to its moment."""
    page = open_window().enter(replay, "/?at=20")
    shows(page, 20)
    page.get_by_role("link", name="Tasks", exact=True).click()
    tasks = page.get_by_label("Tasks", exact=True).locator("tr[data-key]")
    has(tasks, 21)
    wait_until(slider(page).is_enabled, "the slider listens to nobody")
    slider(page).press("Home")
    has(tasks, 1)

    page.go_back()
    shows(page, 20)
    page.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_slider_is_for_all(replay, open_window, colours):
    """axe-core finds no serious fault in a page with a slider; Settings have none."""
    page = open_window().enter(replay, "/?at=65")
    shows(page, 65)
    page.emulate_media(color_scheme=colours)
    page.reload()
    shows(page, 65)
    page.evaluate(AXE)
    for width, height in (DESKTOP, PHONE):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(FAULTS) == []
        box = slider(page).bounding_box()
        assert box["width"] >= 120
        assert box["x"] + box["width"] <= width
    page.get_by_role("link", name=dict(LINKS)[PATH], exact=True).click()
    page.get_by_text("Time window").wait_for()
    assert slider(page).count() == 0
    page.close()
