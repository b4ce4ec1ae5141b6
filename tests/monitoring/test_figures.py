"""Figures that pages have in common: their data, their colours, and nothing to be evaluated."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
from bokeh.embed import json_item
from bokeh.models import ColumnDataSource, FactorRange

from scaler_monitoring.figures import (
    STATES,
    TASK_STREAM_COLUMNS,
    UNITS,
    axis_ms,
    curves,
    stream_columns,
    task_stream,
)
from scaler_monitoring.theme import DARK, LIGHT, PATTERNS, SERIES, Look, look_of
from scaler_monitoring.work import FAILED, Work

HOSTILE = "<img src=x onerror=alert(1)>"


def columns_of(*works):
    return stream_columns(works, lambda worker: worker.decode(), float)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(c * weight for c, weight in zip(linear, (0.2126, 0.7152, 0.0722)))


def contrast(one, other):
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


# -- colours -----------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_can_be_read(theme):
    """Text has enough contrast on both backgrounds of a theme, also the less important."""
    for text in (theme.text, theme.muted, theme.accent):
        assert contrast(text, theme.background) >= 4.5
        assert contrast(text, theme.panel) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colours_of_functions_are_seen(theme):
    """The colours of functions stand out from the background, light or dark."""
    assert all(contrast(colour, theme.panel) >= 2.2 for colour in SERIES)


def test_the_look_of_a_function_follows_from_its_name():
    """A function looks the same in each process and for ever, even if its name is not Unicode."""
    assert look_of("price") == Look("#ee7733", "+")
    assert look_of("load") == Look("#8c6d31", "\\")
    assert look_of("\ud800").colour in SERIES


def test_looks_are_spread_over_colours_and_patterns():
    """Functions use all colours and patterns, and each pattern has its CSS."""
    looks = {look_of(f"function {number}") for number in range(1000)}

    assert len(looks) == len(SERIES) * len(PATTERNS)
    assert all(one.colour in one.css for one in looks)
    assert len({one.css for one in looks}) == len(looks)


def test_patterns_tell_states_apart():
    """States have other patterns than each other and than functions, for who sees no colours."""
    patterns = [*PATTERNS, *(pattern for pattern, _ in STATES.values() if pattern != "pattern")]

    assert all(one != other for one, other in combinations(patterns, 2))


# -- the task stream ---------------------------------------------------------------------------


def test_columns_of_the_task_stream():
    """The task stream has a row for each piece of work, in readable units and axis times."""
    columns = columns_of(
        Work(b"w", 10.0, 12.0, 1, 5, 4, "f"),
        Work(b"w", 12.0, 12.5, 1, 9, 1, "g", 2, FAILED, "exception", "ValueError"),
    )

    assert tuple(columns) == TASK_STREAM_COLUMNS
    assert columns["left"] == [axis_ms(10.0), axis_ms(12.0)]
    assert columns["right"][0] - columns["left"][0] == 2000.0
    assert columns["took"] == ["2.0s, 500ms each", "500ms"]
    assert columns["function"] == ["f", "g"]
    assert columns["tasks"] == [4, 1]
    assert columns["state"] == ["done", "failed"]
    assert columns["attempt"] == [1, 2]
    assert columns["why"] == ["-", "ValueError"]


def test_what_no_worker_had_is_in_no_row():
    """Work that no worker had has no rectangle."""
    assert columns_of(Work(b"", 1.0, 1.0, 1, 1, 1, "f", state=FAILED))["worker"] == []


def test_names_are_one_short_line():
    """A name is shown as one short line, and a missing one as nameless."""
    columns = columns_of(*(Work(b"w", 0.0, 1.0, 1, 1, 1, name) for name in ("a\nb", "x" * 500, "")))

    assert columns["function"] == ["a?b", "x" * 119 + "…", "(no name)"]


def test_the_first_worker_is_on_top():
    """The first worker stands on top, though Bokeh counts rows from below."""
    rows = task_stream(ColumnDataSource(columns_of()), ["a", "b"], LIGHT).y_range

    assert isinstance(rows, FactorRange)
    assert rows.factors == ["b", "a"]


def figures():
    work = Work(b"w", 0.0, 1.0, 1, 1, 1, HOSTILE)
    yield task_stream(ColumnDataSource(columns_of(work)), ["w"], DARK)
    for unit in UNITS:
        source = ColumnDataSource({"time": [0.0], "a": [1.0], "b": [2.0]})
        yield curves(source, {"a": "of a", "b": "of b"}, unit, LIGHT, SERIES)


def test_nothing_is_evaluated_by_a_browser():
    """No figure has code for the browser to evaluate: a page may forbid it."""
    for shown in figures():
        names = {type(one).__name__ for one in shown.references()}

        assert not {name for name in names if "JS" in name or "Template" in name}
        assert shown.toolbar.logo is None
        assert HOSTILE not in str([tool.tooltips for tool in shown.hover])
        json.dumps(json_item(shown))
