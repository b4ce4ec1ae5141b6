"""What all pages have in common: one tab of a browser, kept up to date."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from bokeh.layouts import column

from scaler_monitoring.dashboard import guard
from scaler_monitoring.dashboard.address import Address
from scaler_monitoring.dashboard.pace import BUSY_S, is_busy
from scaler_monitoring.dashboard.settings import COOKIE, SCHEME_HEADER, settings_of
from scaler_monitoring.dashboard.slider import SPEEDS, Slider
from scaler_monitoring.dashboard.status import Status
from scaler_monitoring.dashboard.tab_view import View
from scaler_monitoring.dashboard.template import LINKS, links, template, variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bokeh.document import Document
    from bokeh.models.ui.ui_element import UIElement

    from scaler_monitoring.dashboard.watch import Watch
    from scaler_monitoring.model import Model

MOVED_S = 0.2
"""How often it is looked whether a replay has come to another moment."""


class Page(ABC):
    """One page in one tab. What it shows is copied from the model, as often as that changes."""

    path: ClassVar[str]
    """Where it is; :data:`template.LINKS` has its name."""
    is_quick: ClassVar[bool] = False
    """It shows single events, not only what each snapshot counts."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.root: UIElement = self.build()

    @abstractmethod
    def build(self) -> UIElement:
        """Return what Bokeh shows, empty as yet."""

    @abstractmethod
    def update(self, model: Model) -> None:
        """Show what is known now; there is a snapshot."""

    def restore(self) -> None:  # noqa: B027
        """Show what the address says: the page was opened, or its user went back or forward."""


def open_page(
    document: Document,
    kind: type[Page],
    watch: Watch,
    prefix: str,
    interval_s: float,
    rows_max: int,
) -> None:
    """Make a page for a browser that has asked for it."""
    # Any: Bokeh's types leave out the request.
    context: Any = document.session_context
    request = context.request
    settings = settings_of(request.cookies.get(COOKIE, ""))
    theme = settings.theme(str(request.headers.get(SCHEME_HEADER, "")))
    # Outside of a frame it has become a cookie.
    token = request.arguments.get(guard.TOKEN, [b""])[-1].decode(errors="replace")
    hrefs = links(prefix, token)
    address, may_act = Address(_query(request.arguments)), guard.may_act.get()
    view = View(watch, theme, settings, hrefs, rows_max, address, may_act)
    tab = _Tab(view, kind)
    document.title = f"{dict(LINKS)[kind.path]} · scaler"
    document.template = template("page.html")
    # The page does both itself: Bokeh would ask for a session that is gone.
    document.config.update(reconnect_session=False, notify_connection_status=False)
    document.template_variables.update(
        variables(hrefs, kind.path, theme, guard.nonce.get()),
        may_act=may_act,
        slider=tab.slider,
        speeds=SPEEDS[1:],
    )
    document.add_root(tab.root)
    if tab.slider is not None:
        interval_s = min(interval_s, MOVED_S)
    # Once the browser has its document, and not before.
    document.add_next_tick_callback(lambda: in_one(document, tab.update))
    document.add_periodic_callback(lambda: in_one(document, tab.update), int(interval_s * 1000))


class _Tab:
    """What a page has around it, and when it is brought up to date."""

    def __init__(self, view: View, kind: type[Page]) -> None:
        self._view = view
        self._kind = kind
        self.slider = Slider.over(view)
        self._status, self._page = Status(view), kind(view)
        self._page.root.visible = False
        self._shown: tuple[object, ...] = ()
        self._shown_at = -inf
        around = [self.slider.root] if self.slider is not None else []
        self.root = column(
            self._status.root, self._page.root, view.address.root, *around,
            sizing_mode="stretch_width",
        )  # fmt: skip
        view.address.on_visit(self._visit)

    def update(self) -> None:
        """Show what is new."""
        if self.slider is not None and not self.slider.has_come():
            if self._view.model.snapshot is None:
                self._status.update()
            return
        watch = self._view.watch
        model, now = watch.model, clock()
        if watch.is_live and now - self._shown_at < BUSY_S and is_busy(model):
            return
        self._status.update()
        if model.snapshot is None:
            return
        heard = model.heard_at if self._kind.is_quick else model.snapshot.seq
        state = model, model.restarts, heard
        if state != self._shown:
            self._page.update(model)
            if not self._page.root.visible:
                self._page.restore()
                self._page.root.visible = True
            self._shown, self._shown_at = state, now

    def _visit(self) -> None:
        # Before, there may be no snapshot; once it is shown, it is as the address says.
        if self._page.root.visible:
            self._page.restore()


def _query(arguments: Mapping[str, list[bytes]]) -> str:
    """Return the query of a request without what is secret, or Bokeh's."""
    values = {
        name: value[-1].decode(errors="replace")
        for name, value in arguments.items()
        if name != guard.TOKEN and not name.startswith("bokeh-")
    }
    return urlencode(values, safe=":")


def in_one(document: Document, update: Callable[[], None]) -> None:
    """Let all that changes go to the browser as one message."""
    document.hold("collect")
    try:
        update()
    finally:
        document.unhold()
