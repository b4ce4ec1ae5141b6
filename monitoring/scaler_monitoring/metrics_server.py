"""The web server of metrics: one page, for whoever shows its token."""

from __future__ import annotations

import hmac
import socket
import threading
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from scaler_cluster.errors import ConfigError
from scaler_cluster.process.tls import tls_context

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


@contextmanager
def serving(
    app: WSGIApplication, host: str, port: int, tls: tuple[str, str] | None, token: str | None
) -> Iterator[int]:
    """Answer at an address, in threads of its own; yield the port.

    ``tls`` are the files of a certificate and its key; with a ``token``, only whoever shows that is
    answered. Raises ConfigError.
    """
    context = tls_context(tls) if tls is not None else None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        kind = _Server6 if family == socket.AF_INET6 else _Server
        server = kind((host, port), _Handler)
    except OSError as error:
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {error.strerror}; choose another with "
            "--address and --port"
        ) from None
    server.set_app(_guarded(app, token) if token else app)
    if context is not None:
        # The handshake is the business of the thread that answers, and not of the one that accepts.
        listener = server.socket
        server.socket = context.wrap_socket(
            listener, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread of its own: one that is slow delays no other."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of a peer that speaks no HTTP, or leaves."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Logs no requests, and waits for no peer for ever."""

    timeout = 10.0

    def log_message(self, *_: object) -> None:
        """Say nothing: Prometheus asks every few seconds."""


def _guarded(app: WSGIApplication, token: str) -> WSGIApplication:
    """Return an application that answers 401 to whoever does not show a token."""
    wanted = f"Bearer {token}".encode()

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        shown = str(environ.get("HTTP_AUTHORIZATION", "")).encode("utf-8", "surrogateescape")
        if hmac.compare_digest(shown, wanted):
            return app(environ, start)
        start("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
        return [b"401: metrics ask for a token\n"]

    return answer
