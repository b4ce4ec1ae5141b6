"""What becomes of what a node returned: the worker keeps it, sends it, or both."""

from __future__ import annotations

from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any

from scaler_cluster.core.worker.reports import Kept
from scaler_cluster.objects.unchanging import may_not_change
from scaler_cluster.pickling.payload import SIMPLE, is_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scaler_cluster.core.worker.work import Work

SENT_MAX = 8 * 1024
"""A smaller result is sent with the report: to ask for it later would cost more. It is also still
there when its worker has died."""
ITEMS_MAX = 64
"""Items of a collection that are looked at; the others are taken to be like these."""
DEPTH_MAX = 2
"""How deep collections in collections are looked into."""
NBYTES_MAX = 1 << 60
"""No value is reported as larger than this, whatever it says."""
COLLECTIONS: tuple[tuple[type, Callable[[Any], Iterable[Any]]], ...] = (
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (dict, dict.values),
)
"""Types of collections, each with its own way to their items: that of a derived class may compute
them, or load them."""
ITEM_BYTES = 8
"""What one cell of a table takes that does not say how large it is."""


class NodeResults:
    """Keeps the results of the nodes of one work for other nodes on this worker."""

    __slots__ = ("_is_shared", "_kept", "_taken", "_work")

    def __init__(self, work: Work, taken: dict[int, None], *, is_shared: bool) -> None:
        self._work = work
        self._kept = work.kept
        self._taken = taken
        """Large results that the node at the cursor took."""
        self._is_shared = is_shared

    def keep(self, value: Any) -> Kept | None:
        """Keep what the node at the cursor returned; return None if it is also to be sent.

        Nodes get the very object if they share results, or if nobody can change it. Of any other
        value they get copies, so it is to be pickled at once.
        """
        node, kept = self._work.node, self._kept
        if self._taken:
            kept.used(self._taken)
        if not self._is_shared and not is_unchanging(value):
            kept.drop(node)
            return None
        kept.values[node] = value
        nbytes = min(size_of(value), NBYTES_MAX)
        if nbytes < SENT_MAX or self._work.must_send:
            return None
        kept.uses[node] = self._work.uses
        return Kept(nbytes)


def is_unchanging(value: Any) -> bool:
    """Return True if nobody can change a value: it need not be copied for each who takes it."""
    kind = type(value)
    if kind in SIMPLE:
        return True
    if kind is tuple or kind is frozenset:
        return len(value) <= ITEMS_MAX and all(type(one) in SIMPLE for one in value)
    if is_array(value):
        try:
            return not value.flags.writeable and may_not_change(memoryview(value))
        except (ValueError, TypeError, BufferError):
            # Of objects, or of times, which no other library can look at.
            return False
    return False


def size_of(value: Any, depth: int = 0) -> int:
    """Return how many bytes a value holds, as far as it says so: about, and 0 if it does not."""
    kind = type(value)
    if kind is bytes or kind is bytearray or kind is str:
        return len(value)
    if kind in SIMPLE:
        return 0
    try:
        for base, items_of in COLLECTIONS:
            if issubclass(kind, base):
                if depth == DEPTH_MAX:
                    return 0
                every = items_of(value)
                count = length_hint(every)
                items = list(islice(every, ITEMS_MAX))
                sizes = sum(size_of(one, depth + 1) for one in items)
                return sizes * count // max(len(items), 1)
        nbytes = getattr(value, "nbytes", None)
        if nbytes is None and hasattr(kind, "memory_usage"):
            nbytes = ITEM_BYTES * value.size
        return int(nbytes) if nbytes is not None else 0
    except Exception:
        # A class of the user's may do what it likes.
        return 0
