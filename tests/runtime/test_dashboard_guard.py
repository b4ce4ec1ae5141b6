"""Who is let in to the dashboard: asked as a browser asks, and as it never would."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import math
import os
import re
import socket
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPResponse
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from scaler_monitoring.dashboard import sign_in
from scaler_monitoring.dashboard.guard import Guard
from tests.runtime.helpers import BOUND_S, free_port
from tests.runtime.shell import Shell

TOKEN = ENCODED = "a-token_of.ours~"
COOKIE = ("HttpOnly", "SameSite=Lax", "Path=/scaler")
FORM = "application/x-www-form-urlencoded"
"""What a browser says of the form that it sends."""


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: str


class Door:
    """A dashboard, with nobody behind it: no scheduler is there to be watched."""

    def __init__(self, port: int, cookie: str) -> None:
        self.port = port
        self.cookie = cookie

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str):
        """Return the answer to one request; ``Host_`` as the names of headers cannot be told."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            connection.close()

    def upgrade(self, path: str = "/ws", **headers: str) -> int:
        """Return the status with which a WebSocket is opened, or not."""
        key = base64.b64encode(os.urandom(16)).decode()
        return self.ask(
            path,
            Upgrade="websocket",
            Connection="Upgrade",
            Sec_WebSocket_Key=key,
            Sec_WebSocket_Version="13",
            **headers,
        ).status


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """Return a dashboard that all tests of this module ask."""
    shell = Shell(tmp_path_factory.mktemp("shell"))
    watched = f"tcp://127.0.0.1:{free_port()}"
    command = shell.start(
        f"scaler_ui {watched} --port 0 --token '{TOKEN}' --prefix /scaler --hosts proxy.example"
    )
    link = command.address("dashboard at ")
    found = re.fullmatch(rf"http://127\.0\.0\.1:(\d+)/scaler/\?token={ENCODED}", link)
    assert found, link
    made = Door(int(found[1]), "")
    given = made.ask(f"/scaler/?token={ENCODED}")
    made.cookie = given.headers["Set-Cookie"].partition(";")[0]
    yield made
    shell.close()


def test_a_dashboard_that_ends_answers_nobody(tmp_path):
    """A dashboard that ends answers no request, not even on a connection that was open."""
    shell = Shell(tmp_path)
    command = shell.start(f"scaler_ui tcp://127.0.0.1:1 --port 0 --token '{TOKEN}'")
    port = int(command.address("dashboard at ").split(":")[2].partition("/")[0])
    door = Door(port, "")
    cookie = door.ask(f"/?token={ENCODED}").headers["Set-Cookie"].partition(";")[0]
    page = door.ask("/", Cookie=cookie).body
    tab_token = re.search(r'"token":"([^"]+)"', page)
    assert tab_token is not None
    with contextlib.ExitStack() as opened:
        kept = opened.enter_context(
            contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_S))
        )
        # A tab that does not answer a goodbye.
        tab = opened.enter_context(socket.create_connection(("127.0.0.1", port), BOUND_S))
        key = base64.b64encode(os.urandom(16)).decode()
        tab.sendall(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n"
            f"Cookie: {cookie}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: bokeh, {tab_token[1]}\r\n\r\n".encode()
        )
        assert tab.recv(4096).startswith(b"HTTP/1.1 101")
        kept.request("GET", "/settings", headers={"Cookie": cookie})
        before = kept.getresponse()
        before.read()
        assert before.status == 200

        command.process.terminate()
        # Its goodbye.
        while b"\x03\xe9" not in tab.recv(4096):
            continue

        try:
            kept.request("GET", "/settings", headers={"Cookie": cookie})
            assert kept.getresponse().status == 503
        except (ConnectionError, http.client.RemoteDisconnected):
            # This process was so slow that it has ended meanwhile.
            pass
    assert command.end() == 0
    assert command.err == ""
    shell.close()


def test_nobody_acts_by_a_dashboard_without_an_operators_key(door):
    """There is nothing that could be asked to act, and no second link."""
    assert door.ask("/scaler/act", "POST", "{}", Cookie=door.cookie).status == 404
    assert "deed" not in door.ask("/scaler/workers", Cookie=door.cookie).body


def test_the_link_lets_in(door):
    """The link's token becomes a cookie that no script reads, and leaves the address bar."""
    answer = door.ask(f"/scaler/tasks?token={ENCODED}&more=1")

    assert (302, "/scaler/tasks?more=1") == (answer.status, answer.headers["Location"])
    cookie = answer.headers["Set-Cookie"]
    assert all(part in cookie for part in (str(door.port), *COOKIE))
    assert "Secure" not in cookie
    assert door.ask("/scaler/tasks", Cookie=door.cookie).status == 200


@pytest.mark.parametrize(
    "path",
    ["/scaler/", "/scaler/?token=wrong", "/scaler/?token=", "/scaler/tasks", "/scaler/settings",
     "/scaler/find?q=a", "/scaler/autoload.js", "/scaler/metadata", "/scaler/ws", "/", "/nowhere",
     "/scaler/static/../", "/scaler/static/%2e%2e/tasks", "//scaler/static/x",
     f"/scaler/?token={ENCODED}x", f"/scaler/?token={ENCODED}&token=wrong"],
)  # fmt: skip
def test_nobody_else_gets_in(door, path):
    """No page of a dashboard is served without the token."""
    answer = door.ask(path)

    assert answer.status in {403, 404}
    assert "bokeh" not in answer.body.lower()


def test_who_has_no_token_is_asked_for_it(door):
    """The refusal is a page with a form, which leads to what was asked for."""
    asked = door.ask("/scaler/tasks?more=1")
    assert asked.status == 403
    assert asked.headers["Content-Type"].startswith("text/html")
    assert '<input type="password" name="token"' in asked.body

    for given in (
        ENCODED,
        f"http://127.0.0.1:{door.port}/scaler/?token={ENCODED}",
        f" {ENCODED}\n",
    ):
        answer = door.ask(
            "/scaler/tasks?more=1", "POST", urlencode({"token": given}), Content_Type=FORM
        )

        assert (303, "/scaler/tasks?more=1") == (answer.status, answer.headers["Location"])
        assert answer.headers["Set-Cookie"].partition(";")[0] == door.cookie
        assert all(part in answer.headers["Set-Cookie"] for part in COOKIE)


@pytest.mark.parametrize(
    ("given", "status", "says"),
    [
        ("token=wrong", 403, "That is not the token of this dashboard."),
        (f"token={ENCODED}x", 403, "That is not the token of this dashboard."),
        ("token=http%3A%2F%2Fhere%2F%3Ftoken%3Dx", 403, "That is not the token of this dashboard."),
        ("token=", 403, "the token is missing"),
        ("", 403, "the token is missing"),
        ("x" * 5000, 403, "the token is missing"),
        ("token=%ff", 403, "That is not the token of this dashboard."),
    ],
)
def test_a_wrong_token_is_asked_for_again(door, given, status, says):
    """The page says what is wrong, and sets nothing."""
    answer = door.ask("/scaler/", "POST", given, Content_Type=FORM)

    assert answer.status == status
    assert says in answer.body
    assert "Set-Cookie" not in answer.headers


def test_another_site_cannot_sign_in(door):
    """A form of another page is not taken."""
    form = {"Content_Type": FORM, "Origin": "http://evil.example"}

    assert "Set-Cookie" not in door.ask("/scaler/", "POST", f"token={ENCODED}", **form).headers


def test_a_page_whose_cookie_is_gone_asks_for_the_token(door):
    """A form of the dashboard that comes without a cookie is no wrong token."""
    answer = door.ask("/scaler/settings", "POST", "window=60", Content_Type=FORM)

    assert answer.status == 403
    assert "the token is missing" in answer.body


def test_in_a_frame_the_token_opens_a_page_of_its_own(door):
    """A browser would not keep a cookie in a frame of another site: the form leads out of it."""
    assert 'target="_blank"' in door.ask("/scaler/", Sec_Fetch_Dest="iframe").body
    assert "target=" not in door.ask("/scaler/", Sec_Fetch_Dest="document").body


def test_no_error_writes_the_token_into_the_log(tmp_path):
    """Errors of requests whose address or form has the token are logged without it."""
    shell = Shell(tmp_path)
    command = shell.start("scaler_ui tcp://127.0.0.1:1 --port 0 --logging-level DEBUG")
    port, token = re.findall(r":(\d+)/\?token=(.+)", command.address("dashboard at "))[0]
    door, shown = Door(int(port), ""), f"token={token}"
    here, framed = f"http://127.0.0.1:{port}", {"Sec_Fetch_Dest": "iframe"}

    assert door.ask("/", "POST", f"{shown}%ff", Content_Type=FORM).status == 403
    assert door.ask(f"/?{shown}&bokeh-token=bad", **framed).status == 500
    assert door.ask(f"/?tok%65n={token}&bokeh-token=bad", **framed).status == 500
    assert door.ask(f"/settings?{shown}", "POST", "window=%ff", Content_Type=FORM).status == 400
    door.upgrade(f"/ws?{shown}", Origin=here)

    assert command.interrupt() == 0
    written = command.out + command.err
    assert "Uncaught exception GET /?bokeh-token=bad" in written
    assert "400 POST /settings (127.0.0.1)" in written
    assert written.count(token) == 1
    shell.close()


def test_settings_in_a_frame_keep_the_token(door):
    """Without a cookie, the token stays in the links of a frame, after a form as well."""
    link = f"/scaler/settings?token={ENCODED}"
    mine = {"Sec_Fetch_Dest": "iframe", "Content_Type": FORM}

    chosen = door.ask(link, "POST", "window=60", **mine)

    assert (302, link) == (chosen.status, chosen.headers["Location"])
    assert f'href="{link}"' in door.ask(link, **mine).body


def test_wrong_tokens_take_few_connections(monkeypatch):
    """Beyond so many wrong tokens that wait for an answer, the next one does not wait."""
    monkeypatch.setattr(sign_in, "WRONG_S", math.inf)
    monkeypatch.setattr(sign_in.SignIn, "_waiting", asyncio.Semaphore(2))
    guard = Guard(TOKEN, 80, "", ())
    handler = (".*", sign_in.SignIn, {"guard": guard, "reason": "why"})

    async def play() -> list[int]:
        (listener,) = bind_sockets(0, "127.0.0.1")
        server = HTTPServer(Application([handler]))
        server.add_socket(listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        client = AsyncHTTPClient(force_instance=True)

        def show(token: str) -> asyncio.Future[HTTPResponse]:
            return client.fetch(url, False, method="POST", body=f"token={token}",
                                follow_redirects=False)  # fmt: skip

        waiting = {asyncio.ensure_future(show("wrong")) for _ in range(3)}
        done, waiting = await asyncio.wait(
            waiting, timeout=BOUND_S, return_when=asyncio.FIRST_COMPLETED
        )
        statuses = [one.result().code for one in done]
        statuses += [(await show(one)).code for one in ("wrong", TOKEN)]
        assert len(waiting) == 2
        client.close()
        server.stop()
        await server.close_all_connections()
        return statuses

    assert asyncio.run(play()) == [429, 429, 303]


def test_behind_a_proxy_with_https(door):
    """What a proxy says of the browser's protocol makes the cookie and the origin stricter."""
    https = {"X_Forwarded_Proto": "https"}
    here = f"127.0.0.1:{door.port}"
    cookies = [
        door.ask(f"/scaler/?token={ENCODED}", **https).headers["Set-Cookie"],
        door.ask("/scaler/", "POST", f"token={ENCODED}", Content_Type=FORM,
                 Origin=f"https://{here}", **https).headers["Set-Cookie"],
    ]  # fmt: skip

    assert all("Secure" in one for one in cookies)
    # This is another page if the host has one by HTTP as well.
    for path in ("/scaler/", "/scaler/settings"):
        asked = door.ask(path, Cookie=door.cookie, Origin=f"http://{here}", **https)
        assert asked.status == 403
    assert door.upgrade("/scaler/ws", Cookie=door.cookie, Origin=f"http://{here}", **https) == 403
    # A proxy may also say nothing.
    for said in (https, {"X_Forwarded_Proto": "HTTPS, http"}, {}):
        asked = door.ask("/scaler/", Cookie=door.cookie, Origin=f"https://{here}", **said)
        assert asked.status == 200
    asked = door.ask("/scaler/", Cookie=door.cookie, X_Forwarded_Host=here, Host="evil.example")
    assert asked.status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"])
def test_no_method_is_a_way_round(door, method):
    """The token is asked for whatever the method of a request."""
    assert door.ask("/scaler/", method).status == 403


def test_a_wrong_cookie_is_refused(door):
    """A wrong cookie is refused, also one that is much too long, or no text."""
    name = door.cookie.partition("=")[0]

    for value in ("wrong", "x" * 10_000, '"\\303\\251"', ""):
        assert door.ask("/scaler/", Cookie=f"{name}={value}").status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}",
             "localhost.evil.example", "[::1", "evil.example@127.0.0.1:{port}",
             "127.0.0.1:1; script-src *", "127.0.0.1/", "[::1]; script-src *", ""],
)  # fmt: skip
def test_names_of_others_are_refused(door, host):
    """A request for a foreign host name is refused, though its cookie is right."""
    asked = door.ask("/scaler/", Cookie=door.cookie, Host=host.format(port=door.port))

    assert asked.status in {400, 403}


def test_a_refusal_says_why(door):
    """A refusal says what is missing, or by which name to ask."""
    assert "the token is missing or wrong" in door.ask("/scaler/").body
    assert "name it in --hosts" in door.ask("/scaler/", Host="evil.example").body


def test_a_link_leads_to_no_other_host(door):
    """A link leads to no other host, however many slashes its path begins with."""
    for path in ("//evil.example/", "/\\\\evil.example/", "///evil.example"):
        answer = door.ask(f"{path}?token={ENCODED}")
        assert (answer.status, answer.headers["Location"][:13]) == (302, "/evil.example")


def test_what_is_too_long_is_not_read(door):
    """A dashboard does not read more of a request than settings take."""
    # Some versions of Tornado close the connection while it is still on its way.
    with contextlib.suppress(ConnectionError):
        assert door.ask("/scaler/settings", "POST", "x" * 100_000).status in {400, 413}

    assert door.ask("/scaler/settings", Cookie=door.cookie).status == 200


def test_dark_pages_for_who_wants_them(door):
    """A browser that prefers dark pages in a header gets dark ones."""
    wish = {"Cookie": door.cookie, "Sec_CH_Prefers_Color_Scheme": '"dark"'}

    for path in ("/scaler/", "/scaler/settings"):
        assert '<html lang="en" class="dark">' in door.ask(path, **wish).body
        answer = door.ask(path, Cookie=door.cookie)
        assert '<html lang="en" class="light">' in answer.body
        assert answer.headers["Accept-Ch"] == "Sec-CH-Prefers-Color-Scheme"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "10.1.2.3", "proxy.example"])
def test_its_own_names_are_answered(door, host):
    """A dashboard answers to IP addresses, localhost, and what --hosts names."""
    answer = door.ask("/scaler/", Cookie=door.cookie, Host=f"{host}:{door.port}")

    assert answer.status == 200


def test_other_pages_are_not_answered(door):
    """A request with the Origin of another site gets neither a page nor a WebSocket."""
    here = f"http://127.0.0.1:{door.port}"
    mine = {"Cookie": door.cookie}
    others = ("http://evil.example", "null", "http://127.0.0.1:1", f"{here}.evil.example")

    for origin in others:
        assert door.ask("/scaler/", Origin=origin, **mine).status == 403
        assert door.upgrade("/scaler/ws", Origin=origin, **mine) == 403
    assert door.upgrade("/scaler/ws", **mine) == 403
    assert door.upgrade("/scaler/ws", Origin=here) == 403
    assert door.ask("/scaler/", Origin=here, **mine).status == 200


def test_answers_say_what_a_browser_may_not_do(door):
    """Answers forbid foreign sources, code that did not come with the page, and caching."""
    page = door.ask("/scaler/", Cookie=door.cookie)
    policy = page.headers["Content-Security-Policy"]

    nonce = re.search(r"'nonce-([\w-]+)'", policy)
    assert nonce
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    scripts = re.search(r"script-src [^;]*", policy)
    assert scripts
    assert "unsafe-inline" not in scripts[0]
    assert page.body.count("<script") == page.body.count(f'<script nonce="{nonce[1]}"')
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert nonce[1] not in door.ask("/scaler/", Cookie=door.cookie).body
    assert "nosniff" == door.ask("/nowhere").headers["X-Content-Type-Options"]
    assert TOKEN not in page.body
    assert ENCODED not in page.body


def test_settings_are_kept_by_the_browser(door):
    """Settings come back as a cookie, and values that are no choice are passed over."""
    mine = {"Cookie": door.cookie, "Content_Type": FORM}
    chosen = door.ask("/scaler/settings", "POST", "window=60&scale=log&colours=<x>", **mine)

    assert chosen.status == 302
    cookie = chosen.headers["Set-Cookie"].partition(";")[0]
    assert cookie == 'scaler_settings="window=60&scale=log&colours=system"'
    page = door.ask("/scaler/settings", Cookie=f"{door.cookie}; {cookie}").body
    assert re.findall(r'value="(\w+)" checked', page) == ["60", "log", "system"]
    for wrong in ("window=1", "x" * 5000, '"%ff"'):
        answer = door.ask("/scaler/settings", Cookie=f"{door.cookie}; scaler_settings={wrong}")
        assert re.findall(r'value="(\w+)" checked', answer.body) == ["300", "linear", "system"]
