"""The web server: a Bokeh application for each page, behind one guard."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.server.server import BaseServer
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop

from scaler_monitoring.dashboard import speedscope_file
from scaler_monitoring.dashboard.acting import ActHandler, Acting
from scaler_monitoring.dashboard.at_once import AtOnce
from scaler_monitoring.dashboard.find import FindHandler
from scaler_monitoring.dashboard.guard import GOODBYE_S, Guard, GuardedTornado
from scaler_monitoring.dashboard.page import open_page
from scaler_monitoring.dashboard.pages import PAGES
from scaler_monitoring.dashboard.settings import COOKIE, SCHEME_HEADER, SettingsHandler
from scaler_monitoring.dashboard.sign_in import SignIn

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from bokeh.document import Document

    from scaler_monitoring.dashboard.page import Page
    from scaler_monitoring.dashboard.watch import Watch

UNUSED_MS = 5000
"""A tab that is closed, or could not connect, costs nothing any more after this."""
BODY_BYTES_MAX = 16_384
"""All that is ever sent to it are the settings, and what an operator wants."""
MESSAGE_BYTES_MAX = 1 << 20
"""Of what a page sends: what was typed, which rows were chosen, how wide its figures are."""
STATISTICS_MS = 3_600_000
"""Bokeh logs its own statistics as often."""


class Dashboard:
    """Serves pages about what a watch knows, at a socket that listens, in the running event loop.

    Args:
        watch: What is shown.
        listener: A TCP socket that listens.
        guard: Who may see it.
        prefix: Where it begins, as ``/scaler``; empty: at the root.
        interval_s: How often pages are brought up to date.
        rows_max: How many tasks are listed.
        tls: With what it speaks HTTPS; None: it speaks HTTP.
        acting: Acts for operators; None: nobody may act.

    """

    def __init__(
        self,
        watch: Watch,
        listener: socket.socket,
        guard: Guard,
        prefix: str = "",
        *,
        interval_s: float,
        rows_max: int,
        tls: ssl.SSLContext | None = None,
        acting: Acting | None = None,
    ) -> None:
        def opener(kind: type[Page]) -> Callable[[Document], None]:
            return lambda document: open_page(document, kind, watch, prefix, interval_s, rows_max)

        applications: dict[str, Any] = {
            kind.path: Application(FunctionHandler(opener(kind))) for kind in PAGES
        }
        patterns: list[Any] = [
            (r"/find", FindHandler, {"watch": watch}),
            (r"/settings", SettingsHandler, {"prefix": prefix, "source": watch.source}),
            (speedscope_file.PATH, speedscope_file.SpeedscopeHandler, {"watch": watch}),
        ]
        if acting is not None:
            patterns.append((r"/act", ActHandler, {"acting": acting}))
        tornado = GuardedTornado(
            applications,
            guard=guard,
            sign_in=SignIn,
            prefix=prefix,
            extra_patterns=patterns,
            secret_key=secrets.token_bytes(32),
            sign_sessions=True,
            use_index=False,
            # The guard has looked at it: before Tornado 6.6, Bokeh would refuse its own pages.
            extra_websocket_origins=["*"],
            include_headers=[SCHEME_HEADER],
            include_cookies=[COOKIE],
            websocket_max_message_size_bytes=MESSAGE_BYTES_MAX,
            unused_session_lifetime_milliseconds=UNUSED_MS,
            check_unused_sessions_milliseconds=UNUSED_MS,
            stats_log_frequency_milliseconds=STATISTICS_MS,
            # Else a page has its own path in it, and is not found behind a proxy.
            absolute_url=None,
        )
        asyncio.get_running_loop().set_default_executor(AtOnce())
        http = HTTPServer(tornado, ssl_options=tls, max_body_size=BODY_BYTES_MAX)
        http.add_socket(listener)
        self._tornado = tornado
        self._http = http
        self._server = BaseServer(IOLoop.current(), tornado, http)
        self._server.start()

    async def close(self) -> None:
        """Answer no more, and let go of all tabs."""
        self._http.stop()
        await self._tornado.close_tabs()
        self._server.stop()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._http.close_all_connections(), GOODBYE_S)
        # Bokeh may be discarding a session: it would warn of being cut off.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left, timeout=GOODBYE_S)
