"""ZeroMQ's sockets of one process that belong together, and who is let in at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zmq

    from scaler_cluster.links.curve import Guard
    from scaler_cluster.links.zap import Doorkeeper


class GuardedContext:
    """A context, whose sockets share its threads and are to be closed before it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.context = context
        self._doorkeeper: Doorkeeper | None = None

    def guard(self, socket: zmq.Socket[bytes], guard: Guard | None) -> None:
        """Let only those in whom a guard lets in, at one of the sockets."""
        if guard is None:
            return
        if self._doorkeeper is None:
            # Most links are private, and need not wait for this import.
            from scaler_cluster.links.zap import Doorkeeper

            self._doorkeeper = Doorkeeper(self.context)
        self._doorkeeper.watch(socket, guard)

    def close(self, *, ends: bool = True) -> None:
        """Watch nobody any more; unless others use the context, it ends."""
        if self._doorkeeper is not None:
            self._doorkeeper.close()
        if ends:
            self.context.term()
