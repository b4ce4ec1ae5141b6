"""Bars that say how much has come back: those of tqdm, or any that behave as they do.

The thread that waits for results looks how many there are, a few times a second; nothing is done
for each.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Mapping, Sized
from contextlib import contextmanager
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any, Protocol

from scaler_cluster import arguments
from scaler_cluster.client.future import ScalerFuture
from scaler_cluster.client.map import MapCall, map_calls
from scaler_cluster.errors import ConfigError
from scaler_cluster.texts import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scaler_cluster.client.future import FutureOwner
    from scaler_cluster.client.session import Session

LOOK_S = 0.1
"""How often it is looked: faster, nobody sees a difference."""
SHARE = 20
"""Looking at so many futures that it takes long is done less often: 5 % of the time at most."""


class Bar(Protocol):
    """What is needed of a bar."""

    total: float | None

    def update(self, n: float = ...) -> object:
        """Count more as done."""

    def refresh(self) -> object:
        """Show how it is."""

    def close(self) -> object:
        """Leave it as it is."""


@contextmanager
def showing(bar: Bar | None, total: int | None) -> Iterator[Bar]:
    """Yield a bar that knows the total, if somebody does; one that is made here is closed here.

    Raises ConfigError if one must be made, and tqdm is not installed.
    """
    if bar is not None:
        if bar.total is None:
            bar.total = total
        yield bar
        bar.refresh()
        return
    made = _make(total)
    try:
        yield made
    finally:
        made.close()


class _Reason:
    """Lets a bar say why nothing comes back, if it can, as those of tqdm."""

    def __init__(self, bar: Bar) -> None:
        self._say = getattr(bar, "set_postfix_str", None)
        self._said = ""

    def look(self, session: FutureOwner) -> None:
        """Say it, or that it is so no longer."""
        reason = session.waits_as
        if reason != self._said and self._say is not None:
            self._said = reason
            self._say(reason)


def _make(total: int | None) -> Bar:
    try:
        # What is drawn depends on whether a terminal or a notebook shows it.
        from tqdm.auto import tqdm
    except ImportError:
        raise ConfigError(
            "tqdm is not installed, which draws progress: pip install 'scaler-exec[progress]', or "
            "give a bar of your own"
        ) from None
    made: Bar = tqdm(total=total, unit="task", mininterval=LOOK_S)
    return made


def watch(futures: Iterable[ScalerFuture[Any]], bar: Bar | None) -> None:
    """Show how many of these have come back, until all have."""
    if not isinstance(futures, Iterable):
        raise TypeError(f"futures must be a list of futures, not {shown(futures)}")
    if bar is not None:
        _check_bar("bar", bar)
    pending = list(futures.values() if isinstance(futures, Mapping) else futures)
    for one in pending:
        if not isinstance(one, ScalerFuture):
            raise TypeError(f"progress is shown of futures of this client, not of {shown(one)}")
    with showing(bar, len(pending)) as visible:
        reason = _Reason(visible)
        while pending:
            reason.look(pending[-1]._session)
            began, before = clock(), len(pending)
            pending = [one for one in pending if not one.done()]
            if len(pending) < before:
                visible.update(before - len(pending))
            _wait_for_last(pending, visible, clock() + max(LOOK_S, SHARE * (clock() - began)))


def _wait_for_last(pending: list[ScalerFuture[Any]], bar: Bar, end: float) -> None:
    """Wait until the last ones are done: mostly they come back in this order."""
    before = len(pending)
    while pending and (left := end - clock()) > 0:
        last = pending[-1]
        if last._session.wait(last.done, last, left):
            while pending and pending[-1].done():
                pending.pop()
    if len(pending) < before:
        bar.update(before - len(pending))


# -- maps ----------------------------------------------------------------------------------------


def bar_of(
    progress: bool | Bar, iterables: tuple[Iterable[Any], ...]
) -> tuple[Bar | None, int | None]:
    """Return the bar that was given, if it was one, and how many items a zip of these has.

    None: nobody knows before its end. Raises TypeError for what is neither True nor a bar.
    """
    if progress is not True:
        _check_bar("progress", progress)
    total = None
    if all(isinstance(one, Sized) for one in iterables):
        total = min((len(one) for one in iterables), default=0)  # type: ignore[arg-type]
    return None if isinstance(progress, bool) else progress, total


def _check_bar(name: str, bar: object) -> None:
    wants = "a bar of tqdm, or an object with its update(), refresh(), close() and total"
    arguments.having(name, bar, ("update", "refresh", "close", "total"), wants)


def map_shown(
    session: Session,
    function: Callable[..., Any],
    items: Iterator[Any],
    bar: Bar | None,
    total: int | None,
    *,
    chunksize: int = 1,
    **named: Any,
) -> Iterator[Any]:
    """Do as :func:`map_calls`, and show how many items have come back, in whatever order."""
    results = _map_shown(session, function, items, bar, total, chunksize, named)
    # Everything is submitted before this returns.
    next(results)
    return results


def _map_shown(
    session: Session, function: Callable[..., Any], items: Iterator[Any], bar: Bar | None,
    total: int | None, chunksize: int, named: dict[str, Any],
) -> Iterator[Any]:  # fmt: skip
    with showing(bar, total) as shown:
        counted = _Counted(items)
        call: _ShownCall | None = None

        def make(*args: Any, **options: Any) -> _ShownCall:
            nonlocal call
            call = _ShownCall(*args, **options)
            call.show_at(shown, counted, chunksize)
            return call

        results = map_calls(session, function, counted, chunksize=chunksize, make=make, **named)
        assert call is not None
        if shown.total is None and named.get("buffersize") is None:
            shown.total = counted.count
        try:
            yield None
            yield from results
        finally:
            call.look(is_last=True)


def shown_results(results: Iterator[Any], bar: Bar | None, total: int | None) -> Iterator[Any]:
    """Yield results, and show how many were taken."""
    with showing(bar, total) as shown:
        for result in results:
            shown.update(1)
            yield result


class _Counted:
    """An iterator that says how many items it gave away."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = next(self._items)
        self.count += 1
        return item


class _ShownCall(MapCall):
    """A map that shows how much has come back, also of what is not its turn yet."""

    def show_at(self, bar: Bar, items: _Counted, chunksize: int) -> None:
        """Begin to show how many of these items have come back."""
        self._bar, self._items, self._chunksize = bar, items, chunksize
        self._reason = _Reason(bar)
        self._shown = 0
        self._look_at = 0.0

    def wait(self, index: int, timeout: float | None) -> Any:
        """Return the segment that begins with a task, as the parent does."""
        end = None if timeout is None else clock() + timeout
        while True:
            self.look()
            left = LOOK_S if end is None else min(end - clock(), LOOK_S)
            try:
                return super().wait(index, left)
            except concurrent.futures.TimeoutError:
                if end is not None and clock() >= end:
                    raise

    def look(self, *, is_last: bool = False) -> None:
        """Let the bar show how it is, unless it was shown just now."""
        now = clock()
        if now < self._look_at and not is_last:
            return
        self._look_at = now + LOOK_S
        self._reason.look(self._session)
        # The last chunk may be smaller.
        done = min((self.asked - self.outstanding) * self._chunksize, self._items.count)
        if done > self._shown:
            self._bar.update(done - self._shown)
            self._shown = done
