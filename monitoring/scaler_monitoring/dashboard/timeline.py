"""Curves of the last minutes: each point is sent to the browser once."""

from __future__ import annotations

from itertools import takewhile
from math import inf, isnan, nan
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bokeh.core.properties import value
from bokeh.models.ranges import DataRange1d
from bokeh.models.sources import ColumnDataSource
from bokeh.models.tickers import LogTicker
from bokeh.models.tools import HoverTool

from scaler_monitoring.dashboard.pace import is_busy
from scaler_monitoring.figures import UNITS, axis_ms, curves
from scaler_monitoring.texts import short
from scaler_monitoring.theme import SERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from bokeh.models.ranges import Range
    from bokeh.plotting import figure

    from scaler_monitoring.dashboard.tab_view import View
    from scaler_monitoring.model import Model
    from scaler_monitoring.samples import Sample, Samples

LINES = len(SERIES)
"""How many lines a figure has at most."""
LARGER = 1.25
"""Another one takes the place of a line only if it is so much larger: else lines would come and go
with every breath."""
STEPS = 100
STEP_S_MAX = 5.0
"""Curves move on when there is a hundredth of their window to add, or after so long, as they do
while this machine is busy: each time a browser draws them anew."""
MARGIN = (0, 5, 0, 5)
"""Of figures, as texts and tables have it."""
LEGEND_COLUMNS = 3
"""Further names stand below, as Bokeh does not look how wide a figure is."""
LABEL_CHARS_MAX = 20
"""Of a name in a legend."""


class Moment(Protocol):
    """What is known of one moment."""

    @property
    def clock(self) -> float:
        """Return when that was, by the scheduler's clock."""


T = TypeVar("T", bound=Moment)


class Timeline:
    """What a figure draws: columns with a row for each moment of the window."""

    def __init__(self, fields: Sequence[str], window_s: float) -> None:
        self.source = ColumnDataSource({name: [] for name in ("time", *fields)})
        self._window_s = window_s
        self._step_s = min(window_s / STEPS, STEP_S_MAX) if window_s < inf else 0.0
        self._of: object = None
        self._last = -inf
        """When the newest point was taken."""

    def update(
        self,
        model: Model,
        taken: Sequence[T],
        row: Callable[[T], Iterable[float | str | None]],
        of: Hashable = None,
    ) -> None:
        """Add what is new; ``taken`` is in the order of time, ``row`` is in that of the fields.

        If ``of``, what all of it is about, is not what it was, another scheduler speaks, or it is
        another model, all is drawn anew.
        """
        assert model.snapshot is not None
        since = model.snapshot.clock - self._window_s
        shown = list(takewhile(lambda one: one.clock >= since, reversed(taken)))
        is_other = self._of != (model, model.run, of)
        last = -inf if is_other else self._last
        new = list(takewhile(lambda one: one.clock > last, shown))[::-1]
        step_s = STEP_S_MAX if is_busy(model) else self._step_s
        if not is_other and (not new or new[-1].clock - last < step_s):
            return
        self._of = model, model.run, of
        rows = [
            (axis_ms(model.time_of(one.clock)), *(nan if x is None else x for x in row(one)))
            for one in new
        ]
        names = list(self.source.data)
        columns = map(list, zip(*rows, strict=True)) if rows else [[] for _ in names]
        data: dict[str, Any] = dict(zip(names, columns, strict=True))
        if is_other:
            self.source.data = data
        else:
            self.source.stream(data, rollover=len(shown))
        self._last = new[-1].clock if new else -inf


def curves_of(
    source: ColumnDataSource,
    series: Mapping[str, str],
    unit: str,
    view: View,
    x_range: Range | None = None,
) -> figure:
    """Return curves in a unit; they move with another figure if they have its ``x_range``."""
    options: dict[str, Any] = {"margin": MARGIN}
    if x_range is not None:
        options["x_range"] = x_range
    if unit == "bytes":
        return memory_curves(source, series, view, **options)
    return curves(source, series, unit, view.theme, SERIES, **options)


def memory_curves(
    source: ColumnDataSource, series: Mapping[str, str], view: View, **options: Any
) -> figure:
    """Return curves of bytes, on the scale that the user has set."""
    scale = view.settings.scale
    options |= {"y_axis_type": scale, "margin": MARGIN}
    page = curves(source, series, "bytes", view.theme, SERIES, **options)
    if scale == "log":
        # There is no nought on it.
        page.y_range = DataRange1d()
        page.yaxis.ticker = LogTicker(base=2, mantissas=[1])
    return page


class Largest:
    """Curves of those workers, or machines, or stores, that have most of something.

    Who has a line keeps it, and its colour, until another one has much more, or it is gone and its
    place is needed.

    Args:
        view: The tab.
        column: Which column of the samples it is.
        unit: "bytes", or another one of :data:`figures.UNITS`.
        x_range: That of another figure, to be moved with it.

    """

    def __init__(self, view: View, column: int, unit: str, x_range: Range | None = None) -> None:
        self._column = column
        self._form = UNITS[unit]
        self._fields = [f"line{place}" for place in range(LINES)]
        self._timeline = Timeline(self._fields, view.settings.window_s)
        self._places: list[bytes | None] = [None] * LINES
        self._names: list[str] = []
        series = {name: name for name in self._fields}
        self.root = curves_of(self._timeline.source, series, unit, view, x_range)
        self.root.legend.ncols = LEGEND_COLUMNS
        self._items: list[Any] = list(self.root.legend[0].items)
        self._hover = next(tool for tool in self.root.tools if isinstance(tool, HoverTool))

    def update(self, model: Model, samples: Samples, name_of: Callable[[bytes], str]) -> None:
        """Draw what was sampled since; ``name_of`` is what lines are called."""
        if not samples.taken:
            return
        last = samples.taken[-1]
        sizes = dict(zip(last.keys, last.columns[self._column], strict=True))
        self._places = places_of(self._places, sizes, self._is_seen)
        keys = tuple(self._places)
        self._timeline.update(model, samples.taken, rows_of(keys, self._column), keys)
        names = ["" if key is None else short(name_of(key)) for key in keys]
        if names != self._names:
            self._names = names
            self._label()

    def _is_seen(self, place: int) -> bool:
        """Return True if there is still a part of this line in the window."""
        return not all(map(isnan, self._timeline.source.data[self._fields[place]]))

    def _label(self) -> None:
        for item, name in zip(self._items, self._names, strict=True):
            item.label = value(short(name, LABEL_CHARS_MAX))
            item.visible = bool(name)
        form = f"{{{self._form}}}"
        named = [(self._fields[i], name) for i, name in enumerate(self._names) if name]
        self._hover.tooltips = [
            ("at", "@time{%H:%M:%S}"), *((name, f"@{field}{form}") for field, name in named),
        ]  # fmt: skip


def rows_of(keys: Sequence[bytes | None], column: int) -> Callable[[Sample], list[float]]:
    """Return what makes the row of a sample: a figure of each key."""
    known: tuple[bytes, ...] | None = None
    indices: list[int] = []

    def row(sample: Sample) -> list[float]:
        nonlocal known, indices
        # Mostly it is the same tuple as before.
        if sample.keys is not known:
            known = sample.keys
            where = {key: index for index, key in enumerate(known)}
            indices = [-1 if key is None else where.get(key, -1) for key in keys]
        figures = sample.columns[column]
        return [nan if index < 0 else figures[index] for index in indices]

    return row


def places_of(
    before: Sequence[bytes | None],
    sizes: Mapping[bytes, float],
    is_seen: Callable[[int], bool],
) -> list[bytes | None]:
    """Return who has which line, as few as possible being others than before.

    ``is_seen`` says of a place whether there is anything of it in the window.
    """
    places = [
        key if key in sizes or (key is not None and is_seen(place)) else None
        for place, key in enumerate(before)
    ]
    known = {key: 0.0 if isnan(size) else size for key, size in sizes.items()}
    others = sorted((key for key in known if key not in places), key=known.__getitem__)

    def rank(place: int) -> tuple[bool, bool, float]:
        key = places[place]
        return key is not None, key in known, known.get(key, 0.0) if key is not None else 0.0

    while others:
        worst = min(range(len(places)), key=rank)
        is_taken, is_there, size = rank(worst)
        if is_taken and is_there and known[others[-1]] <= size * LARGER:
            break
        places[worst] = others.pop()
    return places
