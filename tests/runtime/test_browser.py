"""What a page does unseen is seen: the tests of the dashboard could fail."""

from __future__ import annotations

import http.server
import threading

import pytest

from tests.runtime.browser import watched
from tests.runtime.helpers import wait_until


@pytest.fixture
def serve():
    """Return what serves one page at every path but one, and returns its address.

    The page names an empty icon of its own: else the browser asks for one, perhaps of a server that has ended.
    """
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(body: str) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(404 if self.path == "/missing" else 200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                icon = "<link rel=icon href='data:,'>"
                self.wfile.write(f"<!doctype html><title>page</title>{icon}{body}".encode())

            def log_message(self, format, *args) -> None:  # noqa: A002
                pass

        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start

    for server in servers:
        server.shutdown()
        server.server_close()


def test_quiet_page_passes(open_window, serve):
    """A page that does nothing wrong is opened, read and not complained about."""
    page = open_window().open(serve("<p id=greeting>hello</p><script>console.log(1)</script>"))

    assert page.inner_text("#greeting") == "hello"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("<script>console.error('alas')</script>", "console: alas"),
        ("<script>throw new Error('thrown')</script>", "uncaught: thrown"),
        ("<script>Promise.reject(new Error('late'))</script>", "uncaught: late"),
        ("<link rel=stylesheet href=/missing>", "404"),
        ("<img src='http://foreign.invalid/image.png'>", "foreign: http://foreign.invalid/image"),
        ("<script>new WebSocket('ws://127.0.0.1:9/feed')</script>", "foreign: ws://127.0.0.1:9/"),
        ("<script>setTimeout(() => open('http://foreign.invalid/'))</script>", "foreign: http"),
    ],
    ids=["console", "thrown", "rejected", "missing", "image", "websocket", "tab"],
)
def test_complaints(browser, serve, body, complaint):
    """Errors, missing files and whatever goes to another origin fail the test at its end."""
    with pytest.raises(AssertionError) as raised, watched(browser) as window:
        window.open(serve(body))
        wait_until(lambda: any(complaint in one for one in window.complaints()), str(window.errors))

    assert complaint in str(raised.value)


def test_excused(open_window, serve):
    """An error that a test expects does not fail it."""
    window = open_window()
    window.excuse("alas")
    window.open(serve("<script>console.error('alas')</script>"))

    assert window.complaints() == []
    assert window.errors


def test_processes_of_the_browser_stand(browser, nothing_left):
    """What the browser starts during a test is not held against the test."""
    context = browser.new_context()
    context.new_page()
    context.close()
