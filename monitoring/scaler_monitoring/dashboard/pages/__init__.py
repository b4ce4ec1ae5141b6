"""The pages, in the order of their links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_monitoring.dashboard.pages.overview import Overview
from scaler_monitoring.dashboard.pages.stream import Stream
from scaler_monitoring.dashboard.pages.tasks import Tasks
from scaler_monitoring.dashboard.pages.workers import Workers

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.page import Page

PAGES: tuple[type[Page], ...] = (Overview, Stream, Tasks, Workers)
