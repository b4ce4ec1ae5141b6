# PYTHON_ARGCOMPLETE_OK
"""``scaler_symphony_cluster``: workers whose tasks run in IBM Spectrum Symphony."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.proxy_settings import SymphonyClusterSettings
from scaler_cluster.process.process import lifeline_of_signals
from scaler_cluster.provision.runners import ProxyProcessConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler_cluster.config.proxy_settings import ProxySettings

ABOUT = "Run tasks in IBM Spectrum Symphony."


def symphony(arguments: Sequence[str] | None = None) -> int:
    """Run a proxy for Symphony until SIGINT or SIGTERM; return the exit status."""
    return run_command(SymphonyClusterSettings, "scaler_symphony_cluster", ABOUT, run, arguments)


def run(settings: ProxySettings) -> None:
    """Run a proxy to its end; raises ClusterUnreachableError if nobody has asked for that."""
    from scaler_cluster.runtime.proxy import run_proxy

    run_proxy(ProxyProcessConfig.of(settings), lifeline_of_signals())
