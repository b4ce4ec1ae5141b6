"""Bars that are made of parts: how far something has come. HTML, as that fits into any width."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from scaler_monitoring import view
from scaler_monitoring.dashboard.parts import show, text
from scaler_monitoring.theme import FAILED, SERIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler_monitoring.theme import Theme

BARS_MAX = 12
"""More would be no overview."""
_LINES = "repeating-linear-gradient({angle}, {ink} 0 {width}, transparent {width} {step})"
_DARK, _BRIGHT = "rgb(0 0 0 / .45)", "rgb(255 255 255 / .75)"


def _stripes(angle: str, width: str, step: str, ink: str) -> str:
    return _LINES.format(angle=angle, ink=ink, width=width, step=step)


LOOKS = {
    "done": (SERIES[2], "none"),
    "ended": (SERIES[2], "none"),
    "assigned": (SERIES[0], _stripes("45deg", "2px", "7px", _BRIGHT)),
    "ready": (SERIES[4], _stripes("0deg", "1px", "4px", _DARK)),
    "pending": (SERIES[4], _stripes("0deg", "1px", "4px", _DARK)),
    "waiting": ("transparent", "none"),
    "left": ("transparent", "none"),
    "failed": (FAILED, _stripes("-45deg", "2px", "5px", _BRIGHT)),
    "cancelled": ("var(--muted)", _stripes("90deg", "2px", "5px", _DARK)),
    "recalled": (SERIES[1], _stripes("90deg", "1px", "8px", _DARK)),
}
"""The colour of what is in a state, and its pattern: in both, they differ."""


@dataclass(frozen=True)
class Bar:
    """What a bar is about, and how many are in which state."""

    name: str
    counts: Mapping[str, int]
    """By state, one of LOOKS, in the order in which they are drawn."""
    note: str = ""


class Bars:
    """Bars below each other, with what their patterns mean."""

    def __init__(self, states: Sequence[str], theme: Theme) -> None:
        self._key = "".join(f'<li><i class="{state}"></i>{escape(state)}</li>' for state in states)
        self.root = text("", theme, _CSS)
        self.root.visible = False

    def update(self, bars: Sequence[Bar]) -> None:
        """Show these, or nothing if there is none."""
        html = f'<ul class="key">{self._key}</ul>{"".join(map(_bar, bars))}'
        show(self.root, html)
        if self.root.visible is not bool(bars):
            self.root.visible = bool(bars)


def _bar(bar: Bar) -> str:
    shown = {state: count for state, count in bar.counts.items() if count > 0}
    parts = "".join(
        f'<i class="{state}" style="flex-grow:{count}" title="{view.whole(count)} {state}"></i>'
        for state, count in shown.items()
    )
    said = ", ".join(f"{view.whole(count)} {state}" for state, count in shown.items())
    return (
        f'<div class="row"><span class="name">{escape(bar.name)}</span>'
        f'<span class="note">{escape(bar.note)}</span>'
        f'<div class="bar" role="img" aria-label="{escape(said)}">{parts}</div></div>'
    )


_CSS = """
    .key { list-style: none; margin: 0 0 .4rem; padding: 0; display: flex; flex-wrap: wrap;
        gap: 0 1rem; color: var(--muted); font-size: 12px; }
    .key i { display: inline-block; width: 1.6em; height: .9em; margin-right: .4em;
        vertical-align: -.1em; }
    .row { display: grid; grid-template-columns: minmax(8rem, 18rem) 1fr minmax(9rem, 16rem);
        gap: 0 .7rem; align-items: center; margin-bottom: .3rem; }
    .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; grid-area: 1 / 1; }
    .note { color: var(--muted); font-variant-numeric: tabular-nums; grid-area: 1 / 3; }
    .bar { grid-area: 1 / 2; display: flex; height: 1.1rem; overflow: hidden;
        background: var(--panel); outline: 1px solid var(--muted); outline-offset: -1px;
        border-radius: 3px; }
    .bar i { min-width: 3px; flex-basis: 0; }
    .key i { outline: 1px solid var(--muted); outline-offset: -1px; }
    @media (max-width: 40rem) {
        .row { grid-template-columns: 1fr auto; }
        .note { grid-area: 1 / 2; }
        .bar { grid-area: 2 / 1 / 3 / 3; }
    }
""" + "".join(
    f".{state} {{ background: {pattern}, {colour}; }}\n"
    if pattern != "none"
    else f".{state} {{ background: {colour}; }}\n"
    for state, (colour, pattern) in LOOKS.items()
)
