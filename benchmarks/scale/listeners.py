"""A monitor that only counts what a scheduler publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zmq

from benchmarks.scale.peers import keys_for
from scaler_cluster.links import zmq_link
from scaler_cluster.users import MONITOR

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

LOOK_MS = 50


def run_listener(address: str, commands: Connection) -> None:
    """Count snapshots and bytes; each command is answered with both, since the last one."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context.socket(zmq.SUB) as socket:
        socket.linger = 0
        zmq_link.show(socket, keys_for(address, MONITOR))
        socket.connect(address)
        socket.subscribe(b"")
        snapshots = nbytes = 0
        while True:
            if commands.poll():
                try:
                    name, _ = commands.recv()
                except EOFError:
                    break
                if name == "end":
                    break
                commands.send((snapshots, nbytes))
                snapshots = nbytes = 0
            while socket.poll(LOOK_MS):
                frames = socket.recv_multipart()
                if frames[0] == b"snapshot":
                    snapshots += 1
                    nbytes += sum(map(len, frames))
    context.term()
