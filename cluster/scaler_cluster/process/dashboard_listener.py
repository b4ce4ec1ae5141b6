"""Where a dashboard is served: its socket, its token, and the link that leads there."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from scaler_cluster.errors import ConfigError
from scaler_cluster.links.link import as_reached
from scaler_cluster.process.process import host_name
from scaler_cluster.process.tls import tls_context
from scaler_cluster.process.tokens import chosen_token
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import OPERATOR

if TYPE_CHECKING:
    from scaler_cluster.config.sections import WebSettings

TOKEN_BYTES = 24
"""Long enough that a token cannot be guessed, and the link still fits a line."""
TOKEN_VARIABLE = "SCALER_DASHBOARD_TOKEN"  # noqa: S105
"""The environment variable with a token, where none is given."""
BACKLOG = 128
OTHERS = {"0.0.0.0": ("192.0.2.1",), "::": ("2001:db8::1", "192.0.2.1")}  # noqa: S104
"""By what listens at all addresses: those of machines elsewhere, made for documents."""


@dataclass(frozen=True)
class Acting:
    """How operators act by a dashboard."""

    keys: str
    """The file with an operator's key."""
    token: str
    """What a browser must know to act with it."""


class DashboardListener:
    """Listens at ``host`` and ``port`` (0: any free one) before there is a dashboard to answer.

    So the link is known and the port taken before anything is started. A browser that comes too
    early waits.
    ``token`` is what a browser must know, by default that of the environment, else a new one. The
    path of each page begins with ``prefix``, as ``/scaler``; ``tls`` are the files of a certificate
    and its key. With a file of ``operator_keys`` there is a second link, with a token of its own,
    for those who may act with that key. Raises ConfigError if it cannot listen there, or not with
    that.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        prefix: str = "",
        tls: tuple[str, str] | None = None,
        operator_keys: str | None = None,
    ) -> None:
        if tls is not None:
            # What is wrong with it is said before anything is started.
            tls_context(tls)
        self.token = chosen_token(token, TOKEN_VARIABLE) or secrets.token_urlsafe(TOKEN_BYTES)
        self.acting: Acting | None = None
        if operator_keys is not None:
            keys = Credentials.of(OPERATOR, operator_keys).path
            self.acting = Acting(keys, secrets.token_urlsafe(TOKEN_BYTES))
        self._scheme = "http" if tls is None else "https"
        self.host = host.strip("[]")
        self.listener = _listen(self.host, port)
        self.port: int = self.listener.getsockname()[1]
        self.prefix = prefix

    @classmethod
    def of(cls, settings: WebSettings) -> DashboardListener:
        """Return what listens as these settings say."""
        return cls(
            *settings.host_and_port,
            token=settings.token,
            prefix=settings.prefix,
            tls=settings.tls,
            operator_keys=settings.operator_keys,
        )

    @property
    def link(self) -> str:
        """The link for a browser on this machine."""
        return as_reached(self.link_to_tell, "")

    @property
    def said(self) -> str:
        """Where it is, as the terminal says it to whoever started it."""
        near = _near(self.host)
        said = f"dashboard at {as_reached(self.link_to_tell, near)}\n"
        if self.acting is not None:
            said += f"for operators, at {as_reached(self._link_with(self.acting.token), near)}\n"
        if self.host in OTHERS:
            said += (
                "it listens at all addresses of this machine: any of them, its name "
                f"{host_name()}, or here localhost may stand in that link\n"
            )
        return said

    @property
    def link_to_tell(self) -> str:
        """The link for clients anywhere; if it listens at all addresses, they put the host in."""
        return self._link_with(self.token)

    def _link_with(self, token: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self._scheme}://{host}:{self.port}{self.prefix}/?token={quote(token, safe='')}"

    def close(self) -> None:
        """Close the socket; a child that inherited it keeps its copy. Idempotent."""
        self.listener.close()


def _near(host: str) -> str:
    """Return an address to which others have a route, if it listens at all; empty: there is none.

    Of several it is the one by which this machine reaches most others.
    """
    for other in OTHERS.get(host, ()):
        family = socket.AF_INET6 if ":" in other else socket.AF_INET
        # This sends nothing: it only makes the system choose the route, and with it the address.
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((other, 1))
            address = probe.getsockname()[0]
            return f"tcp://[{address}]:1" if ":" in address else f"tcp://{address}:1"
    return ""


def _listen(host: str, port: int) -> socket.socket:
    where = f"cannot serve a dashboard at {host}, port {port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        both = host == "::" and socket.has_dualstack_ipv6()
        family, _, _, _, address = found[0]
        return socket.create_server(
            address[:2],
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=both,
        )
    except socket.gaierror:
        raise ConfigError(f"{where}: there is no host {host!r}; name another address") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"{where}: the port is in use; choose another, or 0") from None
        if error.errno == errno.EADDRNOTAVAIL:
            reason = "that is no address of this machine; name another"
            raise ConfigError(f"{where}: {reason}") from None
        reason = os.strerror(error.errno or 0)
        raise ConfigError(f"{where}: {reason}; choose another port or address") from None
