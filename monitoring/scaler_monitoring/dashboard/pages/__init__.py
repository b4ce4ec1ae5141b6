"""The pages, in the order of their links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_monitoring.dashboard.pages.clients import Clients
from scaler_monitoring.dashboard.pages.functions import Functions
from scaler_monitoring.dashboard.pages.graphs import Graphs
from scaler_monitoring.dashboard.pages.logs import Logs
from scaler_monitoring.dashboard.pages.machines import Machines
from scaler_monitoring.dashboard.pages.memory import Memory
from scaler_monitoring.dashboard.pages.overview import Overview
from scaler_monitoring.dashboard.pages.profile import Profile
from scaler_monitoring.dashboard.pages.stream import Stream
from scaler_monitoring.dashboard.pages.tasks import Tasks
from scaler_monitoring.dashboard.pages.workers import Workers

if TYPE_CHECKING:
    from scaler_monitoring.dashboard.page import Page

PAGES: tuple[type[Page], ...] = (
    Overview, Stream, Functions, Tasks, Workers, Logs, Graphs, Profile, Memory, Clients, Machines,
)  # fmt: skip
