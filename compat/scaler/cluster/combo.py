"""The combo, at the path that the Scaler system documents."""

from scaler_cluster.combo import SchedulerClusterCombo

__all__ = ["SchedulerClusterCombo"]
