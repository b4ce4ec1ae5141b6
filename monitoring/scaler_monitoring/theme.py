"""The colours of pages, light and dark: those of functions are the same on both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

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


PATTERNS = {
    " ": "none",
    "-": "repeating-linear-gradient(0deg, {ink} 0 1px, transparent 1px 4px)",
    "|": "repeating-linear-gradient(90deg, {ink} 0 1px, transparent 1px 4px)",
    "\\": "repeating-linear-gradient(45deg, {ink} 0 1px, transparent 1px 4px)",
    "+": "repeating-linear-gradient(0deg, {ink} 0 1px, transparent 1px 4px),"
    " repeating-linear-gradient(90deg, {ink} 0 1px, transparent 1px 4px)",
    "o": "radial-gradient({ink} 1px, transparent 1.5px) 0 0 / 5px 5px",
}
"""Of functions, as figures call them and as CSS draws them: with the colours, 48 looks. Those of
how work ended are others, see :data:`figures.STATES`."""
INK = "rgb(0 0 0 / .6)"


@dataclass(frozen=True)
class Look:
    """How a function is drawn."""

    colour: str
    pattern: str
    """One of PATTERNS."""

    @property
    def css(self) -> str:
        """The same as a background."""
        pattern = PATTERNS[self.pattern].replace("{ink}", INK)
        return self.colour if pattern == "none" else f"{pattern}, {self.colour}"


@lru_cache(4096)
def look_of(function: str) -> Look:
    """Return how a function is drawn: it follows from its name, wherever and whenever that is."""
    digest = blake2b(function.encode(errors="surrogatepass"), digest_size=4).digest()
    place = int.from_bytes(digest, "little")
    return Look(SERIES[place % len(SERIES)], tuple(PATTERNS)[place // len(SERIES) % len(PATTERNS)])
