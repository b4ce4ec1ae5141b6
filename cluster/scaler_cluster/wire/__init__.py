"""What crosses a socket: messages, and how they become bytes. No I/O here.

Theory of operation
-------------------
``messages.py`` has a dataclass for each message of the protocol. ``codec.py`` makes frames of an
*envelope*, which is all that one process sends another in one turn: msgpack, and a frame of its own
for each large buffer, which is never copied. The codec of a message is made from the annotations of
its class; only the four messages of the hot path have one that is written by hand.

Decoding is the border to the world. Whatever the bytes, ``decode`` returns messages whose fields
have their types and their bounds, or raises RemoteProtocolError. So no core checks a type again: a
core checks only whether a message makes sense.

``batch.py``: the payloads of contiguous tasks are one buffer and the offsets at which each ends. A
batch is cut by slicing; nobody between client and worker reads a payload.

``feed.py`` and ``feed_codec.py`` are the second format: what a scheduler publishes for monitors.
There, fields go by their names, so a monitor may be older or newer than its scheduler. In the
protocol they go by their places, and both ends must have the same PROTOCOL_VERSION.

``docs/protocol.md`` and ``docs/feed.md`` are made from the docstrings of this package.
"""
