"""Lets the programs that joblib's tests start know the backend."""

import scaler_exec.joblib  # noqa: F401 - it registers the backend
