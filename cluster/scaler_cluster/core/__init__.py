"""The sans-IO core: every decision, and nothing that waits, sends or reads a clock.

Theory of operation
-------------------
There is a core for each role: ``client``, ``scheduler``, ``worker``, ``supervisor``, ``storage``. A
core is an object that a *shell* drives, from one thread at a time: the shell passes in what has
arrived and the time, takes out the messages to send and the time at which to come again, and does
the rest. ``records`` and ``graph`` are parts of the scheduler's memory. ``delivery`` serves all
roles: it makes a reliable conversation out of a link that may lose messages.

The laws, checked by ``tests/test_house.py``, by the tests of each core, and by the simulation:

1. No zmq, asyncio, threading, multiprocessing, socket, time, random or os in here or in ``wire``.
2. ``now`` (monotonic seconds) comes in, the next ``deadline`` goes out (``math.inf``: none).
3. The same events give the same actions, in every interpreter: no ``set`` is iterated.
4. One door in for each kind of input, one outbox out, which the shell empties once per turn.
5. RemoteProtocolError means that the peer broke the protocol: the shell drops the peer. Any other
   exception is a bug here, such as an illegal move of a task: the shell logs it and drops nobody.
6. Payloads are opaque bytes.
7. Every queue, frame and table has a bound: a named constant with its reason.
8. ``scheduler/invariants.py`` can check the state of a scheduler after every step.
"""
