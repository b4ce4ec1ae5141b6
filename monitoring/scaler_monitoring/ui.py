# PYTHON_ARGCOMPLETE_OK
"""``scaler_ui``, ``scaler_gui``: a running cluster, or a recording, in a browser."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.sections import WebSettings
from scaler_cluster.process.dashboard_listener import DashboardListener
from scaler_cluster.process.monitor_config import DashboardProcessConfig
from scaler_cluster.process.process import lifeline_of_signals
from scaler_monitoring.dashboard.process import serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.process.process import Ready

ABOUT = (
    "Show a cluster in a browser, until Ctrl-C: open the link that it prints. It may start before "
    "the scheduler and outlives it."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the dashboard until SIGINT or SIGTERM; return the exit status."""
    return run_command(WebSettings, "scaler_ui", ABOUT, _run, arguments)


def gui(arguments: Sequence[str] | None = None) -> int:
    """Do the same, under the other name."""
    return run_command(WebSettings, "scaler_gui", ABOUT, _run, arguments)


def _run(settings: WebSettings) -> None:
    door = DashboardListener.of(settings)
    config = DashboardProcessConfig.from_settings(settings, door)
    door.listener.detach()

    def say(_: Ready) -> None:
        sys.stdout.write(door.said)
        sys.stdout.flush()

    serve(config, lifeline_of_signals(), say)


if __name__ == "__main__":
    raise SystemExit(main())
