"""What each user of the dashboard sets for themselves: kept in a cookie of their browser."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from tornado.web import RequestHandler

from scaler_monitoring.dashboard import guard
from scaler_monitoring.dashboard.template import links, template, variables
from scaler_monitoring.theme import DARK, LIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_monitoring.theme import Theme

COOKIE = "scaler_settings"
COOKIE_DAYS = 365
SCHEME_HEADER = "Sec-Ch-Prefers-Color-Scheme"
"""By which a browser says whether its user wants dark pages, if it was asked to; so Tornado spells
it."""
PATH = "/settings"


@dataclass(frozen=True)
class Choice:
    """What there is to choose from: the value and what it is called."""

    title: str
    about: str
    values: dict[str, str]


CHOICES = {
    "window": Choice(
        "Time window",
        "How far curves reach back.",
        {"60": "1 minute", "300": "5 minutes", "600": "10 minutes", "1800": "30 minutes"},
    ),
    "scale": Choice(
        "Memory scale",
        "Of the curves of memory.",
        {"linear": "linear", "log": "logarithmic"},
    ),
    "colours": Choice(
        "Colours",
        "What the system wants, or always the same.",
        {"system": "as the system", "light": "light", "dark": "dark"},
    ),
}


@dataclass(frozen=True)
class Settings:
    """One user's, each a key of the values of :data:`CHOICES`."""

    window: str = "300"
    scale: str = "linear"
    colours: str = "system"

    @property
    def window_s(self) -> float:
        """How far curves reach back."""
        return float(self.window)

    def theme(self, wanted: str) -> Theme:
        """Return the colours of the pages; ``wanted`` is what the browser says of its system."""
        name = wanted.strip('"') if self.colours == "system" else self.colours
        return DARK if name == DARK.name else LIGHT


def settings_of(text: str) -> Settings:
    """Return what a cookie says, as far as it is known; else the defaults."""
    return _changed(Settings(), dict(parse_qsl(text[:1000])))


def _changed(settings: Settings, values: Mapping[str, str]) -> Settings:
    known = {
        name: value for name, value in values.items()
        if name in CHOICES and value in CHOICES[name].values
    }  # fmt: skip
    return replace(settings, **known)


class SettingsHandler(RequestHandler):
    """Shows the settings as a form, and keeps what is chosen."""

    def initialize(self, prefix: str, source: str) -> None:
        self._prefix = prefix
        self._source = source

    def get(self) -> None:
        """Answer with the form."""
        settings = settings_of(self.get_cookie(COOKIE, "") or "")
        theme = settings.theme(self.request.headers.get(SCHEME_HEADER, ""))
        hrefs = self._links()
        page = template("settings.html").render(
            **variables(hrefs, PATH, theme, guard.nonce.get()),
            choices=CHOICES,
            settings=asdict(settings),
            source=self._source,
        )
        self.finish(page)

    def post(self) -> None:
        """Keep what was chosen, and show the form again."""
        given = {field.name: self.get_body_argument(field.name, "") for field in fields(Settings)}
        chosen = _changed(settings_of(self.get_cookie(COOKIE, "") or ""), given)
        self.set_cookie(
            COOKIE,
            urlencode(asdict(chosen)),
            expires_days=COOKIE_DAYS,
            httponly=True,
            samesite="Lax",
            path=self._prefix or "/",
        )
        self.redirect(self._links()[PATH])

    def _links(self) -> dict[str, str]:
        return links(self._prefix, self.get_query_argument(guard.TOKEN, ""))
