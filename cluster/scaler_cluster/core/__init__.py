"""The sans-IO core: every decision, and nothing that waits, sends or reads a clock.

The laws, checked by ``tests/test_house.py`` and the simulation:

1. No zmq, asyncio, threading, multiprocessing, socket, time, random or os in here or in ``wire``.
2. ``now`` (monotonic seconds) comes in, the next ``deadline`` goes out (``math.inf``: none).
3. The same events give the same actions, in every interpreter: no ``set`` is iterated.
4. One door in per kind of input, one outbox out, drained once per turn.
5. An illegal move raises; the receiving edge drops the peer that caused it.
6. Payloads are opaque bytes.
7. Every queue, frame and table has a bound: a named constant with its reason.
"""
