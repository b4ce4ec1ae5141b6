# PYTHON_ARGCOMPLETE_OK
"""``scaler_ui``, ``scaler_gui``: a running cluster, or a recording, in a browser."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.sections import WebSettings
from scaler_cluster.runtime.dashboard_listener import DashboardListener
from scaler_cluster.runtime.process import lifeline_of_signals
from scaler_cluster.runtime.process_config import dashboard_process_config
from scaler_monitoring.dashboard.process import serve

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = (
    "Show a cluster in a browser, until Ctrl-C: open the link that is printed. It may start before "
    "the scheduler, and outlives it."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the dashboard until SIGINT or SIGTERM; return the exit status."""
    return run_command(WebSettings, "scaler_ui", ABOUT, _run, arguments)


def gui(arguments: Sequence[str] | None = None) -> int:
    """Do the same, under the other name."""
    return run_command(WebSettings, "scaler_gui", ABOUT, _run, arguments)


def _run(settings: WebSettings) -> None:
    door = DashboardListener(*settings.host_and_port, token=settings.token, prefix=settings.prefix)
    told = dashboard_process_config(settings, door)
    door.listener.detach()
    serve(told, lifeline_of_signals(), _say)


def _say(link: str) -> None:
    sys.stdout.write(f"dashboard at {link}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
