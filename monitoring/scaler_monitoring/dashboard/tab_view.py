"""What one tab of a browser shows, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler_monitoring.dashboard.settings import Settings
    from scaler_monitoring.dashboard.watch import Watch
    from scaler_monitoring.model import Model
    from scaler_monitoring.theme import Theme


@dataclass(frozen=True)
class View:
    """What one tab shows, and how."""

    watch: Watch
    theme: Theme
    settings: Settings
    links: Mapping[str, str]
    """Where the pages are, by their paths."""
    rows_max: int
    """How many tasks are listed."""
    address: Mapping[str, str] = field(default_factory=dict)
    """What the query of its URL says."""

    @property
    def model(self) -> Model:
        """What is known."""
        return self.watch.model
