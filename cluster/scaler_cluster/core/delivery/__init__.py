"""How messages reach their peer once and in order, whatever the link loses or repeats.

Theory of operation
-------------------

All roles send messages in envelopes. ZeroMQ keeps the order within one connection, but may lose
what was under way when a connection breaks, and a link of a test may lose or repeat anything.

``channel.py`` is one side of a conversation with one peer. It numbers the envelopes that it sends,
keeps each until the peer acknowledges it, and repeats those that the peer says it misses; if no
acknowledgement comes, it sends a probe that makes the peer say so. What is large goes in several
envelopes. It hands on the envelopes that it receives in order and each once, and acknowledges
them: with the next envelope that it sends, or alone after a moment.

``exchange.py`` keeps the channels of a process, by peer. A process that starts anew has another
incarnation, a number in each envelope: only a Hello in a first envelope opens a channel to it. A
peer without a channel is told ``Unknown``, and starts over.

The doors of an exchange: ``send`` turns messages into frames, ``receive`` turns frames into the
messages to handle now, ``tick`` returns what is to be repeated or acknowledged at the ``deadline``,
and ``drop`` forgets a peer. It decides nothing about what messages mean.
"""
