# PYTHON_ARGCOMPLETE_OK
"""``scaler_object_storage_server``: keeps the objects of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.sections import StorageSettings
from scaler_cluster.process.process import lifeline_of_signals, need_linux
from scaler_cluster.process.process_config import StorageServerConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = "Store the objects of a cluster. Start it first, then pass its address to the scheduler."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an object storage until SIGINT or SIGTERM; return the exit status."""
    return run_command(StorageSettings, "scaler_object_storage_server", ABOUT, _run, arguments)


def _run(settings: StorageSettings) -> None:
    need_linux()
    from scaler_cluster.runtime.storage_server import run

    config = StorageServerConfig.from_settings(settings)
    run(config, lifeline_of_signals(), lambda _: None)
