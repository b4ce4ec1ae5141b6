# PYTHON_ARGCOMPLETE_OK
"""``scaler_cluster``, ``scaler_worker``: the workers of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.worker_settings import ClusterSettings
from scaler_cluster.errors import ClusterUnreachableError
from scaler_cluster.process.process import lifeline_of_signals
from scaler_cluster.process.process_config import SupervisorProcessConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = "Run tasks on this machine: start workers and connect them to a scheduler."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run workers until SIGINT or SIGTERM, or until the scheduler is gone; return the status."""
    return run_command(ClusterSettings, "scaler_cluster", ABOUT, _run, arguments)


def worker(arguments: Sequence[str] | None = None) -> int:
    """Do the same, under the other name."""
    return run_command(ClusterSettings, "scaler_worker", ABOUT, _run, arguments)


def _run(settings: ClusterSettings) -> None:
    run_cluster(SupervisorProcessConfig.from_settings(settings))


def run_cluster(config: SupervisorProcessConfig) -> None:
    """Run workers to their end; raises ClusterUnreachableError if nobody has asked for that."""
    from scaler_cluster.runtime.supervisor import Supervisor

    reason = Supervisor(config, lifeline_of_signals()).run()
    if reason:
        raise ClusterUnreachableError(reason)


if __name__ == "__main__":
    raise SystemExit(main())
