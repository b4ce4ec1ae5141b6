"""Times as Dask's users write them."""

from __future__ import annotations

import concurrent.futures
import sys
from datetime import timedelta
from typing import TypeAlias

from scaler_cluster import arguments

if sys.version_info >= (3, 11):
    TooLateError = TimeoutError
else:

    class TooLateError(concurrent.futures.TimeoutError, TimeoutError):
        """Both of the classes that programs catch, which are one from Python 3.11 on."""


Duration: TypeAlias = "float | str | timedelta | None"
"""What :func:`seconds_of` takes."""


def seconds_of(name: str, value: Duration) -> float | None:
    """Return seconds of a number, a timedelta, or text as "10s" or "2 minutes"; None stays None.

    Raises TypeError or ValueError.
    """
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, str):
        from dask.utils import parse_timedelta

        value = float(parse_timedelta(value))
    return arguments.seconds(name, value, any_sign=True)
