"""One thing alone in the place of the list that it is from: which one stands in the address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bokeh.layouts import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models.ui.ui_element import UIElement

    from scaler_monitoring.dashboard.tab_view import View


class Opened:
    """Shows a list, or what the address names instead.

    Args:
        view: The tab.
        name: What it is called in the address.
        listed: What is shown while nothing is open.
        alone: What is shown of what is open.

    """

    def __init__(
        self, view: View, name: str, listed: Sequence[UIElement], alone: Sequence[UIElement]
    ) -> None:
        self._view = view
        self._name = name
        self._list = column(*listed, sizing_mode="stretch_width")
        self._one = column(*alone, sizing_mode="stretch_width", visible=False)
        self.key = ""
        """What is open; empty: nothing is."""

    @property
    def roots(self) -> tuple[UIElement, UIElement]:
        """Return the list, and what is shown instead."""
        return self._list, self._one

    def restore(self) -> None:
        """Show what the address says."""
        self.key = self._view.address.get(self._name)
        is_open = bool(self.key)
        if self._one.visible is not is_open:
            self._one.visible = is_open
            self._list.visible = not is_open
