"""A map, to a scheduler and workers that commands started. ``calculate`` and ``tasks`` are there."""

from scaler import Client

address = "tcp://127.0.0.1:8516"

with Client(address=address) as client:
    results = client.map(calculate, [(i,) for i in tasks])

assert results == tasks
