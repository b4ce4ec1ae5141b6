"""The dashboard as a whole, in a real browser: it comes, goes, is asked for, and says what is."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import threading
import time

import psutil
import pytest

from scaler_cluster.process.dashboard_link import DashboardLink
from scaler_exec import Client, ConfigError, ScalerExecutor, SchedulerClusterCombo
from scaler_monitoring.recording import read
from tests.runtime.browser import DESKTOP, watched
from tests.runtime.helpers import free_port, plant, wait_gone, wait_until

TABS = 3
LOOK_S = 30.0
WARM_S = 15.0
"""How long it takes until a tab has all that it keeps."""
GROWTH_BYTES = 5e6
ROOM_BYTES = 4096
"""Enough for what is logged, not for what is recorded."""


def connected(page):
    """Wait until a page says that it shows a cluster; return what it says."""
    page.locator("p.good").wait_for()
    return page.locator("p.good").inner_text()


# -- where it comes from -----------------------------------------------------------------------


@pytest.mark.parametrize("make", [ScalerExecutor, SchedulerClusterCombo])
def test_an_embedded_cluster_brings_its_own(open_window, make):
    """dashboard=True makes a link that shows this cluster, and clients know it as well."""
    with make(2, dashboard=True) as made:
        address = made.address if make is ScalerExecutor else made.get_address()
        with Client(address) as client:
            assert client.dashboard_link == made.dashboard_link
        window = open_window()
        page = window.open(made.dashboard_link)

        assert "2 workers" in connected(page)
        assert page.url == made.dashboard_link.partition("?")[0]
        page.close()


def test_without_bokeh_there_is_none(tmp_path, monkeypatch):
    """Without Bokeh dashboard=True is an error that names the extra, and nothing is left."""
    plant(tmp_path, "import sys; sys.modules['bokeh'] = None")
    path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{path}" if path else str(tmp_path))

    with pytest.raises(ConfigError, match=r"pip install 'scaler-exec\[monitor\]'"):
        ScalerExecutor(1, dashboard=True)


def test_the_end_of_a_dashboard_is_not_the_end_of_tasks(make_executor):
    """Tasks go on when the dashboard is killed, and the executor ends as ever."""
    executor = make_executor(1, dashboard=True)
    dashboards = [
        one for one in psutil.Process().children() if "dashboard" in " ".join(one.cmdline())
    ]
    assert len(dashboards) == 1

    dashboards[0].kill()

    wait_gone(dashboards[0].pid)
    assert list(executor.map(abs, range(-3, 0))) == [3, 2, 1]


def test_a_stack_serves_one(shell, open_window, tmp_path):
    """``scaler`` serves a dashboard for [webui] in its file, and prints the link."""
    port = free_port(4)
    (tmp_path / "stack.toml").write_text(
        f'[scheduler]\nscheduler_address = "tcp://127.0.0.1:{port}"\n'
        f"[cluster]\nnum_of_workers = 1\n[webui]\nweb_port = {port + 3}\n"
    )
    link = shell.start(f"scaler {tmp_path}/stack.toml").address("dashboard at ")

    page = open_window().open(link)

    assert link.startswith(f"http://127.0.0.1:{port + 3}/?token=")
    page.get_by_text("1 worker", exact=False).first.wait_for()
    assert f"tcp://127.0.0.1:{port + 2}" in connected(page)
    page.close()


def test_a_taken_port_is_said(shell):
    """A port that is taken is told in one line, with status 2."""
    port = free_port()
    shell.start(f"scaler_ui tcp://127.0.0.1:1 --port {port}").wait_for("dashboard at")

    second = shell.start(f"scaler_gui tcp://127.0.0.1:1 --port {port}")

    assert second.end() == 2
    assert second.err.count("\n") == 1
    assert "the port is in use" in second.err


@pytest.mark.parametrize("end", ["interrupt", "terminate"])
def test_it_ends_in_order(shell, open_window, end):
    """A dashboard with an open tab ends by Ctrl-C or SIGTERM with status 0 and not a word."""
    command = shell.start("scaler_ui tcp://127.0.0.1:1 --port 0")
    window = open_window()
    page = window.open(command.address("dashboard at "))
    page.get_by_text("no scheduler was heard").wait_for()

    if end == "interrupt":
        assert command.interrupt() == 0
    else:
        command.process.terminate()
        assert command.end() == 0

    assert command.err == ""
    # The browser says that it is gone.
    for expected in ("ERR_CONNECTION", "WebSocket", "/settings"):
        window.excuse(expected)
    page.close()


def no_more_room(command, recording):
    """Wait until a process of a command records; let it write no more files."""
    wait_until(lambda: recording.exists() and recording.stat().st_size, "nothing is recorded")
    for one in (psutil.Process(command.pid), *psutil.Process(command.pid).children()):
        if str(recording) in [file.path for file in one.open_files()]:
            one.rlimit(psutil.RLIMIT_FSIZE, (ROOM_BYTES, ROOM_BYTES))


def test_a_recording_that_has_no_room_ends_the_command(shell, tmp_path):
    """A full disk ends a recording dashboard with one line; what was recorded can be read."""
    recording = tmp_path / "run.rec"
    with SchedulerClusterCombo(1) as cluster, Client(cluster.get_address()) as client:
        command = shell.start(
            f"scaler_ui {cluster.get_monitor_address()} --port 0 --record {recording}"
        )
        command.address("dashboard at ")

        no_more_room(command, recording)

        wait_until(lambda: client.map(abs, range(99)) and command.process.poll(), "it goes on")
        assert command.end() == 2
        assert command.err.startswith(f"scaler_ui: cannot write {recording}: ")
        assert command.err.count("\n") == 1


def test_a_stack_says_why_its_dashboard_ends(shell, tmp_path):
    """A stack says why its dashboard ended, and goes on without."""
    port, recording = free_port(3), tmp_path / "run.rec"
    (tmp_path / "stack.toml").write_text(
        f'[scheduler]\nscheduler_address = "tcp://127.0.0.1:{port}"\n'
        "status_report_interval_seconds = 0.1\n"
        f'[webui]\nport = 0\nrecord = "{recording}"\n'
    )
    stack = shell.start(f"scaler {tmp_path}/stack.toml")
    stack.address("dashboard at ")

    no_more_room(stack, recording)

    with Client(f"tcp://127.0.0.1:{port}"):
        stack.wait_for(f"the dashboard ends: cannot write {recording}")
    assert stack.interrupt() == 0


# -- what it says of the scheduler -------------------------------------------------------------


def test_a_scheduler_goes_and_comes_back(shell, open_window):
    """The page says whether there is a scheduler yet, is one, is none any more, or is again."""
    port = free_port(3)
    begin = f"scaler_scheduler tcp://127.0.0.1:{port} -sri 0.2"
    dashboard = shell.start(f"scaler_ui tcp://127.0.0.1:{port + 2} --port 0")
    page = open_window().open(dashboard.address("dashboard at "))
    page.get_by_text("no scheduler was heard yet").wait_for()
    first = shell.start(begin)
    connected(page)

    assert first.interrupt() == 0
    page.get_by_text("Disconnected").wait_for()
    assert "what is shown is old" in page.locator("p.bad").first.inner_text()

    shell.start(begin)
    assert "scheduler restarted once" in connected(page)
    page.close()


def test_a_replay_shows_what_was_recorded(shell, open_window, tmp_path):
    """--replay shows what --record wrote as it was shown live, without a scheduler."""
    recording = tmp_path / "run.rec"
    with SchedulerClusterCombo(2) as cluster, Client(cluster.get_address()) as client:
        monitor = cluster.get_monitor_address()
        live = shell.start(f"scaler_ui {monitor} --port 0 --record {recording}")
        window = open_window()
        page = window.open(live.address("dashboard at "))
        connected(page)
        client.map(abs, range(500))
        tile = page.locator("div.tile", has_text="done").locator("dd")
        wait_until(lambda: "500" in tile.first.inner_text(), "the tasks are not counted")
        said = page.locator("div.tile dd").all_inner_texts()
        page.close()
    live.interrupt()
    assert list(read(str(recording)))

    replay = shell.start(f"scaler_ui --replay {recording} --port 0")
    page = window.open(replay.address("dashboard at "))

    assert connected(page).startswith("Recording")
    assert "500" in page.locator("div.tile", has_text="done").locator("dd").first.inner_text()
    assert len(said) == page.locator("div.tile dd").count()
    page.close()


def test_a_page_goes_on_with_the_next_dashboard(shell, open_window):
    """A page goes on with a later dashboard of the same port and token, and says until then."""
    port = free_port()
    begin = f"scaler_ui tcp://127.0.0.1:1 --port {port} --token"
    first = shell.start(f"{begin} the-token-of-ours")
    window = open_window()
    for expected in ("ERR_CONNECTION", "403", "failed:", "WebSocket", "/settings"):
        window.excuse(expected)
    page = window.open(first.address("dashboard at "))
    page.get_by_text("no scheduler was heard yet").wait_for()

    os.killpg(first.pid, signal.SIGKILL)
    page.get_by_text("The dashboard has gone").wait_for()
    # What the dashboard said of itself is old, and not to stand beside that.
    page.get_by_text("no scheduler was heard yet").wait_for(state="hidden")
    second = shell.start(f"{begin} the-token-of-ours")
    page.locator("#lost").wait_for(state="hidden")
    page.get_by_text("no scheduler was heard yet").wait_for()

    assert second.interrupt() == 0
    shell.start(f"{begin} a-token-of-others").wait_for("dashboard at ")
    page.get_by_text("There is another dashboard now").wait_for()
    page.close()


# -- who may look ------------------------------------------------------------------------------


def test_a_token_can_be_pasted(shell, open_window):
    """The page for a missing token takes the token or the link, and leads to what was asked for."""
    commands = [shell.start("scaler_ui tcp://127.0.0.1:1 --port 0 --prefix /p") for _ in range(2)]
    links = [one.address("dashboard at ") for one in commands]
    token = links[1].partition("token=")[2]
    window = open_window()
    window.excuse("403")

    for link, pasted in ((links[0], links[0]), (links[1], token)):
        page = window.open(link.partition("?")[0] + "tasks?more=1")
        page.get_by_label("Token").fill("a-token-of-another-dashboard")
        page.get_by_role("button", name="Open").click()
        page.get_by_text("That is not the token of this dashboard.").wait_for()
        assert page.get_by_label("Token").input_value() == ""
        page.get_by_label("Token").fill(pasted)
        page.keyboard.press("Enter")
        page.get_by_text("no scheduler was heard yet").wait_for()
        assert page.url == link.partition("?")[0] + "tasks?more=1"
        page.close()
    # Both are ports of one host, and each has a cookie of its own.
    for link in links:
        page = window.open(link.partition("?")[0])
        page.get_by_text("no scheduler was heard yet").wait_for()
        page.close()
    assert not any("token=" in url for url in window.requests)


# -- where it is shown -------------------------------------------------------------------------


@contextlib.contextmanager
def notebook(link):
    """Serve a page that shows a dashboard, as notebooks do; yield the page's address."""

    class Notebook(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            shown = DashboardLink(link)._repr_html_()
            self.wfile.write(f"<!doctype html><link rel=icon href=data:,>{shown}".encode())

        def log_message(self, *_) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Notebook)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        # Not the host of the dashboard: it is another site.
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_it_can_stand_in_a_page_of_this_machine(shell, open_window):
    """A dashboard can be shown in a frame of a page of another origin, as notebooks do."""
    link = shell.start("scaler_ui tcp://127.0.0.1:1 --port 0").address("dashboard at ")

    with notebook(link) as address:
        window = open_window()
        window.allow(link)
        page = window.open(address)
        frame = page.frame_locator("iframe")
        frame.get_by_text("no scheduler was heard yet").wait_for()
        frame.get_by_role("link", name="Settings").click()
        frame.get_by_text("Time window").first.wait_for()
        frame.get_by_role("link", name="Overview").click()
        frame.get_by_text("no scheduler was heard yet").wait_for()
        page.close()


def test_a_token_that_is_pasted_into_a_frame_opens_a_tab(shell, open_window):
    """A frame with the link of an earlier dashboard asks for the token, and opens a tab for it."""
    link = shell.start("scaler_ui tcp://127.0.0.1:1 --port 0").address("dashboard at ")

    with notebook(link + "-of-before") as address:
        window = open_window()
        window.excuse("403")
        window.allow(link)
        page = window.open(address)
        frame = page.frame_locator("iframe")
        frame.get_by_label("Token").fill(link)
        with window.context.expect_page() as opened:
            frame.get_by_role("button", name="Open").click()
        opened.value.get_by_text("no scheduler was heard yet").wait_for()
        opened.value.close()
        page.close()


@pytest.mark.timeout(240)
def test_many_tabs_for_half_a_minute(shell, browser):
    """The dashboard's memory does not grow while they are open."""
    with SchedulerClusterCombo(2) as cluster, Client(cluster.get_address()) as client:
        command = shell.start(f"scaler_ui {cluster.get_monitor_address()} --port 0")
        link = command.address("dashboard at ")
        process = psutil.Process(command.pid)
        with watched(browser, DESKTOP) as window:
            for tab in range(TABS):
                page = window.open(link)
                if tab == 0:
                    connected(page)
            sizes: list[tuple[float, int]] = []
            start = time.monotonic()
            while (now := time.monotonic() - start) < LOOK_S:
                client.map(abs, range(1000))
                sizes.append((now, process.memory_info().rss))
                page.wait_for_timeout(500)
            # Tabs that draw are slow to answer whether they have said everything.
            for other in window.context.pages[:-1]:
                other.close()
            connected(page)
    early = max(size for at, size in sizes if at < WARM_S)
    late = max(size for at, size in sizes if at >= WARM_S)
    assert late - early < GROWTH_BYTES, sizes
