"""The adapter for IBM Spectrum Symphony, at the path that the Scaler system has it at."""

from scaler_compat.adapters import SymphonyWorkerAdapter

__all__ = ["SymphonyWorkerAdapter"]
