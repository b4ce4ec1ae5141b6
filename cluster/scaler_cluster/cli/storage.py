# PYTHON_ARGCOMPLETE_OK
"""``scaler_object_storage_server``: keeps the objects of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.shared import run_command
from scaler_cluster.config.sections import StorageSettings
from scaler_cluster.runtime.process import lifeline_of_signals
from scaler_cluster.runtime.process_config import storage_process_config

if TYPE_CHECKING:
    from collections.abc import Sequence

ABOUT = "Keep the objects of a cluster: start it first, then the scheduler, which is told of it."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an object storage until SIGINT or SIGTERM; return the exit status."""
    return run_command(StorageSettings, "scaler_object_storage_server", ABOUT, _run, arguments)


def _run(settings: StorageSettings) -> None:
    from scaler_cluster.runtime.storage import serve_alone

    serve_alone(storage_process_config(settings), lifeline_of_signals(), lambda **_: None)
