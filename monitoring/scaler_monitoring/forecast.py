"""When memory that fills will be full, if it goes on like that. Pure."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler_monitoring.model import Model
    from scaler_monitoring.samples import Samples

SLOPE_S, SLOPE_MIN_S, SOON_S = 30.0, 3.0, 600.0
"""How far back it is looked how fast memory grows, how far at least, and what is worth telling."""
BYTES = 1
"""The column of samples of workers with what they hold, and of machines with what is free."""


def worker_full_in_s(model: Model, worker: bytes, room: int) -> float | None:
    """Return when a worker with so many bytes of room will have none left; None: not soon."""
    return _gone_in_s(room, _change(model.worker_samples, worker))


def machine_full_in_s(model: Model, machine: bytes, room: int) -> float | None:
    """Return when a machine with so many bytes of room will have none left; None: not soon."""
    return _gone_in_s(room, -_change(model.machine_samples, machine))


def _gone_in_s(room: int, grown: float) -> float | None:
    if grown <= 0:
        return None
    full_s = max(room, 0) / grown
    return full_s if full_s <= SOON_S else None


def _change(samples: Samples, key: bytes) -> float:
    """Return by how much it has become more each second; 0.0 if nobody knows."""
    points = []
    taken = samples.taken
    for sample in reversed(taken):
        if sample.clock < taken[-1].clock - SLOPE_S or key not in sample.keys:
            break
        nbytes = sample.columns[BYTES][sample.keys.index(key)]
        if not isnan(nbytes):
            points.append((sample.clock, nbytes))
    if not points or points[0][0] - points[-1][0] < SLOPE_MIN_S:
        return 0.0
    return (points[0][1] - points[-1][1]) / (points[0][0] - points[-1][0])
