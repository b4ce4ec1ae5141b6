"""The window: what shows a cluster to people, out of the feed that its scheduler publishes.

``feed`` listens, ``model`` keeps what was heard, ``view`` says it in words and numbers, and the
programs show that: ``top`` in a terminal, ``report`` in a page that needs no server. What happened
from one moment to another is a ``period``.
"""
