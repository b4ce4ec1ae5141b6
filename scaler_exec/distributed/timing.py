"""Times as Dask's users write them."""

from __future__ import annotations

from scaler_cluster import arguments


def seconds_of(name: str, value: float | str | None) -> float | None:
    """Return seconds of a number, or of text as "10s" or "2 minutes"; None stays None.

    Raises TypeError or ValueError.
    """
    if value is None:
        return None
    if isinstance(value, str):
        from dask.utils import parse_timedelta

        value = float(parse_timedelta(value))
    return arguments.seconds(name, value, any_sign=True)
