"""The colours of pages, light and dark: those of functions are the same on both."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

SERIES = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#aa3377", "#8c6d31", "#ee7733",
)  # fmt: skip
"""Colours of curves and functions. On both backgrounds they can be seen, and they can be told apart
with any kind of colour blindness."""
FAILED = "#d1242f"
"""The edge of what failed, which has a pattern as well: nothing is told by colour alone."""


@dataclass(frozen=True)
class Theme:
    """The colours of what is no data."""

    name: str
    background: str
    panel: str
    """Behind tables and figures."""
    text: str
    muted: str
    """Of what is less important; still to be read."""
    grid: str
    """Lines that are there to guide the eye."""
    accent: str
    """What can be clicked, and bars."""


LIGHT = Theme("light", "#f5f6f8", "#fffffe", "#1c2126", "#57606a", "#dfe3e8", "#0a5f95")
DARK = Theme("dark", "#0f1215", "#171b20", "#e7eaee", "#9aa5b1", "#2c333b", "#62b5f0")


class FunctionColours:
    """Which function has which colour: the same wherever this is asked.

    As many functions as there are colours have one each, those that were asked for first; each
    further one shares one with others.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        """The colour of each function that has one for itself."""

    def __getitem__(self, function: str) -> str:
        """Return the colour of a function."""
        colour = self._owners.get(function)
        if colour is not None:
            return colour
        preferred = crc32(function.encode(errors="surrogatepass")) % len(SERIES)
        taken = set(self._owners.values())
        for colour in SERIES[preferred:] + SERIES[:preferred]:
            if colour not in taken:
                self._owners[function] = colour
                return colour
        return SERIES[preferred]
