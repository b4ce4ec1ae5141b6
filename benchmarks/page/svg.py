"""One chart as a picture for the pages of the documentation: what a task costs, by peer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from benchmarks.page.data import TITLES
from benchmarks.report import number

if TYPE_CHECKING:
    from benchmarks.page.data import Data

WIDTH, LEFT, RIGHT, TOP, ROW, BOTTOM = 800, 190, 110, 50, 26, 40
OURS, THEIRS, TEXT, GRID = "#0a5f95", "#9aa5b1", "#1c2126", "#dfe3e8"
FONT = "system-ui, sans-serif"


def chart(data: Data) -> str:
    """Return bars of the microseconds of a task that does nothing, the shortest one first."""
    rates = {peer: data.figure("map_noop", peer, "rate") for peer in data.peers}
    costs = {
        peer: (1e6 / found.median, 1e6 / found.high, 1e6 / found.low)
        for peer, found in rates.items()
        if found
    }
    peers = sorted(costs, key=lambda peer: costs[peer][0])
    least = math.floor(math.log10(min((cost[1] for cost in costs.values()), default=1)))
    most = math.ceil(math.log10(max((cost[2] for cost in costs.values()), default=10)))
    height = TOP + ROW * len(peers) + BOTTOM

    def x(value: float) -> float:
        share = (math.log10(value) - least) / max(most - least, 1)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    root = ET.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        width=f"{WIDTH}",
        height=f"{height}",
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
    )
    ET.SubElement(root, "title").text = "Overhead of a task, by library"
    _rect(root, 0, 0, WIDTH, height, "#fffffe")
    _text(root, 12, 24, "Microseconds that a task costs which does nothing (map)", size=16)
    for exponent in range(least, most + 1):
        at = x(10.0**exponent)
        _rect(root, at, TOP - 8, 1, ROW * len(peers) + 8, GRID)
        _text(root, at, height - BOTTOM + 18, f"{10.0**exponent:g} µs", anchor="middle")
    for place, peer in enumerate(peers):
        median, low, high = costs[peer]
        y = TOP + ROW * place
        _rect(root, LEFT, y, x(median) - LEFT, ROW - 10, OURS if peer == "ours" else THEIRS)
        _rect(root, x(low), y + (ROW - 10) / 2 - 1, max(x(high) - x(low), 1), 2, TEXT)
        _text(root, LEFT - 8, y + 13, TITLES[peer], anchor="end")
        _text(root, x(high) + 8, y + 13, number(median))
    machine = data.raw["machine"]
    about = f"{machine['when'][:10]}, {machine['cores']} cores, log axis, lines: least to most"
    _text(root, 12, height - 6, about, size=11)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _rect(root: ET.Element, x: float, y: float, width: float, height: float, fill: str) -> None:
    sizes = {"x": x, "y": y, "width": round(max(width, 0), 1), "height": height}
    attributes = {name: f"{value:g}" for name, value in sizes.items()}
    ET.SubElement(root, "rect", attributes | {"fill": fill})


def _text(
    root: ET.Element,
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 13,
) -> None:
    attributes = {
        "x": f"{x:g}",
        "y": f"{y:g}",
        "fill": TEXT,
        "font-family": FONT,
        "font-size": str(size),
        "text-anchor": anchor,
    }
    ET.SubElement(root, "text", attributes).text = text
