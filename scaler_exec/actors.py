"""Actors: objects that live in a worker of their own and whose methods are called from elsewhere.

::

    from scaler_exec import ScalerExecutor, actors

    with ScalerExecutor() as executor:
        counter = actors.create(executor, Counter, 5)
        print(counter.add(2).result())
"""

from scaler_cluster.client.actors import (
    ActorHandle,
    ActorMethod,
    call,
    create,
    destroy,
    ready,
    value,
)

__all__ = ["ActorHandle", "ActorMethod", "call", "create", "destroy", "ready", "value"]
