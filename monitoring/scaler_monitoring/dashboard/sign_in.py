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
"""A wrong token is answered after this: a user who mistyped waits a moment, a program that tries
all of them for ever."""
WRONG = "That is not the token of this dashboard."


class SignIn(RequestHandler):
    """Asks for the token with a page of status 403, and goes on to what was asked for."""

    def initialize(self, guard: Guard, reason: str) -> None:
        self._guard = guard
        self._reason = reason

    def get(self, *_: str) -> None:
        self._ask(self._reason)

    async def post(self, *_: str) -> None:
        token = token_in(self.get_body_argument(guards.TOKEN, ""))
        if not self._guard.is_token(token):
            await asyncio.sleep(WRONG_S)
            self._ask(WRONG)
            return
        self._guard.let_in(self, token)
        self.redirect(guards.own_path(self.request), status=HTTPStatus.SEE_OTHER)

    def _ask(self, reason: str) -> None:
        settings = settings_of(self.get_cookie(COOKIE, "") or "")
        theme = settings.theme(self.request.headers.get(SCHEME_HEADER, ""))
        self.set_status(HTTPStatus.FORBIDDEN)
        self.finish(
            template("sign_in.html").render(
                links=[], name="Token", theme=theme, nonce=guards.nonce.get(), reason=reason
            )
        )


def token_in(text: str) -> str:
    """Return the token in what was pasted: it may be the whole link."""
    found = parse_qs(urlsplit(text.strip()).query).get(guards.TOKEN)
    return found[-1] if found else text.strip()
