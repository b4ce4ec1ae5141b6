"""At a glance: is it busy, what does it do, what is stuck or failing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bokeh.layouts import column

from scaler_monitoring import view as words
from scaler_monitoring.dashboard.page import Page
from scaler_monitoring.dashboard.parts import Tile, Tiles

if TYPE_CHECKING:
    from bokeh.models.ui.ui_element import UIElement

    from scaler_monitoring.model import Model


class Overview(Page):
    """The first page."""

    path = "/"

    def build(self) -> UIElement:
        """Return its parts."""
        self._tiles = Tiles(self.view.theme)
        return column(self._tiles.root, sizing_mode="stretch_width")

    def update(self, model: Model) -> None:
        """Show what is known now."""
        assert model.snapshot is not None
        tasks = model.snapshot.tasks
        self._tiles.update(
            [Tile(name, words.whole(getattr(tasks, name))) for name in words.TASK_LINES]
        )
