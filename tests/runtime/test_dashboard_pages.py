"""Every page of the dashboard in a real browser: it says what a run of known totals did."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from operator import add

import psutil
import pytest

from scaler_exec import Client, SchedulerClusterCombo, WorkerDiedError
from scaler_monitoring.dashboard.template import LINKS
from tests.runtime.browser import DESKTOP, PHONE
from tests.runtime.helpers import BOUND_S, free_port, standing_cluster, wait_gone, wait_until
from tests.runtime.tasks import raise_this

NASTY = '<img src=x onerror="alert(1)">'
MESSAGE = "<script>alert(2)</script>"
OBJECT_BYTES = 1_000_000
NODES = {
    "held": (time.sleep, 600),
    **{f"leaf-{leaf}": (add, leaf, leaf) for leaf in range(4)},
    "end": (max, ["leaf-0", "held"]),
}
"""None of it runs: the workers have other things to do."""
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
"""All that stands in a page: what Bokeh makes is in shadow trees, where nobody else looks."""
TICKS = """() => [...Bokeh.documents[0].roots()[0].references()]
    .filter(one => one.type === "LinearAxis" && one.axis_label === "CPUs")
    .map(one => one.formatter.doFormat([0, 0.001, 0.002, 0.003], {loc: 0}))"""
"""What a scheduler that has little to do has at its axis."""
SIDEWAYS = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def nasty(number):
    return number


nasty.__qualname__ = nasty.__name__ = NASTY


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fan(client):
    return sum(client.map(abs, range(5)))


@pytest.fixture(scope="module")
def run(standing):
    """Return the cluster of the scripted run, when all that is to end has ended.

    50 + 3 tasks of maps and one that has clients of its own return, and so does one graph; 2 tasks
    fail, one dies with its worker; two tasks and a graph do not end.
    """
    with (
        standing_cluster(2, standing, dashboard=True) as cluster,
        Client(cluster.get_address()) as client,
    ):
        assert len(client.map(add, range(50), range(50))) == 50
        client.map(nasty, range(3))
        for _ in range(2):
            client.submit(raise_this, "KeyError", MESSAGE).exception(BOUND_S)
        assert isinstance(client.submit(die).exception(BOUND_S), WorkerDiedError)
        assert client.submit(fan, client).result(BOUND_S) == 10
        kept = client.send_object(os.urandom(OBJECT_BYTES))
        assert client.get({"a": (add, 1, 2), "b": (add, "a", 3)}, ["b"]) == {"b": 6}
        held = [client.submit(time.sleep, 600) for _ in range(2)]
        wanted = ["end", *(f"leaf-{leaf}" for leaf in range(4))]
        held += client.get(NODES, wanted, block=False).values()
        yield cluster
        assert not any(future.done() for future in held)
        del kept


@pytest.fixture
def open_page(run, open_window):
    """Return what opens a page, at its path, and waits until it shows the cluster."""

    def open_page(path):
        page = open_window().enter(run.dashboard_link, path)
        page.locator("p.good").wait_for()
        return page

    return open_page


def text_of(page):
    """Return all that stands in a page, but its links."""
    return page.evaluate(ALL_TEXT)


def wait_for(page, *texts):
    """Wait until all of these stand in a page."""
    wait_until(
        lambda: all(text in text_of(page) for text in texts),
        lambda: f"the page does not say all of {texts}: {text_of(page)}",
        timeout=20.0,
    )


def tile(page, name):
    """Return the number in a tile."""
    found = page.locator("div.tile", has=page.locator(f'dt:text-is("{name}")')).locator("dd")
    return found.inner_text().split()[0]


def row(page, text):
    """Return the first row of a table with this in it."""
    return page.locator("tr[role=row]", has_text=text).first


def cells(line):
    """Return what stands in a row, from the left."""
    return [one.strip() for one in line.locator("td").all_inner_texts()]


# -- each page ---------------------------------------------------------------------------------


def test_overview(open_page):
    """The overview shows counts by state, functions, failures, the death, and what is held."""
    page = open_page("/")

    wait_for(page, "51 of 55 done", "1 of 1 done", "3 of 3 done", f"KeyError: '{MESSAGE}'")
    # Those of the 5 child tasks that their parent ran itself are no tasks of their own.
    wait_until(lambda: 55 <= int(tile(page, "Done")) <= 60, lambda: f"not done: {text_of(page)}")
    counts = {"Failed": "3", "Running": "2", "Waiting": "1", "Workers died": "1"}
    for name, count in counts.items():
        wait_until(
            lambda: tile(page, name) == count,  # noqa: B023
            lambda: f"{name} is not {count}: {text_of(page)}",  # noqa: B023
        )
    wait_for(page, f"{NASTY} ", "signal 9", "running 1:2 die", "976.6 KiB")
    ticks = page.evaluate(TICKS)
    assert ticks
    assert all(one == ["0", "0.001", "0.002", "0.003"] for one in ticks)
    page.close()


def test_task_stream(open_page):
    """The task stream has a row for each worker, and functions by time, those that run included."""
    page = open_page("/stream")

    wait_for(page, "It follows what happens now.", NASTY, "fan", "raise_this")
    wait_for(page, "1 to 3 of 3", "running, for up to")
    assert page.get_by_role("button", name="Pause").is_visible()
    page.close()


def test_tasks_are_found_and_explained(open_page):
    """The search field filters tasks, and a chosen failure shows its remote traceback."""
    page = open_page("/tasks")
    wait_for(page, " rows, ", "add", "raise_this")

    search = page.get_by_label("Number, function, worker, state or error has in it")
    search.fill("raise_this")
    search.press("Enter")
    wait_for(page, "2 of the last")
    row(page, "KeyError").click()
    wait_for(page, "Traceback (most recent call last)", "raise_this", MESSAGE)
    assert "in raise_this" in text_of(page)
    page.close()


def test_workers(open_page, run):
    """The workers' page shows two busy workers, and the dead one only as a death."""
    page = open_page("/workers")

    wait_for(page, "2 workers.", "signal 9", "1:2")
    busy = page.locator("tbody tr[role=row]", has_text="sleep")
    wait_until(lambda: busy.count() == 2, "two workers are not busy")
    assert all(cells(line)[2] == "sleep" for line in busy.all())
    page.close()


def test_graphs(open_page):
    """The graphs' page shows nodes by state, and the longest chain of the running graph."""
    page = open_page("/graphs")

    wait_for(page, "0 of 6 ended", "1 of 1 ended")
    running = row(page, "running")
    wait_until(
        lambda: cells(running)[4:13] == ["6", "0", "0", "5", "1", "0", "0", "2", "2"],
        "the nodes are not counted",
    )
    page.close()


def test_layers_of_a_graph(open_page):
    """A chosen graph has a URL, a bar for each name, what each waits for, and a picture."""
    page = open_page("/graphs")
    row(page, "running").click()
    wait_for(page, "Layers", "max 0/1", "add 0/4", "waits for 4 of add, 1 of sleep")
    wait_until(lambda: "graph=" in page.url, "the URL does not name the graph")

    again = open_page(page.url[page.url.index("/graphs") :])
    wait_for(again, "waits for 4 of add, 1 of sleep")
    assert again.locator("canvas").count() >= 1
    again.close()
    page.close()


def test_memory(open_page):
    """The memory page shows where objects are, who made them, and how full all is."""
    page = open_page("/memory")

    wait_for(page, "976.6 KiB", "home", "of its machine", "others")
    client = f"{os.getpid()}|{socket.gethostname()}"
    maker = row(page.locator("scaler-table[data-label='Makers: clients']"), client)
    wait_until(lambda: cells(maker)[1:] == ["1", "976.6 KiB", "100.0%"], "nobody made the object")
    largest = page.locator("tbody tr[role=row]", has_text=re.compile("[0-9a-f]{18}"))
    wait_until(lambda: largest.count() == 1, "the object is not listed")
    assert cells(largest.first)[1:5] == ["976.6 KiB", "(stored by clients)", client, "1"]
    page.close()


def test_clients(open_page):
    """The clients' page shows the client with its counts, and that of the task on a worker."""
    page = open_page("/clients")

    wait_for(page, "58 of 66 ended")
    mine = row(page, str(os.getpid()))
    wait_until(lambda: "66" in cells(mine), "the client's tasks are not counted")
    page.close()


def test_machines(open_page):
    """The machines' page shows one machine, on which a worker was replaced."""
    page = open_page("/machines")

    wait_for(page, "process ", "Heartbeat")
    machine = page.locator("tbody tr[role=row]").first
    wait_until(lambda: cells(machine)[1:8] == ["2", "2", "0", "2", "0", "0", "1"], "wrong counts")
    page.close()


def test_logs(open_window):
    """The page shows what a task prints while it is open, as text, and its link may filter."""
    with (
        SchedulerClusterCombo(1, dashboard=True) as cluster,
        Client(cluster.get_address()) as client,
    ):
        page = open_window().enter(cluster.dashboard_link, "/logs?text=tell")
        wait_for(page, "No task has printed or logged anything")

        def is_told():
            client.submit(print, f"other\ntell {NASTY}").result(BOUND_S)
            return f"tell {NASTY}" in text_of(page)

        wait_until(is_told, lambda: f"the line is not there: {text_of(page)}")
        assert "other" not in text_of(page)

        page.get_by_label("Text has in it").fill("OTHE")
        wait_for(page, "stdout other")
        assert "tell" not in text_of(page)
        page.close()


def test_managers_come_and_go(open_window, shell):
    """Managers have a table while there are any, with why their units are in vain."""
    with SchedulerClusterCombo(1, dashboard=True) as cluster:
        page = open_window().enter(cluster.dashboard_link, "/machines")
        wait_for(page, "process ")
        title = page.get_by_role("heading", name="Worker managers")
        assert not title.is_visible()

        manager = shell.start(
            f"scaler_worker_manager ssh {cluster.get_address()} -wmi mine --hosts 127.0.0.1 "
            f"--ssh-port {free_port()} --min-workers 1 --max-workers 1 --heartbeat-interval 0.2"
        )

        title.wait_for()
        mine = row(page, "mine")
        wait_until(lambda: "Connection refused" in cells(mine)[-1], "it does not say why")
        assert cells(mine)[:6] == ["mine", "ssh", "1", "0", "1", "0"]
        assert int(cells(mine)[8]) >= 1
        assert page.evaluate(SIDEWAYS) <= 0
        manager.interrupt()
        title.wait_for(state="hidden")
        page.close()


def test_settings_change_the_pages(open_page):
    """A chosen setting holds on all pages, and when one comes back."""
    page = open_page("/")
    assert page.evaluate("document.documentElement.className") == "light"
    page.get_by_role("link", name="Settings").click()

    page.get_by_label("dark", exact=True).check()
    page.get_by_role("button", name="Save").click()

    page.get_by_label("dark", exact=True).wait_for()
    assert page.get_by_label("dark", exact=True).is_checked()
    page.get_by_role("link", name="Overview").click()
    page.locator("p.good").wait_for()
    assert page.evaluate("document.documentElement.className") == "dark"
    page.close()


# -- all pages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path, _ in LINKS])
def test_pages_fit_and_run_no_code_of_users(run, open_window, path):
    """No page is wider than its window, a phone's or a desktop's, or runs code of users.

    Nor does it ask elsewhere for anything.
    """
    window = open_window(PHONE)
    dialogs: list[str] = []

    def note(dialog):
        dialogs.append(dialog.message)
        dialog.dismiss()

    window.context.on("dialog", note)

    page = window.enter(run.dashboard_link, path)

    page.get_by_role("link", name=dict(LINKS)[path]).wait_for()
    if path != "/settings":
        page.locator("p.good").wait_for()
        wait_until(lambda: len(text_of(page)) > 100, "the page stays empty")
    for width, height in (PHONE, DESKTOP):
        page.set_viewport_size({"width": width, "height": height})
        wait_until(lambda: page.evaluate(SIDEWAYS) <= 0, "the page is wider than its window")
    assert page.locator("img[src=x]").count() == 0
    assert not dialogs
    page.close()


def test_pages_are_reached_by_keyboard(open_page):
    """Tab goes through the links of a page, the first of which skips the others."""
    page = open_page("/")

    names = []
    for _ in range(len(LINKS) + 1):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.textContent"))

    assert names == ["To the content", *(name for _, name in LINKS)]
    page.close()


def test_tables_do_not_keep_the_keyboard(open_page):
    """Tab leads from the table of failures to what follows it."""
    page = open_page("/tasks")
    row(page, "KeyError").focus()

    def is_past():
        page.keyboard.press("Tab")
        return page.get_by_label("Number, function, worker, state or error has in it").evaluate(
            "one => one.getRootNode().activeElement === one"
        )

    assert any(is_past() for _ in range(12))
    page.close()


def test_a_killed_worker_goes_and_is_reported(open_window):
    """A killed worker's row goes while the page is open, and its death and successor come."""
    with SchedulerClusterCombo(1, dashboard=True) as cluster:
        page = open_window().enter(cluster.dashboard_link, "/workers")
        with Client(cluster.get_address()) as client:
            pid = client.submit(os.getpid).result()
            row(page, f"{pid}|").wait_for()
            psutil.Process(pid).kill()
            wait_gone(pid)

            wait_for(page, "signal 9")
            after = client.submit(os.getpid).result()
            row(page, f"{after}|").wait_for()
            wait_for(page, "1 worker.")
        page.close()
