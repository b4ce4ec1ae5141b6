"""Who may see the dashboard: whoever has its token, on no page but its own."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
from contextlib import suppress
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlsplit

from bokeh.server.tornado import BokehTornado
from tornado.web import OutputTransform, RequestHandler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.server.connection import ServerConnection
    from bokeh.server.views.ws import WSHandler
    from tornado.httputil import HTTPHeaders, HTTPServerRequest

TOKEN = "token"  # noqa: S105
HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.-]+))(:\d+)?", re.ASCII)
"""What stands in a Host header; it is put into another header as it is."""
PROXY_SCHEME = "X-Forwarded-Proto"
"""The header in which a proxy says by which protocol a browser speaks to it."""
GOING_AWAY = 1001
"""What a WebSocket says when its server ends."""
GOODBYE_S = 1.0
"""Whoever does not answer by then is left alone."""
UNKNOWN_VISITOR = "the token is missing or wrong: use the whole link, with ?token=..., as printed"
"""The refusal after which a user may try again."""
FRAME = "iframe"
FRAMES = "http://127.0.0.1:* http://localhost:* https://localhost:*"
"""Notebooks of this machine may show it in a frame."""
nonce: ContextVar[str] = ContextVar("nonce", default="")
"""What a script in the page that is being made must bear to be run."""
may_act: ContextVar[bool] = ContextVar("may_act", default=False)
"""Whoever sent the request that is being answered has the token of operators."""


class Guard:
    """Decides by a request's headers alone. Every answer it gives is final.

    Args:
        token: Whoever has it may look.
        port: Part of the name of the cookie: the browser sends it to every port.
        prefix: Where the dashboard begins, as ``/scaler``.
        hosts: Names besides IP addresses and ``localhost`` by which a browser may call it.
        acting_token: Whoever has it may look, and act as an operator; None: nobody acts.

    """

    def __init__(
        self,
        token: str,
        port: int,
        prefix: str,
        hosts: Sequence[str],
        acting_token: str | None = None,
    ) -> None:
        self._token = token
        self._acting_token = acting_token
        self.cookie = f"scaler_dashboard_{port}"
        self._prefix = prefix
        self._hosts = frozenset(host.lower() for host in hosts)

    def refusal(self, request: HTTPServerRequest) -> str:
        """Return why it is not to be answered; empty: it is."""
        # A page of another site could make its own name mean this address.
        if not self._is_ours(name_in(request.host)):
            return "this is not its name: call it by its IP address, or name it in --hosts"
        origin = request.headers.get("Origin")
        is_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        if (origin is not None or is_socket) and not _is_own(origin or "", request):
            return "it answers no other page than its own"
        if request.path.startswith(f"{self._prefix}/static/"):
            return ""
        if not (self.is_token(_query(request)) or self.is_token(self._cookie(request))):
            return UNKNOWN_VISITOR
        return ""

    def is_token(self, given: str) -> bool:
        """Return True if this is a token with which one may look."""
        return self._is_acting(given) or _are_equal(given, self._token)

    def may_act(self, request: HTTPServerRequest) -> bool:
        """Return True if it brings the token of operators: in its link, or else as a cookie."""
        given = _query(request)
        return self._is_acting(given if self.is_token(given) else self._cookie(request))

    def _is_acting(self, given: str) -> bool:
        return self._acting_token is not None and _are_equal(given, self._acting_token)

    def let_in(self, handler: RequestHandler, token: str) -> None:
        """Let the browser bring the token from now on, and show it to no script."""
        # Strict would keep it from the page to which a link in a mail leads. Whatever else the
        # proxy serves is not to get it.
        handler.set_cookie(
            self.cookie,
            token,
            httponly=True,
            samesite="Lax",
            path=self._prefix or "/",
            secure=_is_encrypted(handler.request),
        )

    def _cookie(self, request: HTTPServerRequest) -> str:
        morsel = request.cookies.get(self.cookie)
        return morsel.value if morsel is not None else ""

    def _is_ours(self, name: str) -> bool:
        if name == "localhost" or name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _are_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def name_in(host: str) -> str:
    """Return the name or address in a Host header, without its port; empty if that is none."""
    found = HOST.fullmatch(host)
    return (found["address"] or found["name"]).lower() if found else ""


def _is_own(origin: str, request: HTTPServerRequest) -> bool:
    """Return True if the page that asks came from here: from this host, port and protocol.

    Where nothing says that the browser speaks HTTPS, a proxy may do so, and say nothing.
    """
    page = urlsplit(origin)
    schemes = {"https"} if _is_encrypted(request) else {"http", "https"}
    return page.scheme in schemes and page.netloc.lower() == request.host.lower()


def _is_encrypted(request: HTTPServerRequest) -> bool:
    """Return True if the browser speaks HTTPS, to this server or to a proxy that says so.

    Anybody may say so: it only keeps more from a browser. No page of others can make one say it.
    """
    said = request.headers.get(PROXY_SCHEME, "").partition(",")[0]
    return "https" in (request.protocol, said.strip().lower())


def own_path(request: HTTPServerRequest) -> str:
    """Return where a request leads on this server."""
    # Else "//" would begin the name of another host.
    return "/" + (request.uri or "").lstrip("/\\")


def hide_token(request: HTTPServerRequest) -> None:
    """Take the token out of the address of a request, which is logged if there is an error.

    It stays in the request's arguments.
    """
    parts = request.query.split("&")
    kept = "&".join(one for one in parts if unquote_plus(one.partition("=")[0]) != TOKEN)
    request.query = kept
    request.uri = f"{request.path}?{kept}" if kept else request.path


def _query(request: HTTPServerRequest) -> str:
    return request.query_arguments.get(TOKEN, [b""])[-1].decode(errors="replace")


class GuardedTornado(BokehTornado):
    """Answers only what its guard lets through; a token in a link becomes a cookie."""

    def __init__(
        self, *args: Any, guard: Guard, sign_in: type[RequestHandler], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._guard = guard
        self._sign_in = sign_in
        """Asks for the token where it is missing; made with the guard and the ``reason``."""
        self._tabs: dict[ServerConnection, WSHandler] = {}
        self._no_tabs = asyncio.Event()
        self._is_over = False
        self.add_transform(Headers)

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """Return what answers a request, as Tornado asks."""
        nonce.set(secrets.token_urlsafe(16))
        hide_token(request)
        guard = self._guard
        may_act.set(guard.may_act(request))
        if self._is_over:
            return self.get_handler_delegate(request, Gone)
        refusal = guard.refusal(request)
        is_page = request.method == "GET" and "Upgrade" not in request.headers
        if refusal == UNKNOWN_VISITOR and (is_page or request.method == "POST"):
            asked = {"guard": guard, "reason": refusal}
            return self.get_handler_delegate(request, self._sign_in, asked)
        if refusal:
            return self.get_handler_delegate(request, Refuse, {"reason": refusal})
        if is_page and guard.is_token(_query(request)) and not is_framed(request):
            return self.get_handler_delegate(request, TakeToken, {"guard": guard})
        return super().find_handler(request, **kwargs)

    def new_connection(
        self, protocol: Any, socket: WSHandler, application_context: Any, session: Any
    ) -> ServerConnection:
        """Take in a tab, as Bokeh asks."""
        connection = super().new_connection(protocol, socket, application_context, session)
        self._tabs[connection] = socket
        return connection

    def client_lost(self, connection: ServerConnection) -> None:
        """Let a tab go, as Bokeh asks."""
        super().client_lost(connection)
        socket = self._tabs.pop(connection, None)
        if socket is not None:
            # Its end would be noticed a second time, and Bokeh fail over that.
            socket.connection = None
        if not self._tabs:
            self._no_tabs.set()

    async def close_tabs(self) -> None:
        """Let all tabs go; those that do not answer are waited for a moment.

        From now on nothing is answered by connections that are still open: a tab that was let go
        would take this dashboard for one that is back, and begin anew with it.
        """
        self._is_over = True
        self._no_tabs.clear()
        for socket in self._tabs.values():
            socket.close(GOING_AWAY)
        if self._tabs:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._no_tabs.wait(), GOODBYE_S)


def is_framed(request: HTTPServerRequest) -> bool:
    """Return True if the page is to stand in another: browsers keep cookies from it there."""
    return request.headers.get("Sec-Fetch-Dest") == FRAME


class Refuse(RequestHandler):
    """Answers 403, and why."""

    def initialize(self, reason: str) -> None:
        self._why = reason

    def prepare(self) -> None:
        self.set_status(HTTPStatus.FORBIDDEN)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"403: {self._why}\n")


class Gone(RequestHandler):
    """Answers 503, and ends the connection."""

    def prepare(self) -> None:
        self.set_status(HTTPStatus.SERVICE_UNAVAILABLE)
        self.set_header("Connection", "close")
        self.finish()


class TakeToken(RequestHandler):
    """Makes the token of a link a cookie, so that it does not stay where others see it."""

    def initialize(self, guard: Guard) -> None:
        self._guard = guard

    def get(self, *_: str) -> None:
        self._guard.let_in(self, _query(self.request))
        self.redirect(own_path(self.request))


class Headers(OutputTransform):
    """Adds to every answer what keeps a browser from doing more than it has to."""

    def __init__(self, request: HTTPServerRequest) -> None:
        host = request.host if name_in(request.host) else "localhost"
        # A page around it could have its user press a button unseen.
        frames = "'none'" if may_act.get() else f"'self' {FRAMES}"
        self._policy = "; ".join(
            (
                "default-src 'none'",
                f"script-src 'self' 'nonce-{nonce.get()}'",
                "style-src 'self' 'unsafe-inline'",
                "img-src 'self' data: blob:",
                "font-src 'self' data:",
                f"connect-src 'self' ws://{host} wss://{host}",
                f"frame-ancestors {frames}",
                "form-action 'self'",
                "base-uri 'none'",
            )
        )

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Return the beginning of an answer, with these headers."""
        headers["Content-Security-Policy"] = self._policy
        headers["X-Content-Type-Options"] = "nosniff"
        # With less, the form of the settings would come from nowhere.
        headers["Referrer-Policy"] = "same-origin"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        if headers.get("Content-Type", "").startswith("text/html"):
            headers["Cache-Control"] = "no-store"
            # Which of light and dark the browser's user wants, from the first request on.
            headers["Accept-CH"] = headers["Critical-CH"] = "Sec-CH-Prefers-Color-Scheme"
        return status_code, headers, chunk
