"""The page: one file that opens anywhere, without a server or a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bokeh.embed import components
from bokeh.resources import Resources
from jinja2 import Environment

from benchmarks.page import tables
from benchmarks.page.charts import charts
from benchmarks.page.data import TITLES
from benchmarks.report import cell, number

if TYPE_CHECKING:
    from benchmarks.page.data import Data


def render(data: Data, past: list[dict[str, Any]]) -> str:
    """Return the page of a report, with the history of earlier ones."""
    drawn = list(charts(data, past))
    script, divs = components([chart.figure for chart in drawn]) if drawn else ("", [])
    rivals = [peer for peer in data.peers if peer != "ours"]
    heads, _, *rows = (_cells(line) for line in tables.overview(data, tables.task_peers(data)))
    template = Environment(autoescape=True).from_string(
        Path(__file__).with_name("page.html").read_text()
    )
    return template.render(
        data=data,
        bokeh=Resources(mode="inline", components=["bokeh"]).render_js(),
        script=script,
        divs=divs,
        charts=drawn,
        heads=heads,
        overview=rows,
        provenance=_plain(tables.provenance(data)),
        losses=[_plain(line) for line in tables.losses(data)],
        notes=[_plain(line) for line in tables.notes(data)],
        rivals=rivals,
        ratios=_ratios(data, rivals),
        figures=list(_figures(data)),
        titles=TITLES,
        number=number,
    )


def _cells(line: str) -> list[str]:
    return [text.strip() for text in line.strip("|").split("|")]


def _plain(line: str) -> str:
    return line.removeprefix("- ").replace("`", "").replace("**", "")


def _ratios(data: Data, rivals: list[str]) -> dict[str, list[float | None]]:
    """Return how many times as good ours is, by scenario, for each peer."""
    found = {}
    for name in data.scenarios:
        metric = data.metrics(name)[0]
        cells = [data.ratio(name, metric, peer) for peer in rivals]
        if any(ratio is not None for ratio in cells):
            found[f"{name}, {metric}"] = cells
    return found


def _figures(data: Data) -> Any:
    for name in data.scenarios:
        for metric in data.metrics(name):
            found = [data.figure(name, peer, metric) for peer in data.peers]
            if any(found):
                yield [name, metric, data.unit(name, metric), *(cell(one, None) for one in found)]
