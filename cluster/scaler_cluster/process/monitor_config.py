"""What processes are told that show a cluster; ``process_config.py`` has it of all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler_cluster.process.log_config import LogConfig
from scaler_cluster.process.process import host_name
from scaler_cluster.security.credentials import Credentials
from scaler_cluster.users import MONITOR

if TYPE_CHECKING:
    from scaler_cluster.config.sections import WebSettings
    from scaler_cluster.process.dashboard_listener import Acting, DashboardListener

HISTORY_BYTES = 10**9
"""How much of a history is kept, if nobody says."""


@dataclass(frozen=True, kw_only=True)
class DashboardProcessConfig:
    """What a dashboard is told."""

    monitor_address: str | None
    """What it watches; None: it shows a recording."""
    record: str | None
    """The file to which it writes what it sees."""
    history: tuple[str, int] | None
    """The directory where it keeps what it sees, and how many bytes at most."""
    replay: str | None
    """The recording that it shows, if it watches nothing."""
    fd: int
    """Descriptor of a socket that listens already, inherited by this number."""
    token: str
    """What a browser must bring."""
    prefix: str
    """What paths begin with: "", or as "/scaler"."""
    hosts: tuple[str, ...]
    """By which names a browser may call it, besides IP addresses and localhost."""
    link: str
    """What it reports once it is ready."""
    tls: tuple[str, str] | None
    """Files of a certificate and its key; None: it answers by HTTP."""
    credentials: Credentials
    interval_s: float
    """How often browsers get news."""
    rows_max: int
    """How many tasks are listed."""
    logging: LogConfig | None
    acting: Acting | None
    """How those may act who may; None: nobody may."""

    @classmethod
    def from_settings(
        cls, settings: WebSettings, door: DashboardListener
    ) -> DashboardProcessConfig:
        """Return what a dashboard is told that answers at a door."""
        history: tuple[str, int] | None = None
        if settings.history is not None:
            history = settings.history, settings.history_size or HISTORY_BYTES
        return cls(
            monitor_address=settings.monitor_address,
            record=settings.record,
            history=history,
            replay=settings.replay,
            fd=door.listener.fileno(),
            token=door.token,
            prefix=door.prefix,
            hosts=(door.host, host_name(), *settings.hosts),
            link=door.link,
            tls=settings.tls,
            credentials=Credentials.of(MONITOR, settings.given_keys),
            interval_s=settings.broadcast_interval_seconds,
            rows_max=settings.task_log_max_size,
            logging=LogConfig.from_settings(settings),
            acting=door.acting,
        )


@dataclass(frozen=True)
class ReportProcessConfig:
    """What the process is told that writes a report."""

    monitor_address: str
    credentials: Credentials
    path: str
    """The file to write."""
    fd: int
    """Where it reports that the file is written, or why it is not; inherited by this number."""
    has_profile: bool
    """Tasks are sampled meanwhile."""
