"""Calls whose results are kept: what is there is not run, what is not is kept when it comes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from scaler_cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler_cluster.client.cache import ResultCache
    from scaler_cluster.client.call_options import CallOptions
    from scaler_cluster.client.future import ScalerFuture
    from scaler_cluster.client.session import Session


def submit_kept(
    session: Session,
    cache: ResultCache,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    submit: Callable[[], ScalerFuture[Any]],
) -> ScalerFuture[Any]:
    """Return a future of a call: of a result that is there, or of the task that ``submit`` makes.

    A result is on the disk before anybody sees it. What has no lasting digest is submitted.
    """
    session.check_usable()
    name = cache.name(fn, args, kwargs)
    if name is None:
        return submit()
    is_there, value = cache.find(name)
    if is_there:
        future = session.future_class(session)
        future.set_result(value)
        return future
    future = submit()
    future._keep_by(partial(cache.keep, name))
    return future


def refuse_graphs(asked: CallOptions) -> None:
    """Raise ConfigError if the results of a graph's nodes were to be kept."""
    if asked.cache is not None:
        raise ConfigError(
            "the results of a graph's nodes are not kept: submit the graph without a cache, by "
            "options(cache=None)"
        )
