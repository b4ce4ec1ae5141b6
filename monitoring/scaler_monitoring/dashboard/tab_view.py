"""What one tab of a browser shows, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler_monitoring.dashboard.address import Address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_monitoring.dashboard.settings import Settings
    from scaler_monitoring.dashboard.watch import Watch
    from scaler_monitoring.model import Model
    from scaler_monitoring.theme import Theme


@dataclass
class View:
    """What one tab shows, and how."""

    watch: Watch
    """Of what happens, or of a moment that was: its slider changes that."""
    theme: Theme
    settings: Settings
    links: Mapping[str, str]
    """Where the pages are, by their paths."""
    rows_max: int
    """How many tasks are listed."""
    address: Address = field(default_factory=Address)
    """What is chosen, searched and sorted in it."""
    may_act: bool = False
    """It was opened by the link of operators."""

    @property
    def model(self) -> Model:
        """What is known."""
        return self.watch.model
