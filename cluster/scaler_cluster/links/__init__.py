"""Links carry frames between processes; this is the only package that knows ZeroMQ.

Theory of operation
-------------------
A link has a *hub*, which knows each peer by its id, and *spokes*, which know only the hub. A
scheduler and an object storage listen, each with a hub; a process that connects has a spoke.
``link.py`` says what a link promises: the frames of one connection arrive whole and in order, or
not at all if the connection breaks, and no call blocks. What is lost is repeated above it, by
``core/delivery``.

- ``zmq_link.py``: ROUTER and DEALER sockets. A shell waits for ``fd``, and takes in what has
  arrived with ``receive``. ZeroMQ signals a change once, and sending may use the signal up: so a
  shell looks again after it has sent, and before it waits. ``spin`` looks for a moment without
  sleeping, for a conversation in which the answer comes sooner than a sleeping thread wakes.
- ``stream_link.py``: the same on one machine, over Unix sockets. Whoever uses the link reads and
  writes them itself (``stream.py``) and speaks ZMTP (``zmtp.py``): sockets of ZeroMQ cannot tell.
- ``feed_link.py``: the feed goes from a ``Publisher`` to each ``Subscriber``. A subscriber that
  reads too slowly loses messages.
- ``curve.py``, ``zap.py``, ``handshake.py``: keys. A hub and a publisher may have a *guard*, which
  says whose keys it lets in; a thread answers for it in each handshake, and logs who was refused.
  A spoke and a subscriber then show a *passport*. A guarded hub knows the user of each peer, and
  takes in nothing that another user says in the peer's name. libzmq gives an address up for good
  where it once meets somebody who speaks something else: ``tend`` connects such a spoke again.
- ``memory_link.py``: the same within one thread, for tests. One suite tests all (``tests/links``).

Threads may share a link if a lock makes them take turns.
"""
