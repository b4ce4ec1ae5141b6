"""Curves of all machines: of each while they are few, else from the least to the most of them."""

from __future__ import annotations

from math import isnan, nan
from statistics import median
from typing import TYPE_CHECKING, Any

from bokeh.core.properties import value
from bokeh.models.tools import HoverTool

from scaler_monitoring.dashboard.timeline import LABEL_CHARS_MAX, Timeline, curves_of, rows_of
from scaler_monitoring.figures import UNITS
from scaler_monitoring.texts import short
from scaler_monitoring.theme import SERIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from bokeh.models.ranges import Range

    from scaler_monitoring.dashboard.tab_view import View
    from scaler_monitoring.model import Model
    from scaler_monitoring.samples import Sample, Samples

FEW = 4
"""So many curves are told apart where they cross."""
ABOUT = f"If there are more than {FEW}, from the one with least to the one with most of it."
_BAND = ("median", "least", "most", "least_of", "most_of")


class Spread:
    """A curve for each of a few, or a band with the median for many.

    Args:
        view: The tab.
        column: Which column of the samples it is.
        unit: "bytes", or another one of :data:`figures.UNITS`.
        x_range: That of another figure, to be moved with it.

    """

    def __init__(self, view: View, column: int, unit: str, x_range: Range | None = None) -> None:
        self._column = column
        self._form = UNITS[unit]
        self._lines = [f"line{place}" for place in range(FEW)]
        self._timeline = Timeline((*self._lines, *_BAND), view.settings.window_s)
        self._shown: tuple[str, ...] | None = None
        """What curves are called; none: there is a band."""
        source = self._timeline.source
        series = {name: name for name in (*self._lines, "median")}
        self.root = curves_of(source, series, unit, view, x_range)
        self.root.varea(
            "time", "least", "most", source=source, fill_color=SERIES[FEW], fill_alpha=0.3,
            legend_label="least to most",
        )  # fmt: skip
        self.root.legend.ncols = FEW
        self._items: list[Any] = list(self.root.legend[0].items)
        self._hover = next(tool for tool in self.root.tools if isinstance(tool, HoverTool))

    def update(self, model: Model, samples: Samples, name_of: Callable[[bytes], str]) -> None:
        """Draw what was sampled since; ``name_of`` is what curves are called."""
        if not samples.taken:
            return
        if len(samples.taken[-1].keys) > FEW:
            self._timeline.update(model, samples.taken, lambda one: self._band(one, name_of))
            self._show(())
            return
        keys = tuple(sorted(samples.taken[-1].keys, key=name_of))
        places = [*keys, *[None] * (FEW - len(keys))]
        line = rows_of(places, self._column)
        nothing = (nan, nan, nan, "", "")
        self._timeline.update(model, samples.taken, lambda one: (*line(one), *nothing), keys)
        self._show(tuple(short(name_of(key)) for key in keys))

    def _band(self, sample: Sample, name_of: Callable[[bytes], str]) -> list[float | str]:
        pairs = zip(sample.columns[self._column], sample.keys, strict=True)
        known = sorted(pair for pair in pairs if not isnan(pair[0]))
        if not known:
            return [nan] * (FEW + 3) + ["", ""]
        (least, first), (most, last) = known[0], known[-1]
        names = short(name_of(first)), short(name_of(last))
        return [*[nan] * FEW, median(size for size, _ in known), least, most, *names]

    def _show(self, names: tuple[str, ...]) -> None:
        if names == self._shown:
            return
        self._shown = names
        *lines, middle, band = self._items
        for item, name in zip(lines, [*names, *[""] * FEW], strict=False):
            item.visible = bool(name)
            item.label = value(short(name, LABEL_CHARS_MAX))
        middle.visible = band.visible = not names
        form = f"{{{self._form}}}"
        told = [
            ("most", f"@most{form} (@most_of)"),
            ("median", f"@median{form}"),
            ("least", f"@least{form} (@least_of)"),
        ]
        if names:
            told = [(name, f"@line{place}{form}") for place, name in enumerate(names)]
        self._hover.renderers = list((lines[0] if names else middle).renderers)
        self._hover.tooltips = [("at", "@time{%H:%M:%S}"), *told]
