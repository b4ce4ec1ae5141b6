"""How a client comes to its scheduler."""

from __future__ import annotations

import logging
from time import perf_counter as clock
from typing import TYPE_CHECKING

from scaler_cluster.errors import ClusterUnreachableError, ConfigError
from scaler_cluster.process.process import PYTHON_VERSION, pid_space
from scaler_cluster.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler_cluster.client.connection import Connection
    from scaler_cluster.core.client.events import ClientEvent

log = logging.getLogger("scaler_cluster.client")

TELL_S = 5.0
"""A client that waits for longer says so, once: people look at an address then."""
LOOK_S = 0.1
"""How often a client that waits for its welcome looks whether anybody is left to give it."""


def shake_hands(
    connection: Connection,
    timeout: float,
    dead_child: Callable[[], str],
    storages: Sequence[str] = (),
) -> list[ClientEvent]:
    """Say Hello and wait for the answer; return what else the scheduler said with it.

    A cluster that is broken says so at once.

    ``storages`` are the addresses at which those that the scheduler names are reached from here,
    in its order; empty: at those that it says.

    Raises ClusterUnreachableError if none comes within ``timeout`` seconds, if the scheduler
    refuses, or as soon as ``dead_child()`` says why none can come; ConfigError if there are more
    storages than named, or fewer.
    """
    who = m.PROTOCOL_VERSION, PYTHON_VERSION, *connection.process
    connection.greet(m.Hello(m.CLIENT, *who, worker=connection.worker, pid_space=pid_space()))
    begin = clock()
    end, tell_at = begin + timeout, begin + TELL_S
    events: list[ClientEvent] = []
    while not connection.welcome.session:
        events += connection.pump()
        for event in events:
            if isinstance(event, m.Refused):
                raise ClusterUnreachableError(
                    f"the scheduler at {connection.address} says: {event.reason}"
                )
        left = end - clock()
        refusal = connection.refusal
        if refusal and (left <= 0 or connection.is_refused):
            also = connection.credentials.refused_at(connection.address)
            raise ClusterUnreachableError(
                f"the scheduler at {connection.address} does not listen to this process: "
                f"{refusal}{also}"
            )
        if left <= 0:
            raise ClusterUnreachableError(
                f"no scheduler answered at {connection.address} within {timeout} s: is it running, "
                "and is this its address?"
            )
        if clock() >= tell_at:
            tell_at = end
            log.warning(
                "no scheduler has answered at %s for %.0f s: is it running, and is this its "
                "address? The client goes on waiting", connection.address, TELL_S,
            )  # fmt: skip
        if not connection.welcome.session:
            connection.wait(min(left, LOOK_S))
            if reason := dead_child():
                raise ClusterUnreachableError(reason)
    homes = connection.welcome.homes
    if storages and len(storages) != len(homes):
        connection.say(m.Goodbye())
        connection.pump()
        raise ConfigError(
            f"this cluster keeps objects in {len(homes)} storages: name as many addresses, in its "
            f"order, not {len(storages)}"
        )
    connection.reach_storages(storages)
    return events
