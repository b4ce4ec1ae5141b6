"""The page for whoever has no token, or a wrong one: it takes a token that is pasted."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from tornado.web import RequestHandler

from scaler_monitoring.dashboard import guard as guards
from scaler_monitoring.dashboard.settings import COOKIE, SCHEME_HEADER, settings_of
from scaler_monitoring.dashboard.template import template

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.guard import Guard

WRONG_S = 1.0
"""A wrong token is answered after this. It is the length of a token that keeps others from guessing
it: links and cookies are answered at once, as those of earlier dashboards often come by."""
WAITING_MAX = 100
"""So many wrong tokens wait for their answer at most: each has a connection as long."""
WRONG = "That is not the token of this dashboard."
TOO_MANY = "Too many wrong tokens were given just now: try again in a moment."


class SignIn(RequestHandler):
    """Asks for the token with a page of status 403, and goes on to what was asked for."""

    _waiting = asyncio.Semaphore(WAITING_MAX)

    def initialize(self, guard: Guard, reason: str) -> None:
        self._guard = guard
        self._reason = reason

    def get(self, *_: str) -> None:
        self._ask(HTTPStatus.FORBIDDEN, self._reason)

    async def post(self, *_: str) -> None:
        # Tornado would log what is no text.
        given = self.request.body_arguments.get(guards.TOKEN, [b""])[-1]
        token = token_in(given.decode(errors="replace"))
        if self._guard.is_token(token):
            self._guard.let_in(self, token)
            self.redirect(guards.own_path(self.request), status=HTTPStatus.SEE_OTHER)
        elif not token:
            # The form of a page whose cookie is gone.
            self._ask(HTTPStatus.FORBIDDEN, self._reason)
        elif self._waiting.locked():
            self._ask(HTTPStatus.TOO_MANY_REQUESTS, TOO_MANY)
        else:
            async with self._waiting:
                await asyncio.sleep(WRONG_S)
            self._ask(HTTPStatus.FORBIDDEN, WRONG)

    def _ask(self, status: HTTPStatus, reason: str) -> None:
        settings = settings_of(self.get_cookie(COOKIE, "") or "")
        theme = settings.theme(self.request.headers.get(SCHEME_HEADER, ""))
        self.set_status(status)
        page = template("sign_in.html").render(
            links=[],
            name="Token",
            theme=theme,
            nonce=guards.nonce.get(),
            reason=reason,
            is_framed=guards.is_framed(self.request),
        )
        self.finish(page)


def token_in(text: str) -> str:
    """Return the token in what was pasted: it may be the whole link."""
    found = parse_qs(urlsplit(text.strip()).query).get(guards.TOKEN)
    return found[-1] if found else text.strip()
