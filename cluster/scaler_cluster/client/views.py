"""Views: the same client or executor, with other options."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

from scaler_cluster.client import at_exit

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from scaler_cluster.client.cache import ResultCache
    from scaler_cluster.client.call_options import CallKeywords, CallOptions
    from scaler_cluster.client.session import Session


class Viewed:
    """What has a session, and options for the calls that it submits."""

    _session: Session
    _asked: CallOptions
    _original: Viewed | None = None
    """What this is a view of: the session ends with that."""

    def options(self, **named: Unpack[CallKeywords]) -> Self:
        """Return a view of this that submits to the same cluster with these options.

        It keeps this, so the session is open as long as either is in use. What is not named stays
        as it is here.

        Args:
            **named: ``priority``: Higher runs first; default: 0.
                ``timeout``: Seconds from its start after which a task is stopped, with
                TaskTimeoutError; default: None, which is never.
                ``retries``: How often a task is run again after it raised or its worker died.
                ``at_most_once``: Never start a task twice, even if its machine was lost.
                ``capabilities``: What the worker that runs it must have, as ``{"gpu": 1}``; -1: it
                only has to be there.
                ``cores``: How many workers of its machine run nothing else meanwhile; -1: all of
                them.
                ``reserialize``: Whether the content of large arguments is looked at also if they
                are read-only. Otherwise a read-only array is taken to be what it was when it was
                first passed.
                ``cache``: A directory, or a :class:`ResultCache`, where results are kept; None:
                nowhere.

        Raises:
            TypeError: There is no such option, or it has the wrong type.
            ConfigError: It is out of its bounds, or ``retries`` and ``at_most_once`` are both
                given.

        """
        asked = self._asked.including(named)
        # One that was unpickled connects now: else both would.
        _ = self._session
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._original = self
        view._take_options(asked)
        return view

    @property
    def cache(self) -> ResultCache | None:
        """Where results are kept; None: nowhere."""
        return self._asked.cache

    def _take_options(self, asked: CallOptions) -> None:
        self._asked = asked


# Sessions are imported when the first one is opened. What a program registered before that, but
# after it imported this, is to run first all the same: it may still submit tasks.
atexit.register(at_exit.finish)
