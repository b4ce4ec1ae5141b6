"""A dashboard that keeps a history, in a real browser: it is killed, and leads back to before."""

from __future__ import annotations

import os
import signal

import pytest

from scaler_exec import Client
from scaler_monitoring.recording import read
from tests.runtime.browser import DESKTOP, PHONE
from tests.runtime.helpers import BOUND_S, free_port, wait_until
from tests.runtime.tasks import raise_this
from tests.runtime.test_dashboard_for_all import AXE, FAULTS


@pytest.fixture
def cluster(shell):
    """Return the address of a cluster of commands, and that for monitors."""
    address = f"tcp://127.0.0.1:{free_port(3)}"
    scheduler = shell.start(f"scaler_scheduler {address}")
    monitor = scheduler.address("monitor address ")
    shell.start(f"scaler_cluster -n 1 {address}").wait_for("started")
    return address, monitor


def slider(page):
    """Return the slider of a page."""
    return page.get_by_role("slider", name="Moment that is shown")


def said(page):
    """Return what the slider says of the moment."""
    return slider(page).get_attribute("aria-valuetext")


def done(page, count):
    """Wait until an Overview says that so many tasks are done."""
    tile = page.locator("div.tile", has_text="Done").first.locator("dd")
    wait_until(lambda: tile.inner_text().split()[0] == str(count), tile.inner_text)


def kill(command):
    """Kill a command, and wait until it is gone."""
    os.killpg(command.pid, signal.SIGKILL)
    command.end()


def test_what_was_before_is_there_after_a_kill(cluster, shell, open_window):
    """Failures of before are told; the slider leads to any moment, Now and End to what happens."""
    address, monitor = cluster
    line = f"scaler_ui {monitor} --history kept --port 0 -bi 0.1"
    first = shell.start(line)
    page = open_window().enter(first.address("dashboard at "), "/")
    with Client(address) as client:
        assert len(client.map(abs, range(20))) == 20
        client.submit(raise_this, "KeyError", "no such currency").exception(BOUND_S)
        done(page, 20)
        page.get_by_text("no such currency").first.wait_for()
        page.close()
        kill(first)

        second = shell.start(line)
        window = open_window()
        link = second.address("dashboard at ")
        page, other = window.enter(link, "/"), window.enter(link, "/")
        # Told before this dashboard was there: the scheduler has counts alone.
        page.get_by_text("no such currency").first.wait_for()
        assert len(client.map(abs, range(30))) == 30
        for one in (page, other):
            done(one, 50)
            wait_until(lambda: said(one) == "now", lambda: said(one))  # noqa: B023
            assert one.get_by_role("button", name="Now").is_disabled()

        slider(page).focus()
        page.keyboard.press("Home")
        page.locator("p", has_text="Before tcp://").first.wait_for()
        done(page, 0)
        done(other, 50)
        assert "at=" in page.evaluate("location.search")

        # A link to the moment shows it, until its user comes back.
        other.goto(other.url + page.evaluate("location.search"))
        done(other, 0)
        slider(other).press("End")
        done(other, 50)
        wait_until(lambda: said(other) == "now", lambda: said(other))
        page.get_by_role("button", name="Now").click()
        done(page, 50)
        wait_until(lambda: page.evaluate("location.search") == "", page.content)
        page.locator("p", has_text="Connected").first.wait_for()
        for one in (page, other):
            one.close()

    assert second.interrupt() == 0
    # It is a recording as well: of both dashboards.
    snapshots = [one for _, one in read(str(shell.directory / "kept")) if hasattr(one, "tasks")]
    assert {0, 20, 50} <= {one.tasks.done for one in snapshots}


def test_one_directory_is_of_one_dashboard(cluster, shell):
    """A second one that would write there is told so, at once."""
    _, monitor = cluster
    line = f"scaler_ui {monitor} --history kept --port 0"
    shell.start(line).address("dashboard at ")
    second = shell.start(line)
    assert second.end() == 2
    assert "another dashboard keeps its history in kept: name another directory" in second.err
    assert shell.run("scaler_ui --replay x --history kept").process.returncode == 2


def test_the_slider_of_what_goes_on_is_for_all(cluster, shell, open_window):
    """axe-core finds no serious fault, in what happens and in what was before, on any screen."""
    _, monitor = cluster
    line = f"scaler_ui {monitor} --history kept --port 0 -bi 0.1"
    page = open_window().enter(shell.start(line).address("dashboard at "), "/")
    for colours, (width, height) in (("dark", DESKTOP), ("light", PHONE)):
        page.emulate_media(color_scheme=colours)
        page.set_viewport_size({"width": width, "height": height})
        page.reload()
        page.locator("p.good").first.wait_for()
        page.evaluate(AXE)
        for key, text in (("Home", "Before"), ("End", "Connected")):
            slider(page).press(key)
            page.locator("p", has_text=text).first.wait_for()
            assert page.evaluate(FAULTS) == []
        box = slider(page).bounding_box()
        assert box["width"] >= 120
        assert box["x"] + box["width"] <= width
    page.close()
