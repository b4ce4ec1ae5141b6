"""Worker managers as programs for the Scaler system make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler_cluster.cli.manager import manage

if TYPE_CHECKING:
    from scaler_compat.config_sections import NativeWorkerManagerConfig


class NativeWorkerManager:
    """Has workers of this machine started as the scheduler wants them."""

    def __init__(self, config: NativeWorkerManagerConfig) -> None:
        self._config = config

    def run(self) -> None:
        """Run until SIGINT or SIGTERM, in the main thread; raises ClusterUnreachableError."""
        manage(self._config)
