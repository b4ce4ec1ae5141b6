"""Bars that are made of parts: how far something has come. HTML, as that fits into any width."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from scaler_monitoring import view
from scaler_monitoring.dashboard.parts import show, text
from scaler_monitoring.theme import FAILED, SERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler_monitoring.theme import Theme

BARS_MAX = 12
"""More would be no overview."""
_LINES = "repeating-linear-gradient({angle}, {ink} 0 {width}, transparent {width} {step})"
_DARK, _BRIGHT = "rgb(0 0 0 / .45)", "rgb(255 255 255 / .75)"


def _stripes(angle: str, width: str, step: str, ink: str) -> str:
    return _LINES.format(angle=angle, ink=ink, width=width, step=step)


TASK_STATES = ("done", "pending", "failed", "cancelled")
"""What becomes of tasks, as clients and functions count them."""
LOOKS = {
    "done": (SERIES[2], "none"),
    "ended": (SERIES[2], "none"),
    "assigned": (SERIES[0], _stripes("45deg", "2px", "7px", _BRIGHT)),
    "ready": (SERIES[4], _stripes("0deg", "1px", "4px", _DARK)),
    "pending": (SERIES[4], _stripes("0deg", "1px", "4px", _DARK)),
    "waiting": ("transparent", "none"),
    "left": ("transparent", "none"),
    "resident": (SERIES[0], _stripes("45deg", "2px", "7px", _BRIGHT)),
    "objects": (SERIES[2], "none"),
    "others": (SERIES[0], _stripes("45deg", "2px", "7px", _BRIGHT)),
    "free": ("transparent", "none"),
    "failed": (FAILED, _stripes("-45deg", "2px", "5px", _BRIGHT)),
    "cancelled": ("var(--muted)", _stripes("90deg", "2px", "5px", _DARK)),
}
"""The colour of what is in a state, and its pattern: in both, they differ."""


@dataclass(frozen=True)
class Bar:
    """What a bar is about, and how many are in which state."""

    name: str
    counts: Mapping[str, int]
    """By state, one of LOOKS, in the order in which they are drawn."""
    note: str = ""
    """What else there is to say; how many failed is said anyhow."""
    href: str = ""
    """Where its name leads to; empty: nowhere."""
    look: str = ""
    """How what it is about is drawn elsewhere, as CSS; empty: it is not."""


class Bars:
    """Bars, as many beside each other as there is room for, with what their patterns mean."""

    def __init__(
        self,
        states: Sequence[str],
        theme: Theme,
        css: str = "",
        number: Callable[[float], str] = view.whole,
    ) -> None:
        self._number = number
        """Says how many, or how much."""
        self._key = "".join(f'<li><i class="{state}"></i>{escape(state)}</li>' for state in states)
        self.root = text("", theme, _CSS + css)

    def update(self, bars: Sequence[Bar], about: str = "") -> None:
        """Show these, and a sentence below; nothing if there is neither."""
        key, drawn = f'<ul class="key">{self._key}</ul>', "".join(self._bar(one) for one in bars)
        html = f'{key}<ul class="bars">{drawn}</ul>' if bars else ""
        show(self.root, html + (f"<p>{escape(about)}</p>" if about else ""))

    def _bar(self, bar: Bar) -> str:
        number = self._number
        shown = {state: count for state, count in bar.counts.items() if count > 0}
        parts = "".join(
            f'<i class="{state}" style="flex-grow:{count}" title="{number(count)} {state}"></i>'
            for state, count in shown.items()
        )
        said = ", ".join(f"{number(count)} {state}" for state, count in shown.items())
        failed = f"<b>{number(shown['failed'])} failed</b> · " if "failed" in shown else ""
        name = escape(bar.name)
        look = f'<i class="look" style="background:{bar.look}"></i>' if bar.look else ""
        linked = f'<a href="{escape(bar.href)}">{name}</a>' if bar.href else name
        return (
            f'<li><div class="name" title="{name}">{look}{linked}</div>'
            f'<div class="bar" role="img" aria-label="{escape(said)}">{parts}</div>'
            f"<small>{failed}{escape(bar.note)}</small></li>"
        )


_CSS = """
    ul { list-style: none; margin: 0; padding: 0; }
    p, .key, small { color: var(--muted); font-size: 12px; font-variant-numeric: tabular-nums; }
    p { margin: .4rem 0; }
    b { color: var(--bad); }
    a { color: var(--text); text-decoration-color: var(--muted); }
    a:focus-visible { outline: 3px solid var(--accent); outline-offset: -3px; }
    .key { display: flex; flex-wrap: wrap; gap: 0 1rem; margin-bottom: .4rem; }
    .key i { display: inline-block; width: 1.6em; height: .9em; margin-right: .4em;
        vertical-align: -.1em; outline: 1px solid var(--muted); outline-offset: -1px; }
    .look { display: inline-block; width: 14px; height: 14px; margin-right: .4em;
        border-radius: 3px; vertical-align: -2px; }
    .bars { display: grid; gap: .55rem 1.5rem; margin-bottom: .5rem;
        grid-template-columns: repeat(auto-fill, minmax(min(27rem, 100%), 1fr)); }
    li { min-width: 0; }
    .name { font-weight: 600; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
    .bar { display: flex; height: .9rem; margin-top: 2px; overflow: hidden;
        background: var(--panel); outline: 1px solid var(--muted); outline-offset: -1px;
        border-radius: 3px; }
    .bar i { min-width: 3px; flex-basis: 0; }
""" + "".join(
    f".{state} {{ background: {pattern}, {colour}; }}\n"
    if pattern != "none"
    else f".{state} {{ background: {colour}; }}\n"
    for state, (colour, pattern) in LOOKS.items()
)
