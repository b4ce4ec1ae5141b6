"""Reports of real clusters, in a real browser: ``client.performance_report()``."""

from __future__ import annotations

import os
import signal
import time

import pytest

from scaler_exec import Client, ConfigError, WorkerDiedError
from tests.runtime.browser import DESKTOP, PHONE
from tests.runtime.helpers import plant

HOSTILE = "<img src=x onerror=alert(1)>"


def double(x):
    return 2 * x


def refuse(x):
    raise ValueError(f"no <b>{x}</b>")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def tile(page, name):
    """Return the figure below a name."""
    return page.locator(f".tiles div:has(dt:text-is('{name}')) dd").inner_text()


def row(page, name):
    """Return the cells of a function."""
    return page.locator("#functions tbody tr", has_text=name).locator("td").all_inner_texts()


def open_report(open_window, path, size=DESKTOP):
    window = open_window(size)
    page = window.open(path.as_uri())
    page.wait_for_function("Bokeh.documents.length > 0 && Bokeh.documents.every(d => d.is_idle)")
    assert {url.partition(":")[0] for url in window.requests} <= {"file", "data", "blob"}
    return page


def test_a_page_says_what_happened(client, open_window, tmp_path) -> None:
    """A page tells exactly what the body did, and all of it up to its end."""
    path = tmp_path / "report.html"
    refuse.__name__ = refuse.__qualname__ = HOSTILE
    client.map(double, range(50))

    with client.performance_report(path):
        client.map(double, range(1000))
        failed = [client.submit(refuse, x) for x in range(3)]
        assert all(future.exception() for future in failed)
        with pytest.raises(WorkerDiedError):
            client.submit(die).result()

    page = open_report(open_window, path)
    assert tile(page, "tasks done") == "1,000"
    assert tile(page, "failed") == "4"
    assert tile(page, "workers that died") == "1"
    assert row(page, "double")[:2] == ["1,000", "0"]
    assert row(page, HOSTILE)[:2] == ["0", "3"]
    assert "no <b>" in page.locator("#failures").inner_text()
    assert 'raise ValueError(f"no <b>{x}</b>")' in page.locator("#failures").text_content()
    assert "running" in page.locator("#deaths").inner_text()
    assert page.locator("#task-stream > *").count() == 1
    assert page.locator("img").count() == 0


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100))


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_a_page_has_a_profile_if_asked_for(client, open_window, tmp_path, size) -> None:
    """With profile=True the page has a flame graph of what tasks did, at any width."""
    path = tmp_path / "report.html"
    with client.performance_report(path, profile=True):
        client.map(spin, [1.0] * 4)

    page = open_report(open_window, path, size)
    bars = page.locator("#profile .flame div")
    whole = page.locator("#profile .flame").bounding_box()["width"]
    # Below it is what it calls; time in which its module was imported is no function's.
    assert [one.inner_text() for one in bars.all()[:2]] == ["spin", "spin"]
    assert bars.first.bounding_box()["width"] == pytest.approx(whole, abs=1)
    assert page.locator("#profile tbody tr").first.inner_text().startswith("spin")
    page.wait_for_function(f"document.documentElement.scrollWidth <= {size[0]}")


def test_names_are_text_under_the_pointer(client, open_window, tmp_path) -> None:
    """Names of users are text in what a figure shows under the pointer."""
    path = tmp_path / "report.html"
    refuse.__name__ = refuse.__qualname__ = HOSTILE

    with client.performance_report(path):
        client.submit(refuse, 1).exception()

    page = open_report(open_window, path)
    stream = page.locator("#task-stream")
    stream.scroll_into_view_if_needed()
    box = stream.bounding_box()
    tooltip = page.locator(".bk-tooltip-content")
    for part in range(1, 100):
        page.mouse.move(box["x"] + box["width"] * part / 100, box["y"] + box["height"] / 2)
        # What comes of it is drawn by the frame after the next.
        page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        if tooltip.count() and tooltip.first.is_visible():
            break
    assert HOSTILE in tooltip.first.inner_text()
    assert tooltip.locator("img").count() == 0


STICK_OUT = """() => [...document.querySelectorAll("*")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth)
    .map((one) => one.outerHTML.slice(0, 100))"""
"""What is to be mended where a page is wider than the window."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(client, open_window, tmp_path, scheme) -> None:
    """No element is wider than a phone, and figures have the colours of the page."""
    from playwright.sync_api import TimeoutError as TooLate

    path = tmp_path / "report.html"
    with client.performance_report(path):
        client.map(double, range(100))

    page = open_report(open_window, path, PHONE)
    page.emulate_media(color_scheme=scheme)

    try:
        page.wait_for_function(f"document.documentElement.scrollWidth === {PHONE[0]}")
    except TooLate:
        width = page.evaluate("document.documentElement.scrollWidth")
        pytest.fail(f"{width} pixels wide, because of {page.evaluate(STICK_OUT)}")
    page.wait_for_function(
        """() => {
            const of_page = getComputedStyle(document.body).getPropertyValue("--panel");
            const roots = Bokeh.documents.at(-1).roots();
            return roots.every((figure) => figure.background_fill_color === of_page);
        }"""
    )


def test_a_body_that_raises(client, tmp_path) -> None:
    """The page of a body that raises is written, and the exception goes on."""
    path = tmp_path / "report.html"

    with pytest.raises(ZeroDivisionError), client.performance_report(path):
        client.map(double, range(10))
        raise ZeroDivisionError

    assert "Performance report" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_a_cluster_that_ends_meanwhile(own_cluster, tmp_path) -> None:
    """The page of a cluster that ended says what was heard, and that it is not all."""
    path = tmp_path / "report.html"

    with Client(own_cluster) as client, client.performance_report(path):
        client.map(double, range(10))
        own_cluster.shutdown()

    assert "The scheduler was not heard at the end" in path.read_text()


def test_a_place_where_nothing_can_be_written(client, tmp_path) -> None:
    """A path that cannot be written is refused before the body runs."""
    with (
        pytest.raises(ConfigError, match="cannot write .*: No such file or directory"),
        client.performance_report(str(tmp_path / "none" / "report.html")),
    ):
        pytest.fail("the body runs")


def test_a_disk_that_is_lost(client, tmp_path) -> None:
    """A page that could not be written is an error, unless the body has raised another."""
    place = tmp_path / "place"

    def run():
        place.mkdir()
        with client.performance_report(place / "report.html"):
            place.rmdir()
            yield

    with pytest.raises(ConfigError, match="cannot write"):
        list(run())
    body = run()
    next(body)
    with pytest.raises(ZeroDivisionError):
        body.throw(ZeroDivisionError)


def test_without_bokeh(client, tmp_path, monkeypatch) -> None:
    """Without Bokeh the error says what to install, before the body runs."""
    plant(tmp_path, "import sys; sys.modules['bokeh'] = None")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    with (
        pytest.raises(ConfigError, match=r"pip install 'scaler-exec\[monitor\]'"),
        client.performance_report(tmp_path / "report.html"),
    ):
        pytest.fail("the body runs")
